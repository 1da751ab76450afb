"""`ladder:` in a declaration: each rung is a plan of its own, and what makes no sense is said."""

from pathlib import Path

import pytest

from runner.lib.problems import BadExperiment
from runner.planning import planner, subset
from runner.schema.record import Plan
from runner.spec import declaration
from tests import synthetic
from tests.scenarios.lab import EXPERIMENT, TEXT

FILE = "experiments/warm/experiment.yaml"
DECLARED = EXPERIMENT.replace("preregistration: 1\n", "").partition("arms:\n")[0] + (
    "arms:\n"
    "  s1: {}\n"
    "  n1: {train: {learning_rate: 0.01}}\n"
    "  s2: {train: {num_train_steps: 32}}\n"
    "  n2: {train: {num_train_steps: 32, learning_rate: 0.01}}\n"
    "ladder:\n"
    "  floor: 0.6\n"
    "  exponent: 0.1\n"
    "  rungs:\n"
    "    - {baseline: s1, variant: n1}\n"
    "    - {baseline: s2, variant: n2}\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("warm")
    (found / "text.txt").write_text(TEXT)
    return found


def plan(folder: Path, declared: str = DECLARED, rung: int = 1) -> Plan:
    experiment = declaration.parse(declared, FILE)
    return planner.make_plan(experiment, folder, called="experiments/warm", rung=rung)


def test_each_rung_is_a_plan_of_its_own(folder: Path) -> None:
    first, second = plan(folder), plan(folder, rung=2)
    assert (list(first.arms), list(second.arms)) == (["n1", "s1"], ["n2", "s2"])
    assert first.rung is not None
    assert second.rung is not None
    assert (first.rung.n, first.rung.of, second.rung.n) == (1, 2, 2)
    assert first.fingerprint != second.fingerprint
    assert first.cost.runs == 6
    assert second.cost.model_flops == 2 * first.cost.model_flops
    assert Plan.model_validate_json(first.canonical()) == first


def test_the_gates_constants_are_bound_by_the_fingerprint(folder: Path) -> None:
    other = DECLARED.replace("floor: 0.6", "floor: 0.5")
    assert plan(folder, other).fingerprint != plan(folder).fingerprint


def test_a_plan_without_a_ladder_is_written_as_before_there_were_any() -> None:
    assert "rung" not in synthetic.plan().canonical().decode()


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("variant: n2", "variant: n3", "there is no arm `n3`"),
        ("variant: n2", "variant: n1", "the arm `n1` is on the ladder already"),
        ("    - {baseline: s2, variant: n2}\n", "", "a ladder has two rungs at least"),
        ("seeds: [0, 1, 2]", "seeds: [0]", "a gate needs two seeds at least"),
        ("  n1: {", "  more: {}\n  n1: {", "is on no rung of the ladder, and would never run"),
        ("n2: {train: {num_train_steps: 32", "n2: {train: {num_train_steps: 64", "a gate compares "
         "arms of equally many"),
        ("floor: 0.6", "flor: 0.6", "did you mean `floor`?"),
        ("s1: {}\n  n1: {", "s1: {own: {model: \"m:M\"}}\n  n1: {", "nobody measures their speed"),
    ],
)  # fmt: skip
def test_problems_of_a_ladder_are_reported(folder: Path, was: str, now: str, said: str) -> None:
    assert DECLARED.count(was) == 1
    with pytest.raises(BadExperiment) as caught:
        plan(folder, DECLARED.replace(was, now))
    assert any(said in str(problem) for problem in caught.value.problems)


def test_rungs_that_do_not_grow_are_refused(folder: Path) -> None:
    one, other = "{baseline: s1, variant: n1}", "{baseline: s2, variant: n2}"
    turned = DECLARED.replace(one, "X").replace(other, one).replace("X", other)
    with pytest.raises(BadExperiment, match="`s1` is not larger than the rung before it"):
        plan(folder, turned)


def test_seeds_of_a_rung_may_be_left_out_and_arms_may_not(folder: Path) -> None:
    found = plan(folder)
    assert (
        subset.read("arms=n1", found)
        == "a rung needs both of its arms, because its gate compares them"
    )
    assert not isinstance(subset.read("seeds=0,1", found), str)
