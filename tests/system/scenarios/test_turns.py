"""A lab that describes its devices: who was approved begins in turn, and is told when."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.publish import charts
from runner.scheduler.cluster import Described, parse
from tests.scenarios.lab import EXPERIMENT, READING, TEXT, Lab, a_lab
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_story import PIXEL, executions, finish, tell

SEEDS = "seeds: [0, 1, 2]"
DEBUGGING = EXPERIMENT.replace(SEEDS, "seeds: [0]")  # two short runs
SWEEP = EXPERIMENT.replace(SEEDS, "seeds: [0, 1, 2, 3, 4, 5, 6]")
ONE = "pools: {here: {kind: cpu, count: 1}}\n"


@pytest.fixture
def lab_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Lab]]:
    """Makes a lab on the described cluster, whose trainer takes steps only when it is told to."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    opened = []

    def make(cluster: str) -> Lab:
        described: Described = parse(cluster, "cluster.yaml")
        context = a_lab(tmp_path, StubRay(pace=0), cluster=described)
        opened.append(context)
        lab = context.__enter__()
        lab.preregister()
        return lab

    yield make
    for context in opened:
        context.__exit__(None, None, None)


def propose(lab: Lab, name: str, declaration: str = EXPERIMENT) -> int:
    """A pull request with an experiment of that name, on a text of its own: nobody has made what
    it is to make."""
    text = f"{name}\n{TEXT}"
    files = {"experiment.yaml": declaration.encode(), "text.txt": text.encode()}
    lab.sandbox.commit(
        "ada", name, {f"experiments/{name}/{file}": data for file, data in files.items()}, name
    )
    number = lab.sandbox.open_pull("ada", name, "Tests #1.", name).number
    lab.look()
    lab.clock.advance(READING)
    return number


def status(lab: Lab, pull: int) -> str:
    return next(body for body in lab.comments(pull) if "status.x" in body)


def states(lab: Lab) -> list[str]:
    """Of all executions, in the order of their approvals."""
    facts = lab.records("executions")
    found = []
    for x in executions(lab):
        result = facts.get(f"{x}/result.json")
        begun = f"{x}/t1.claimed.json" in facts
        found.append(result["state"] if result else "begun" if begun else "queued")
    return found


def end_first(lab: Lab) -> None:
    """Let what runs now come to its end."""
    lab.trainer.finish()
    lab.look(20)


def test_without_a_described_cluster_everything_begins_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        lab.preregister()
        for name in ("one", "two"):
            tell(lab, "grace", propose(lab, name), "/run")
        assert states(lab) == ["begun", "begun"]


def test_a_second_execution_waits_shows_its_place_and_starts_after_the_first(
    lab_on: Callable[[str], Lab],
) -> None:
    lab = lab_on(ONE)
    first, second, third = (propose(lab, name) for name in ("one", "two", "three"))
    for pull in (first, second, third):
        tell(lab, "grace", pull, "/run")
    lab.look(20)
    assert states(lab) == ["begun", "queued", "queued"]
    assert "in the queue" not in status(lab, first)
    assert "Queued" in status(lab, second)
    assert "1st in the queue for cpu, starts " in status(lab, second)
    assert "2nd in the queue for cpu, starts in about " in status(lab, third)
    end_first(lab)
    assert states(lab) == ["done", "begun", "queued"]
    assert "in the queue" not in status(lab, second)
    lab.look(20)
    assert "1st in the queue for cpu" in status(lab, third)
    finish(lab)
    assert states(lab) == ["done", "done", "done"]


def test_the_quote_is_edited_in_coarse_steps_only(lab_on: Callable[[str], Lab]) -> None:
    lab = lab_on(ONE)
    for name in ("one", "two"):
        tell(lab, "grace", pull := propose(lab, name), "/run")
    lab.look(20)
    bodies = []
    for _ in range(120):  # four minutes, in which the first one's expected end passes
        lab.look(1)
        bodies.append(status(lab, pull))
    assert len(set(bodies)) <= 3
    assert "starts soon" in bodies[-1]


def test_debugging_overtakes_a_sweep(lab_on: Callable[[str], Lab]) -> None:
    lab = lab_on(ONE)
    for name, declaration in (("one", EXPERIMENT), ("wide", SWEEP), ("bug", DEBUGGING)):
        tell(lab, "grace", propose(lab, name, declaration), "/run")
    assert states(lab) == ["begun", "queued", "queued"]
    end_first(lab)
    assert states(lab) == ["done", "queued", "begun"]
    finish(lab)
    assert states(lab) == ["done", "done", "done"]


def test_two_of_one_pull_request_do_not_take_the_same_device(
    lab_on: Callable[[str], Lab],
) -> None:
    lab = lab_on(ONE)
    pull = propose(lab, "one")
    tell(lab, "grace", pull, "/run")
    changed = EXPERIMENT.replace("0.0003", "0.0004")
    lab.sandbox.commit("ada", "one", {"experiments/one/experiment.yaml": changed.encode()}, "two")
    lab.look()
    lab.clock.advance(READING)
    tell(lab, "grace", pull, "/run")
    assert states(lab) == ["begun", "queued"]


def test_a_waiting_execution_can_be_cancelled(lab_on: Callable[[str], Lab]) -> None:
    lab = lab_on(ONE)
    for name in ("one", "two", "three"):
        tell(lab, "grace", pull := propose(lab, name), "/run")
        if name == "two":
            middle = pull
    tell(lab, "grace", middle, "/cancel")
    assert states(lab) == ["begun", "cancelled", "queued"]
    end_first(lab)
    assert states(lab) == ["done", "cancelled", "begun"]


@pytest.mark.parametrize("dies_when", ["all wait", "the first has ended"])
def test_nothing_is_lost_when_the_bot_is_restarted_while_others_wait(
    lab_on: Callable[[str], Lab], dies_when: str
) -> None:
    lab = lab_on(ONE)
    for name in ("one", "two", "three"):
        tell(lab, "grace", propose(lab, name), "/run")
    lab.die()
    if dies_when == "the first has ended":
        lab.trainer.finish()
    lab.start()
    lab.look(40)  # the lease of the one that died is stale after 45 s
    at_work = {"all wait": ["begun", "queued", "queued"]}
    assert states(lab) == at_work.get(dies_when, ["done", "begun", "queued"])
    finish(lab)
    assert states(lab) == ["done", "done", "done"]
    assert len(lab.trainer.submissions) == 3


def test_a_person_over_budget_is_refused_until_a_run_ends(
    lab_on: Callable[[str], Lab],
) -> None:
    # Each is expected to take a little over a minute, and takes some seconds.
    rules = "policy: {budgets_device_hours: {Grace: {cpu: 0.03}}}\n"
    lab = lab_on(ONE + rules)
    first, second = propose(lab, "one"), propose(lab, "two")
    tell(lab, "grace", first, "/run")
    tell(lab, "grace", second, "/run")
    assert states(lab) == ["begun"]
    refusal = lab.last(second)
    assert "Not done" in refusal
    assert "The experiment needs 0.0169 device-hours of `cpu`" in refusal
    assert "grace may use 0.03 device-hours, and 0.0169 device-hours of these are used" in refusal
    assert "calendar month" in refusal
    lab.trainer.pace = None
    lab.settle()
    tell(lab, "grace", second, "/run")
    lab.settle()
    assert states(lab) == ["done", "done"]


def test_a_plan_too_large_for_every_pool_is_refused_at_approval(
    lab_on: Callable[[str], Lab],
) -> None:
    lab = lab_on("pools: {nodes: {kind: h100, count: 8}}\n")
    tell(lab, "grace", pull := propose(lab, "one"), "/run")
    assert not lab.records("executions")
    assert "in one pool; the cluster has none" in lab.last(pull)


def test_an_approval_that_no_longer_holds_when_its_turn_comes_gives_the_device_to_the_next(
    lab_on: Callable[[str], Lab],
) -> None:
    lab = lab_on(ONE)
    for name in ("one", "two", "three"):
        tell(lab, "grace", propose(lab, name), "/run")
    later = EXPERIMENT.replace("0.0003", "0.0005").encode()
    lab.sandbox.commit("ada", "two", {"experiments/two/experiment.yaml": later}, "a new thought")
    lab.look()
    assert states(lab) == ["begun", "queued", "queued"]
    end_first(lab)
    lab.look(20)
    assert states(lab) == ["done", "voided", "begun"]
