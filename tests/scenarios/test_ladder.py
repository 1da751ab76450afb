"""Stories of a ladder: a rung's gate decides whether the next rung's plan is posted."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner import charts
from tests.runner.test_ladder import DECLARED
from tests.scenarios.lab import Lab, a_lab
from tests.stub_trainer import StubRay

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
        "**The gate of rung 1 of 2: passed.** For the loss of `n1`, `s1` would take"
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
    assert "**The gate of rung 2 of 2: passed.**" in lab.last(pull)
    assert "It was the last one." in lab.last(pull)
    assert len(runs(lab)) == 2
    assert len(plans(lab, pull)) == 2


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
    assert f"**The gate of rung 1 of 2: {outcome}.** For the loss of `n1`" in lab.last(pull)
    assert "90 % interval" in lab.last(pull)
    assert "So no plan of a next rung is posted." in lab.last(pull)
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
