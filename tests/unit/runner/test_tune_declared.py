"""`tune:` in a declaration, and the step `tune`: plan, budget, and what makes no sense."""

from pathlib import Path

import pytest

from runner.lib.problems import BadExperiment
from runner.planning import limits, planner, study_words, subset
from runner.schema.record import Narrowing, Plan
from runner.spec import declaration
from runner.spec.tuning import Search, with_settings
from tests.scenarios.lab import EXPERIMENT, TEXT

FILE = "experiments/warm/experiment.yaml"
TUNED = EXPERIMENT.replace("preregistration: 1\n", "") + (
    "tune:\n"
    "  trials: 12\n"
    "  seeds: [100, 101]\n"
    "  times: {learning_rate: [0.5, 1, 2]}\n"
    "  values: {weight_decay: [0.0, 0.1]}\n"
)
STEPS = (
    "title: Tuned alike\n"
    "resources: {kind: cpu}\n"
    "steps:\n"
    "  tokens: {do: tokenize, config: {source: text.txt}}\n"
    "  search:\n"
    "    do: tune\n"
    "    inputs: {tokens: tokens}\n"
    "    config:\n"
    "      model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 2, num_heads: 2, "
    "seq_len: 32}\n"
    "      train: {train_batch_size: 2, num_train_steps: 16, learning_rate: 0.003}\n"
    "      search: {trials: 12, seeds: [100, 101], times: {learning_rate: [0.5, 1, 2]}}\n"
    "    sweep: [{name: adamw}, {name: lion, train.optimizer: lion}]\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("warm")
    (found / "text.txt").write_text(TEXT)
    return found


def plan(folder: Path, declared: str = TUNED) -> Plan:
    return planner.make_plan(declaration.parse(declared, FILE), folder, called="experiments/warm")


def test_each_arm_has_a_search_whose_settings_its_runs_take(folder: Path) -> None:
    found = plan(folder)
    assert {name for name, step in found.steps.items() if step.do == "tune"} == {
        "tune/slow",
        "tune/fast",
    }
    for (arm, _), name in found.trained().items():
        search = found.steps[f"tune/{arm}"].fingerprint
        assert found.steps[name].inputs["settings"] == {f"tune/{arm}": search}
    assert found.cost.runs == 6
    once = found.arms["fast"].model_flops
    assert once
    assert found.cost.model_flops == (6 + 2 * 12) * once
    assert limits.limit_seconds(found, 5.0) == limits.LEAST
    (words,) = study_words.told(found)
    assert "coordinate descent over learning_rate (3 values), weight_decay (2 values)" in words
    assert "at most 12 trials for each of 2 arms (24 in all)" in words


def test_an_arms_runs_change_with_its_search_and_not_with_its_name(folder: Path) -> None:
    def train(declared: str, arm: str) -> str:
        return plan(folder, declared).steps[f"train/{arm},seed=0"].fingerprint

    assert train(TUNED, "fast") != train(TUNED.replace("trials: 12", "trials: 14"), "fast")
    assert train(TUNED, "fast") == train(TUNED.replace("  fast: {}", "  quick: {}"), "quick")


def test_multiples_are_numbers_that_a_person_would_write() -> None:
    search = Search(trials=4, seeds=(7, 8), times={"learning_rate": [3, 1, 0.1]})
    assert search.space({"learning_rate": 0.003}).grid == {"learning_rate": [0.0003, 0.003, 0.009]}


def test_multiples_of_whole_steps_are_whole_steps() -> None:
    search = Search(trials=4, seeds=(7, 8), times={"warmup": [0.5, 1, 2]})
    found = search.space({"warmup": 10}).grid["warmup"]
    assert found == [5, 10, 20]
    assert all(type(one) is int for one in found)
    close = Search(trials=4, seeds=(7, 8), times={"warmup": [1, 1.2]})
    with pytest.raises(ValueError, match="two multiples of `warmup` 1 are the same number of"):
        close.space({"warmup": 1})


def test_adams_rate_follows_a_tuned_rate_that_it_is() -> None:
    one = {"learning_rate": 0.02, "adam_learning_rate": 0.02}
    tuned = with_settings(one, {"learning_rate": 0.005})
    assert tuned == {"learning_rate": 0.005, "adam_learning_rate": 0.005}
    other = {"learning_rate": 0.02, "adam_learning_rate": 0.004}
    assert with_settings(other, {"learning_rate": 0.005})["adam_learning_rate"] == 0.004
    both = {"learning_rate": 0.005, "adam_learning_rate": 0.01}
    assert with_settings(one, both) == both


def test_an_arm_that_is_left_out_is_not_searched(folder: Path) -> None:
    left = subset.narrowed(plan(folder), Narrowing(arms=("fast",)))
    assert [name for name, step in left.steps.items() if step.do == "tune"] == ["tune/fast"]


def test_a_graph_names_its_search(folder: Path) -> None:
    train = (
        "  train:\n"
        "    do: train\n"
        "    inputs: {tokens: tokens, settings: search}\n"
        "    config:\n"
        "      model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 2, num_heads: 2, "
        "seq_len: 32}\n"
        "      train: {train_batch_size: 2, num_train_steps: 16, learning_rate: 0.003}\n"
        "    sweep: [{name: adamw}, {name: lion, train.optimizer: lion}]\n"
        "    seeds: [0, 1]\n"
    )
    steps = plan(folder, STEPS + train).steps
    assert list(steps["train/lion,seed=1"].inputs["settings"]) == ["search/lion"]
    other = train.replace("name: lion", "name: other")
    with pytest.raises(BadExperiment, match="no point of it is called `other`"):
        plan(folder, STEPS + other)


def test_a_budget_that_is_too_small_to_tell_is_warned_about(folder: Path) -> None:
    found = study_words.told(plan(folder, TUNED.replace("trials: 12", "trials: 6")))
    assert "6 trials do not reach each key once" in found[1]
    assert "write 8 or more" in found[1]


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("trials: 12", "trials: 3", "3 trials are too few to compare two settings over 2 seeds"),
        ("[100, 101]", "[100]", "one seed does not show the noise"),
        ("[100, 101]", "[100, 2]", "the seed 2 is also one of the arms'"),
        ("[0.5, 1, 2]", "[0.5, 2]", "the multiples of `learning_rate` lack 1"),
        ("[0.0, 0.1]", "[0.0, 0.2]", "the arm's own `weight_decay` is 0.1, which is not among"),
        ("[0.0, 0.1]", "[0.1, -1]", "`weight_decay: -1` cannot be"),
        ("weight_decay: [0.0, 0.1]", "weight_decy: [0.0, 0.1]", "did you mean `weight_decay`?"),
        ("weight_decay: [0.0, 0.1]", "num_train_steps: [1, 2]", "_steps` cannot be tuned"),
        ("weight_decay: [0.0, 0.1]", "momentum: [0.9, 0.95]", "`momentum` has no value here"),
        ("weight_decay: [0.0, 0.1]", "learning_rate: [0.1, 0.2]", "is in `values` and in `times`"),
        ("decay: 0.2", "decay: 0.2, phases: [{at: 8, warmup: 1}]", "begins another schedule"),
        ("{kind: cpu, count: 1}", "{kind: cpu, count: 2}", "trials train on one device so far"),
    ],
)  # fmt: skip
def test_problems_of_a_search_are_reported(folder: Path, was: str, now: str, said: str) -> None:
    assert TUNED.count(was) == 1
    with pytest.raises(BadExperiment) as caught:
        plan(folder, TUNED.replace(was, now))
    assert any(said in str(problem) for problem in caught.value.problems), caught.value.problems
