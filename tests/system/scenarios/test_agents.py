"""The story of an agent: it proposes, the policy answers, and nobody but people approve."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.fake_github.world.state import User
from bot.model import policy_file
from bot.site.facts import agents, forecasts
from bot.site.facts.lab import read_lab
from runner.publish import charts
from runner.store.store import Store
from tests.scenarios.lab import EXPERIMENT, ROOT, TEXT, Lab, a_lab, form_body
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_steps import OWN, OWN_STEP
from tests.system.scenarios.test_story import PIXEL
from tests.unit.runner.test_ladder import DECLARED as LADDER

ROBO, MIRA, STRAY = "robo[bot]", "mira", "stray[bot]"
ALLOWANCE = """\
agents:
  robo[bot]:
    sponsor: grace
    kinds: [cpu]
    device_hours_per_month: 12
    open_proposals: 3
    gate_1: policy
  mira: {sponsor: grace, device_hours_per_month: 1}
"""
PREDICTION = """\
- metric: eval/bpb
  arm: fast
  versus: slow
  expect: "{}"
  confidence: {}
"""
PREDICTED = (("< -0.05", 0.9), ("< -0.05", 0.8), ("< 0", 0.7), ("> 0.05", 0.6))
SMALL = EXPERIMENT.replace("num_train_steps: 16", "num_train_steps: 2").replace(
    "seeds: [0, 1, 2]", "seeds: [0, 1]"
)
UNDER = "preregistration: 1\n"
WARMER = {"s1": 2.0, "n1": 1.9, "s2": 1.8, "n2": 1.7, "slow": 3.2, "fast": 2.4}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab whose policy names two agents: an App, and an account that could approve if it were a
    person's. A third bot is not named."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    trainer = StubRay(bpb=lambda arm, seed: WARMER[arm] + 0.001 * seed)
    with a_lab(tmp_path, trainer, isolation="bubblewrap") as lab:
        for id, login, role, kind in (
            (21, ROBO, "write", "Bot"),
            (22, MIRA, "maintain", "User"),
            (23, STRAY, "write", "Bot"),
        ):
            lab.sandbox.world.users[login] = User(id, login, login, role, kind)
        policy = (ROOT / policy_file.PATH).read_text() + ALLOWANCE
        owner = lab.sandbox.world.owner.login
        lab.sandbox.commit(owner, "main", {policy_file.PATH: policy.encode()}, "Name the agents")
        yield lab


def preregister(lab: Lab, expect: str, confidence: float) -> int:
    body = form_body(predictions=PREDICTION.format(expect, confidence))
    issue = lab.sandbox.open_issue(ROBO, "Experiment: warmer is better", body)
    lab.settle()
    return issue.number


def propose(lab: Lab, name: str, declaration: str, **more: str) -> int:
    """The agent opens a pull request with an experiment of this name."""
    files = {"experiment.yaml": declaration, "text.txt": TEXT, **more}
    found = {f"experiments/{name}/{file}": text.encode() for file, text in files.items()}
    lab.sandbox.commit(ROBO, name, found, f"Declare {name}")
    pull = lab.sandbox.open_pull(ROBO, name, "Proposed by a program.", name)
    lab.settle()
    return pull.number


def asks(issue: int, rate: str) -> str:
    """A small experiment under this preregistration."""
    under = SMALL.replace("preregistration: 1", f"preregistration: {issue}")
    return under.replace("learning_rate: 0.003", f"learning_rate: {rate}")


def close(lab: Lab, number: int) -> None:
    lab.sandbox.edit_issue(ROBO, number, state="closed")
    lab.settle()


def started(lab: Lab) -> list[int]:
    """The pull requests whose plans were executed."""
    found = lab.records("executions")
    return [
        one["origin"]["pull"] for path, one in found.items() if path.endswith("/execution.json")
    ]


def test_an_agent_proposes_ten_experiments_and_people_decide_what_is_more_than_the_first_gate(
    lab: Lab,
) -> None:
    # Four with predictions: the policy approves the first gate of each, within the allowance.
    for n, (expect, confidence) in enumerate(PREDICTED, 1):
        issue = preregister(lab, expect, confidence)
        assert lab.comments(issue)[0].startswith("### Sealed")
        pull = propose(lab, f"warm-{n}", asks(issue, f"0.00{n + 2}"))
        first = lab.comments(pull)[0]
        assert "The agent robo\\[bot\\] proposed this plan, and grace answers for it" in first
        assert "The lab's policy approves it by itself" in first
        assert ("**Confirmed.**" if n < 4 else "**Refuted.**") in lab.last(issue)
        close(lab, pull)
    approvals = lab.records("approvals")
    assert len(started(lab)) == len(approvals) == 4
    policy = lab.sandbox.world.git.resolve("main")
    for one in approvals.values():
        assert one["approved"]
        assert (one["policy"], one["role"], one["by"]["id"]) == (policy, "policy", 0)

    # Three are refused by the policy, each with its reason and what to do.
    on_gpus = propose(lab, "on-gpus", SMALL.replace("kind: cpu", "kind: h100").replace(UNDER, ""))
    assert "asks for `h100`, and the policy gives this agent `cpu`" in lab.last(on_gpus)
    assert "declare one of these as `kind` of `resources`" in lab.last(on_gpus)
    long = SMALL.replace("[0, 1]", f"{[*range(8)]}").replace(
        "num_train_steps: 2", "num_train_steps: 30000"
    )
    large = propose(lab, "large", long.replace(UNDER, ""))
    assert "device-hours, but the budget is 12 per agent and calendar month" in lab.last(large)
    own = propose(lab, "own", OWN_STEP, **{"own.py": OWN})
    assert "A maintainer has to approve it: it has its own code." in lab.last(own)
    fourth = propose(lab, "fourth", SMALL.replace(UNDER, ""))
    refusal = lab.last(fourth)
    assert f"3 older ones (pull request {on_gpus}, pull request {large}, pull request {own})" in (
        refusal
    )
    assert "close or merge one, then comment `/plan`" in refusal
    assert len(started(lab)) == 4
    lab.say("grace", large, f"/run {code(lab, large)}")
    assert "but the budget is 12 per agent" in lab.last(large), "nor can a maintainer approve it"
    # It does what the bot said.
    close(lab, large)
    lab.say(ROBO, fourth, "/plan")
    assert started(lab).count(fourth) == 1
    close(lab, fourth)

    # One is promoted: the first gate runs and passes, and the second needs a maintainer.
    ladder = propose(lab, "ladder", LADDER)
    assert "**Gate of rung 1 of 2: passed.**" in "\n".join(lab.comments(ladder))
    second = lab.last(ladder)
    assert "A maintainer has to approve it: it is rung 2 of a ladder, after gate 1." in second
    run = f"/run {code(lab, ladder)}"
    before = len(lab.comments(ladder))
    lab.say(STRAY, ladder, run)
    assert len(lab.comments(ladder)) == before, "a bot that the policy does not name is ignored"
    lab.say(ROBO, ladder, run)
    assert "is an app, and only people can approve" in lab.last(ladder)
    lab.say(MIRA, ladder, run)
    assert "`mira` is an agent, and agents never approve anything" in lab.last(ladder)
    for command in ("/cancel", "/retry"):
        lab.say(MIRA, ladder, command)
        assert "**Not done:**" in lab.last(ladder)
    lab.say(MIRA, ladder, "/reproduce")  # as everybody, it may ask
    assert "mira may not approve it" in lab.last(ladder)
    assert started(lab).count(ladder) == 1
    lab.say("grace", ladder, run)
    assert started(lab).count(ladder) == 2

    # Ten experiments, and what became of them is published.
    close(lab, on_gpus)
    tenth = propose(lab, "tenth", SMALL.replace(UNDER, "").replace("0.003", "0.008"))
    assert started(lab).count(tenth) == 1
    assert len({path.split("/")[1] for path in lab.records("plans")}) == 10
    facts = read_lab(Store(lab.root / "store"))
    (robo,) = agents.twin(agents.members(facts, forecasts.forecasts(facts)))
    assert (robo["login"], robo["sponsor"]) == (ROBO, "grace")
    assert (robo["approved_by_policy"], robo["approved_by_people"], robo["promoted"]) == (7, 1, 1)
    assert [one["pull"] for one in robo["refused"]] == [on_gpus, large, fourth]
    assert (robo["decided"], robo["confirmed"]) == (4, 3)
    assert robo["brier"] == pytest.approx((0.1**2 + 0.2**2 + 0.3**2 + 0.6**2) / 4)
    assert robo["expected_share"] == pytest.approx(0.75)


def code(lab: Lab, pull: int) -> str:
    """The code of the newest plan."""
    plans = [one for path, one in lab.records("plans").items() if path.split("/")[1] == str(pull)]
    return str(max(plans, key=lambda one: one["n"])["code"])
