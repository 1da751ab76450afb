"""`evaluate_every`: what a plan refuses and says, and which scores of snapshots count."""

from typing import Any, cast

import pytest
from rich.console import Console

from engine.config.schema import TrainConfig
from runner.cli import execution_view
from runner.history import step_runs
from runner.lib.problems import BadExperiment
from runner.schema import metrics, record
from runner.spec import declaration, snapshots
from runner.store.store import Store
from tests import synthetic
from tests.scenarios.lab import EXPERIMENT

TRAIN = {"train_batch_size": 2, "num_train_steps": 10, "learning_rate": 0.01}
TRAINED = "train/fast,seed=0"


def plan(**train: Any) -> record.Plan:
    """Two arms with one seed, of which `fast` keeps snapshots."""
    arm = synthetic.planned_arm()
    keeps = arm.train.model_copy(update={"evaluate_every": 6} | train)
    return synthetic.plan(
        arms={"slow": arm, "fast": arm.model_copy(update={"train": keeps})}, seeds=(0,)
    )


def test_a_snapshot_is_kept_at_each_multiple_but_the_last_step() -> None:
    for every, steps in ((3, [3, 6, 9]), (5, [5]), (9, [9]), (None, [])):
        assert [*TrainConfig(**TRAIN, evaluate_every=every).snapshots] == steps
    many = TRAIN | {"num_train_steps": 65 * 7}
    assert len(TrainConfig(**many, evaluate_every=7).snapshots) == 64


def test_without_the_key_a_training_is_as_it_was() -> None:
    assert "evaluate_every" not in TrainConfig(**TRAIN).model_dump()
    assert "validation" not in synthetic.run(synthetic.plan(), "fast", 0, 2.0).model_dump()


@pytest.mark.parametrize(
    ("every", "words"),
    [
        (16, "evaluate_every 16 leaves no step to score before the last one, as the run has 16"),
        (0, "greater than 0"),
        (1, None),
    ],
)
def test_what_cannot_be_scored_on_the_way_is_refused_when_planned(
    every: int, words: str | None
) -> None:
    declared = EXPERIMENT.replace("wsd,", f"wsd, evaluate_every: {every},")
    if words is None:
        assert declaration.parse(declared, "experiment.yaml")
        return
    with pytest.raises(BadExperiment) as it:
        declaration.parse(declared, "experiment.yaml")
    [problem] = it.value.problems
    assert problem.field.endswith("train.evaluate_every")
    assert words in problem.message


def test_too_many_snapshots_are_refused_with_the_least_that_works() -> None:
    many = TRAIN | {"num_train_steps": 1000}
    with pytest.raises(ValueError, match=r"keeps 99 snapshots of a run of 1,000 .* at least 16"):
        TrainConfig(**many, evaluate_every=10)
    assert len(TrainConfig(**many, evaluate_every=16).snapshots) == 62
    with pytest.raises(ValueError, match="at least 16"):
        TrainConfig(**many, evaluate_every=15)


def test_a_plan_says_how_many_there_are_and_their_disk() -> None:
    assert snapshots.told(synthetic.plan().steps) is None
    found = plan()
    parameters = found.arms["fast"].parameters
    assert parameters
    size = f"{2 * 4 * parameters / 2**20:.3g} MiB"
    assert snapshots.told(found.steps) == f"2 snapshots of 1 run, which take {size} of disk"
    step = found.steps[TRAINED]
    own = step.model_copy(update={"config": step.config | {"own": {"model": "m:M"}}})
    said = snapshots.told(found.steps | {TRAINED: own})
    assert said == "2 snapshots of 1 run, which take an unknown amount (own models) of disk"


def points(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> tuple[Any, list[str]]:
    monkeypatch.setattr(
        step_runs, "file_of", lambda _, __, name, *___, **____: files.get(name, "{}").encode()
    )
    monkeypatch.setattr(step_runs, "_check_read", lambda *_: None)
    return step_runs.curves_by(cast(Store, None), plan(), {})


def test_a_curve_has_the_planned_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    score = '{"value": 2.5, "standard_error": 0.1}'
    curve = f'{{"12": {score}, "6": {{"value": 3.0}}, "7": {score}}}'
    files = {metrics.CURVES: f'{{"fast,seed=0": {curve}, "slow,seed=0": {curve}}}'}
    assert points(monkeypatch, files) == ({TRAINED: ((6, 3.0, None), (12, 2.5, 0.1))}, [])


@pytest.mark.parametrize("curve", ['{"6": {"value": NaN}}', '{"6": 3.0}', "[]", '{"6": {"x": 1}}'])
def test_a_curve_that_is_none_is_reported(monkeypatch: pytest.MonkeyPatch, curve: str) -> None:
    found, refused = points(monkeypatch, {metrics.CURVES: f'{{"fast,seed=0": {curve}}}'})
    assert found == {}
    assert len(refused) == 1
    assert refused[0].startswith("evaluate, curves.json: ")


def test_a_model_that_looked_ahead_has_no_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    examined = '{"positions": 9, "largest": 2.0, "uncounted": "", "void": "it saw it"}'
    score = f'"bpb": 1.0, "loss": 1.0, "targets": 64, "params_sha256": "{"a" * 64}"'
    files = {
        metrics.CURVES: '{"fast,seed=0": {"6": {"value": 3.0}}}',
        "scores.json": f'{{"fast,seed=0": {{{score}, "examined": {examined}}}}}',
    }
    assert points(monkeypatch, files) == ({}, [])


def test_the_terminal_shows_the_last_points(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan()
    curve = ((4, 3.5, None), (8, 3.0, 0.05), (12, 2.75, None), (16, 2.5, 0.04))
    run = synthetic.run(found, "fast", 0, 2.5).model_copy(update={"validation": curve})
    Console(width=120).print(*execution_view.all_scores(found, [run]))
    said = capsys.readouterr().out
    assert "fast.s0" in said
    assert "3.0000 ± 0.0500 at step 8, 2.7500 at step 12, 2.5000 ± 0.0400 at step 16" in said
    assert "3.5" not in said
