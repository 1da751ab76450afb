"""What steps leave is a job's word: read to its form and no further."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from runner.history import provenance, step_runs
from runner.schema import metrics, step_graph
from runner.schema.record import PlannedStep
from runner.store import artifacts
from runner.store.store import Store
from tests import synthetic

LEFT = Callable[[str], None]


class Step:
    do = "evaluate"
    own = ()
    config: dict[str, Any] = {"tokens": 64, "train": {"num_train_steps": 2}}  # noqa: RUF012
    inputs: dict[str, Any] = {"models": {"train/a": "f"}}  # noqa: RUF012


STEP = cast(PlannedStep, Step)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> LEFT:
    def leave(text: str) -> None:
        monkeypatch.setattr(step_runs, "file_of", lambda *_, **__: text.encode())

    return leave


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_curve_is_read_as_it_was_written(store: Store, left: LEFT) -> None:
    left('{"loss": 1.5, "step": 1}\n{"loss": null, "step": 2}\n')
    assert step_runs.losses_of(store, STEP) == [(1, 1.5)]


@pytest.mark.parametrize(
    "text",
    [
        '{"loss": NaN, "step": 1}',
        '{"loss": Infinity, "step": 1}',
        '{"loss": 1e999, "step": 1}',
        '{"loss": 1.0, "step": 1, "more": 2}',
        '{"loss": "1.0", "step": 1}',
        '{"loss": 1.0, "step": 0}',
        '{"loss": 1.0, "step": true}',
        "[" * 1000,
        '{"loss": 1.0, "step": 1}\n' * 3,
        '{"loss": 1.0, "step": 1' + " " * 600 + "}",
        "1",
    ],
)
def test_a_curve_that_is_none_is_not_believed(store: Store, left: LEFT, text: str) -> None:
    left(text)
    with pytest.raises(step_runs.UNBELIEVED):
        step_runs.losses_of(store, STEP)


@pytest.mark.parametrize(
    "score",
    [
        '{"bpb": NaN, "loss": 1.0, "targets": 64, "params_sha256": "%s"}' % ("a" * 64),
        '{"bpb": 1.0, "loss": 1.0, "targets": 65, "params_sha256": "%s"}' % ("a" * 64),
        '{"bpb": 1.0, "loss": 1.0, "targets": 64, "params_sha256": "a"}',
        '{"bpb": 1.0, "loss": 1.0, "targets": 64, "params_sha256": "%s", "x": 1}' % ("a" * 64),
    ],
)
def test_a_score_that_is_none_is_not_believed(store: Store, left: LEFT, score: str) -> None:
    left(f'{{"a": {score}}}')
    with pytest.raises(step_runs.UNBELIEVED):
        step_runs.scores_of(store, STEP, {})


@pytest.mark.parametrize(("maker", "targets"), [("conversations", 65), ("tokenize", 63)])
def test_only_conversations_have_fewer_tokens_to_score_than_were_planned(
    maker: str, targets: int, store: Store, left: LEFT
) -> None:
    class Scored(Step):
        inputs = Step.inputs | {"tokens": {"text": "f"}}

    step, score = cast(PlannedStep, Scored), {"bpb": 1.0, "loss": 1.0, "params_sha256": "a" * 64}
    steps = {"text": synthetic.step("conversations", 0, {}, {})}
    left(json.dumps({"a": score | {"targets": 63}}))
    assert step_runs.scores_of(store, step, steps)["train/a"].targets == 63
    left(json.dumps({"a": score | {"targets": targets}}))
    with pytest.raises(step_runs.Refused, match=f"it scored {targets} tokens instead of 64"):
        step_runs.scores_of(store, step, {"text": synthetic.step(maker, 0, {}, {})})


def measured(text: str) -> str:
    return f'{{"a": {text}}}'


def test_scores_are_read_by_metric_and_only_planned_ones(store: Store, left: LEFT) -> None:
    bpb = '"eval/bpb": {"value": 2.5, "items": 9, "standard_error": 0.1}'
    left(measured(f'{{{bpb}, "task/luck/accuracy": {{"value": 1.0}}}}'))
    score = metrics.Score(value=2.5, items=9, standard_error=0.1)
    assert step_runs.measured_of(store, "score", STEP, {}) == {"train/a": {"eval/bpb": score}}


@pytest.mark.parametrize(
    "text",
    [
        '{"eval/bpb": {"value": NaN}}',
        '{"eval/bpb": {"value": 1e41}}',
        '{"eval/bpb": {"value": 1.0, "items": -1}}',
        '{"eval/bpb": {"value": 1.0, "standard_error": -1.0}}',
        '{"eval/bpb": {"value": 1.0, "more": 1}}',
        '{"eval/bpb": 1.0}',
        '{"Eval bpb": {"value": 1.0}}',
        "[]",
    ],
)
def test_scores_that_are_none_are_not_believed(store: Store, left: LEFT, text: str) -> None:
    left(measured(text))
    with pytest.raises(step_runs.UNBELIEVED):
        step_runs.measured_of(store, "score", STEP, {})


def test_nothing_counts_of_a_model_that_was_seen_to_look_ahead(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined = '"positions": 9, "largest": 2.0, "uncounted": ""'
    score = '"bpb": 1.0, "loss": 1.0, "targets": 64, "params_sha256": "%s"' % ("a" * 64)
    files = {metrics.MEASURED: measured('{"eval/bpb": {"value": 1.0}}')}
    monkeypatch.setattr(
        step_runs, "file_of", lambda _, __, name, *___, **____: files[name].encode()
    )
    monkeypatch.setattr(step_runs, "_check_read", lambda *_: None)
    monkeypatch.setattr(step_runs, "scoring", lambda *_: STEP)
    plan = cast(Any, type("Plan", (), {"steps": {"evaluate": STEP}}))
    for void, counted in (("", ["eval/bpb"]), ("it saw the whole window", [])):
        files["scores.json"] = measured(
            f'{{{score}, "examined": {{{examined}, "void": "{void}"}}}}'
        )
        found, refused = step_runs.measured_by(store, plan, {})
        assert not refused
        assert [*found.get("train/a", {})] == counted


@pytest.mark.parametrize("do", step_graph.ASKS_MODELS)
def test_a_step_that_asked_only_the_models_there_are_has_ended(
    do: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = synthetic.plan(seeds=[0])
    asks = synthetic.step(do, 9, {"tokens": 1}, plan.steps["evaluate"].inputs)
    plan = plan.model_copy(update={"steps": plan.steps | {"asks": asks}})
    lost, execution = "train/fast,seed=0", synthetic.execution(plan)
    left = step_graph.without(asks, {lost})
    assert left
    manifest = artifacts.Manifest.model_construct(by=execution.id, made_at=None)
    made = artifacts.Made(store, manifest)
    failed = (
        artifacts.Start.model_construct(by=execution.id),
        artifacts.End.model_construct(how="failed", why="out of memory"),
    )
    monkeypatch.setattr(
        artifacts, "find", lambda _, __, of, **___: made if of == left.fingerprint else None
    )
    fails = plan.steps[lost].fingerprint
    monkeypatch.setattr(
        artifacts, "newest", lambda _, __, of: failed if of == fails else (None, None)
    )
    monkeypatch.setattr(provenance, "_made", lambda *_: synthetic.record.StepEnd(state="made"))
    assert provenance.step_ends(store, execution)["asks"].state == "made"
