"""Leaving out arms and seeds of a plan: what is left is what a smaller plan would have been."""

import pytest

from runner.planning import planner, subset
from runner.schema.record import Narrowing, Plan, Prediction
from runner.spec import declaration as spec_declaration
from tests import synthetic
from tests.scenarios.lab import EXPERIMENT, TEXT


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return planned(tmp_path_factory.mktemp("whole"), EXPERIMENT)


def planned(folder, declaration: str) -> Plan:  # type: ignore[no-untyped-def]
    (folder / "text.txt").write_text(TEXT)
    experiment = spec_declaration.parse(
        declaration.replace("preregistration: 1\n", ""), "experiment.yaml"
    )
    return planner.make_plan(experiment, folder, called="experiments/warm")


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("arms=fast", Narrowing(arms=("fast",))),
        ("seeds=2,0", Narrowing(seeds=(0, 2))),
        ("seeds=0, 1 arms=slow,fast", Narrowing(arms=("fast", "slow"), seeds=(0, 1))),
        ("", Narrowing()),
    ],
)
def test_words_leave_out_arms_and_seeds(plan: Plan, words: str, left: Narrowing) -> None:
    assert subset.read(words, plan) == left


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("arms=fest", "the plan has no arm `fest`; write `fast`"),
        ("arms=", "the plan has no arm ``"),
        ("seeds=3", "the plan has no seed `3`"),
        ("seeds=00", "the plan has no seed `00`"),
        ("kind=cpu", "`kind=cpu` is neither `arms=` nor `seeds=`"),
        ("arm=fast", "`arm=fast` is neither `arms=` nor `seeds=`; write `arms=fast`"),
        ("arms=fast arms=slow", "`arms=` is here twice; write `arms=` once"),
        ("learning_rate=3", "`learning_rate=3` is neither"),
        ("faster", "`faster` is neither"),
        (
            "arm=fest seeds=0,9 kind=cpu",
            "`arm=fest` is neither `arms=` nor `seeds=`; write `arms=fest`; `kind=cpu` is neither "
            "`arms=` nor `seeds=`; the plan has no arm `fest`; write `fast`; the plan has no seed "
            "`9`; it has 0, 1, 2",
        ),
    ],
)
def test_words_that_leave_out_nothing_are_refused(plan: Plan, words: str, why: str) -> None:
    found = subset.read(words, plan)
    assert isinstance(found, str)
    assert found.startswith(why)


def test_an_arm_that_was_predicted_about_stays() -> None:
    plan = synthetic.plan(predictions=[synthetic.prediction()])
    assert "has a prediction about the arm `slow`" in str(subset.read("arms=fast", plan))


def test_an_arm_of_a_predicted_order_stays() -> None:
    order = Prediction(metric="eval/bpb", order=("fast", "slow"), expect="> 0", confidence=0.7)
    plan = synthetic.plan(predictions=[order])
    assert "has a prediction about the arm `slow`" in str(subset.read("arms=fast", plan))
    assert subset.read("seeds=0,1", plan) == Narrowing(seeds=(0, 1)), "fewer seeds tell less"
    assert isinstance(subset.read("seeds=0", plan), Narrowing)


def test_a_plan_of_steps_is_not_narrowed(plan: Plan) -> None:
    steps = plan.model_copy(update={"data": None})
    assert subset.read("seeds=0", steps) == "a plan of steps can only run as a whole"


def test_a_subset_equals_the_plan_of_the_smaller_declaration(
    plan: Plan, tmp_path_factory: pytest.TempPathFactory
) -> None:
    smaller = EXPERIMENT.replace("seeds: [0, 1, 2]", "seeds: [0, 2]").replace(
        "  slow: {train: {learning_rate: 0.0003}}\n", ""
    )
    expected = planned(tmp_path_factory.mktemp("part"), smaller)
    found = subset.narrowed(plan, Narrowing(arms=("fast",), seeds=(0, 2)))
    assert found.fingerprint == expected.fingerprint != plan.fingerprint
    assert found.runs() == [("fast", 0), ("fast", 2)]
    assert found.cost.seconds == pytest.approx(expected.cost.seconds)
    assert found.cost.model_flops == expected.cost.model_flops
    assert found.cost.tokens == expected.cost.tokens
    assert subset.deviations(plan, Narrowing(arms=("fast",), seeds=(0, 2))) == (
        "It leaves out 1 of 2 arms: `slow`.",
        "It leaves out 1 of 3 seeds: 1.",
    )


def test_nothing_left_out_is_the_same_plan(plan: Plan) -> None:
    assert subset.narrowed(plan, Narrowing(arms=("fast", "slow"), kind="cpu")) is plan
    assert subset.deviations(plan, Narrowing(arms=("fast", "slow"), kind="cpu")) == ()
