"""Stories of a ladder: a rung's gate decides whether the next rung's plan is posted."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bot.site.pages.build import build
from runner.analysis import verdicts, which_runs_count
from runner.history.execution_index import Past
from runner.publish import charts
from runner.store.store import Store
from tests.scenarios.lab import EXPERIMENT, Lab, a_lab, form_body
from tests.stub_trainer import StubRay
from tests.unit.runner.test_ladder import DECLARED
from tests.unit.site.test_pages import Page

STEPS = (16, 32, 64, 128)  # of the four rungs
PREDICTIONS = """\
- metric: eval/bpb
  arm: n1
  versus: s1
  expect: "< 0"
  confidence: 90 %
- metric: eval/bpb
  order: [n3, n2, n1]
  confidence: 80 %
- metric: eval/bpb
  exponent: [n1, n2, n3, n4]
  axis: tokens
  expect: "0.3 ± 0.1"
  confidence: 70 %
- metric: eval/bpb
  arm: n4
  smaller: [n1, n2, n3]
  axis: model_flops
  expect: "> 0.1"
  confidence: 10 %
"""
OF_FOUR = EXPERIMENT.partition("arms:\n")[0] + (
    "arms:\n"
    + "".join(
        f"  {kind}{n}: {{train: {{num_train_steps: {steps}, learning_rate: {rate}}}}}\n"
        for n, steps in enumerate(STEPS, 1)
        for kind, rate in (("s", 0.003), ("n", 0.01))
    )
    + "ladder:\n  floor: 0.6\n  exponent: 0.1\n  rungs:\n"
    + "".join(f"    - {{baseline: s{n}, variant: n{n}}}\n" for n in range(1, 5))
)
BETTER = {"s1": 2.0, "n1": 1.9, "s2": 1.8, "n2": 1.7}


@pytest.fixture
def lab_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[dict[str, float]], Lab]]:
    """Makes a lab in which arms score so."""
    monkeypatch.setattr(charts, "png", lambda _: b"\x89PNG")
    opened = []

    def make(bpb: dict[str, float]) -> Lab:
        context = a_lab(tmp_path, StubRay(bpb=lambda arm, seed: bpb[arm] + 0.001 * seed))
        opened.append(context)
        return context.__enter__()

    yield make
    for context in opened:
        context.__exit__(None, None, None)


def plans(lab: Lab, pull: int) -> list[str]:
    return [body for body in lab.comments(pull) if "### Plan " in body]


def test_a_passed_gate_posts_the_next_rungs_plan_which_needs_its_own_run(
    lab_of: Callable[[dict[str, float]], Lab],
) -> None:
    lab = lab_of(BETTER)
    pull = lab.propose(DECLARED)
    assert "Rung 1 of 2 of a ladder: `n1` against `s1`" in lab.last(pull)
    lab.say("grace", pull, "/run")
    comments = lab.comments(pull)
    assert (
        "**Gate of rung 1 of 2: passed.** To reach the loss of `n1`, `s1` would need"
        in (comments[-2])
    )
    assert "The plan of rung 2 follows" in comments[-2]
    assert "Rung 2 of 2 of a ladder: `n2` against `s2`" in comments[-1]
    records = lab.records("plans")
    first, second = (record for _, record in sorted(records.items()))
    assert first["commit"] == second["commit"]
    assert first["plan"]["fingerprint"] != second["plan"]["fingerprint"]
    assert first["code"] != second["code"]
    assert len(runs(lab)) == 1, "nothing of rung 2 runs before somebody approves it"
    lab.say("grace", pull, f"/run {second['code']}")
    assert "**Gate of rung 2 of 2: passed.**" in lab.last(pull)
    assert "This was the last rung." in lab.last(pull)
    assert len(runs(lab)) == 2
    assert len(plans(lab, pull)) == 2


def law() -> dict[str, float]:
    """Bits per byte that fall with an exponent of 0.3, the new ones from lower on."""
    sizes = list(enumerate(STEPS, 1))
    return {f"s{n}": 1.3 + 3.0 * (steps / 16) ** -0.3 for n, steps in sizes} | {
        f"n{n}": 1.2 + 2.8 * (steps / 16) ** -0.3 for n, steps in sizes
    }


def test_predictions_over_the_rungs_of_a_ladder_are_decided_on_the_rung_that_has_their_last_arm(
    lab_of: Callable[[dict[str, float]], Lab], tmp_path: Path
) -> None:
    lab = lab_of(law())
    issue = lab.preregister(form_body(predictions=PREDICTIONS))
    pull = lab.propose(OF_FOUR)
    decided = []
    for rung in range(1, 5):
        assert f"Rung {rung} of 4 of a ladder" in lab.last(pull)
        code = max(lab.records("plans").items())[1]["code"]
        lab.say("grace", pull, f"/run {code}")
        verdict = lab.last(issue)
        assert "Exploratory" not in verdict
        assert "Run again" not in verdict
        decided.append([line[0] for line in outcomes(lab)])
    assert ["".join(letters) for letters in decided] == ["ciii", "ciii", "ccii", "cccr"]
    assert "✅ 3 confirmed · ❌ 1 refuted" in verdict
    assert "over 4 sizes in tokens: 0.3" in verdict

    repository = int(next(iter(lab.records("preregistrations"))).split("/")[0])
    found = Past(Store(lab.root / "store")).registration(repository, issue)
    assert found is not None
    review = which_runs_count.review(found)
    assert [one.why_not for one in review.weighed] == [which_runs_count.LOWER_RUNG] * 3 + [None]
    assert not any(review.deviations(one.outcome.execution.id) for one in review.weighed)
    last = review.weighed[-1].outcome
    assert last.result is not None
    plan, climbed = last.execution.plan, last.execution.climbed
    assert verdicts.judge(plan, last.scores, climbed) == last.result.verdicts
    assert {one.arm for one in climbed} == {f"{kind}{n}" for kind in "sn" for n in (1, 2, 3)}

    build(Store(lab.root / "store"), tmp_path / "site")
    page = tmp_path / "site" / "experiments" / f"{repository}-{issue}.html"
    said = Page(page).text
    assert "4 rungs; this is the first" in said
    assert "a lower rung of the ladder; the highest rung counts" in said
    assert "✗ refuted the relative error of eval/bpb of n4" in said


def test_changing_an_upper_rung_changes_the_sealed_ladder(
    lab_of: Callable[[dict[str, float]], Lab],
) -> None:
    lab = lab_of(law())
    lab.preregister(form_body(predictions=PREDICTIONS))
    pull = lab.propose(OF_FOUR)
    lab.say("grace", pull, "/run")
    lab.clock.advance(1)
    changed = OF_FOUR.replace("num_train_steps: 128", "num_train_steps: 256")
    file = "experiments/warm/experiment.yaml"
    lab.sandbox.commit("ada", "warm", {file: changed.encode()}, "A larger last rung")
    lab.settle()
    for _ in range(2):
        code = max(lab.records("plans").items())[1]["code"]
        lab.say("grace", pull, f"/run {code}")
    repository = int(next(iter(lab.records("preregistrations"))).split("/")[0])
    found = Past(Store(lab.root / "store")).registration(repository, 1)
    assert found is not None
    why = [one.why_not for one in which_runs_count.review(found).weighed]
    assert why == [None, which_runs_count.RUN_AGAIN, which_runs_count.EXPLORATORY]


def test_a_ladder_that_ends_early_leaves_what_it_did_not_reach_undecided_and_says_so(
    lab_of: Callable[[dict[str, float]], Lab],
) -> None:
    lab = lab_of(law() | {"n1": 9.0})
    issue = lab.preregister(form_body(predictions=PREDICTIONS))
    pull = lab.propose(OF_FOUR)
    lab.say("grace", pull, "/run")
    verdict = lab.last(issue)
    assert "not yet decided; rung 1 of 4 does not reach n3, n2" in verdict
    assert [line[0] for line in outcomes(lab)] == ["r", "i", "i", "i"]


def outcomes(lab: Lab) -> list[str]:
    """Those of the newest execution."""
    records = lab.records("executions")
    results = [one for path, one in records.items() if path.endswith("/result.json")]
    newest = max(results, key=lambda one: one["at"])
    return [verdict["outcome"] for verdict in newest["verdicts"]]


def runs(lab: Lab) -> set[str]:
    return {path.partition("/")[0] for path in lab.records("executions")}


@pytest.mark.parametrize(
    ("new", "outcome"), [(2.1, "failed"), (2.0, "inconclusive")], ids=["failed", "inconclusive"]
)
def test_a_gate_that_is_not_passed_says_so_with_its_figures_and_posts_nothing_more(
    lab_of: Callable[[dict[str, float]], Lab], new: float, outcome: str
) -> None:
    lab = lab_of(BETTER | {"n1": new})
    pull = lab.propose(DECLARED)
    lab.say("grace", pull, "/run")
    assert f"**Gate of rung 1 of 2: {outcome}.** To reach the loss of `n1`" in lab.last(pull)
    assert "90 % interval" in lab.last(pull)
    assert "The bot posts no plan for the next rung." in lab.last(pull)
    assert len(plans(lab, pull)) == 1
    assert len(lab.records("plans")) == 1


def test_a_push_begins_the_ladder_anew_and_another_delivery_does_not(
    lab_of: Callable[[dict[str, float]], Lab],
) -> None:
    lab = lab_of(BETTER)
    pull = lab.propose(DECLARED)
    lab.say("grace", pull, "/run")
    lab.say("ada", pull, "Nice.")
    assert len(lab.records("plans")) == 2
    lab.say("grace", pull, "/plan")
    assert "Rung 2 of 2" in plans(lab, pull)[-1], "`/plan` looks at the rung that was reached"
    changed = DECLARED.replace("learning_rate: 0.01}", "learning_rate: 0.02}")
    lab.clock.advance(1)
    file = "experiments/warm/experiment.yaml"
    lab.sandbox.commit("ada", "warm", {file: changed.encode()}, "Another thought")
    lab.settle()
    assert "Rung 1 of 2" in plans(lab, pull)[-1]
