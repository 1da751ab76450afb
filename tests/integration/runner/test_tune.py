"""The step `tune`: its trials, and that a killed one goes on with equal bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.config.schema import TrainConfig
from engine.data.token_store import TokenStore
from engine.training.train import Diverged
from runner.schema.record import Tuned
from runner.spec.training_steps import Tune
from runner.store import scratch_paths
from runner.worker.metrics_chunks import MetricsChunks
from runner.worker.models.tuned import with_settings
from runner.worker.scores import tune as step

MODEL = {"hidden_dim": 8, "intermediate_dim": 16, "num_layers": 1, "num_heads": 2, "seq_len": 16}
TRAIN = {"train_batch_size": 2, "num_train_steps": 6, "learning_rate": 0.001, "checkpoint_every": 2}
SEARCH = {"trials": 6, "seeds": [7, 8], "times": {"learning_rate": [1, 30, 900]}}
CONFIG = Tune.model_validate(
    {"model": MODEL, "train": TRAIN, "search": SEARCH, "eval": {"tokens": 64}}
).model_dump(mode="json")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("tokens")
    for split in ("train", "validation"):
        TokenStore.build(place / split, ["".join(f"Line {n}.\n" for n in range(200))])
    return {"tokens": place}


def made(place: Path, maker: str) -> Path:
    out = place / maker
    out.mkdir(parents=True)
    scratch_paths.of(out).mkdir()
    return out


def test_a_search_that_was_killed_goes_on_with_the_next_trial_and_has_equal_bytes(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made(tmp_path / "whole", "a")
    step.tune(CONFIG, inputs, whole)
    found = Tuned.model_validate_json((whole / "tuned.json").read_bytes())
    assert len(found.trials) == 6 or "noise" in found.why
    assert found.settings["learning_rate"] > 0.001
    assert {trial.seed for trial in found.trials} == {7, 8}

    # The first maker is killed in its third trial, after a checkpoint.
    noted, trained = MetricsChunks.add, list[int]()

    def add(chunks: MetricsChunks, figures: dict[str, Any]) -> None:
        noted(chunks, figures)
        trained.append(figures["step"])
        if len(trained) == 6 + 6 + 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(MetricsChunks, "add", add)
    first, second = (made(tmp_path / "killed", maker) for maker in "ab")
    with pytest.raises(KeyboardInterrupt):
        step.tune(CONFIG, inputs, first)
    step.tune(CONFIG, inputs, second)
    assert (second / "tuned.json").read_bytes() == (whole / "tuned.json").read_bytes()
    again = trained[6 + 6 + 5 :]
    assert again[:2] == [5, 6], "the interrupted trial continued from its checkpoint"
    assert len(again) == 2 + 6 * (len(found.trials) - 3), "finished trials were not trained again"


def test_a_run_takes_the_settings_and_refuses_others(tmp_path: Path) -> None:
    config = {"train": TrainConfig.model_validate(TRAIN).model_dump(mode="json"), "seed": 0}
    inputs = {"settings": tmp_path}
    assert with_settings(config, {}) is config
    (tmp_path / "tuned.json").write_text('{"settings": {"learning_rate": 0.03}, "why": "it ended"}')
    assert with_settings(config, inputs)["train"]["learning_rate"] == 0.03
    for settings in ({"num_train_steps": 1}, {"learning_rate": -1}, {"learning_rate": "x"}):
        (tmp_path / "tuned.json").write_text(json.dumps({"settings": settings, "why": "it ended"}))
        with pytest.raises(step.BadOwnCode):
            with_settings(config, inputs)


def test_what_diverges_is_a_trial_without_a_score(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverges(*_: Any) -> None:
        raise Diverged(1, "the loss is not finite")

    monkeypatch.setattr(step, "train", diverges)
    out = made(tmp_path, "a")
    step.tune(CONFIG, inputs, out)
    found = Tuned.model_validate_json((out / "tuned.json").read_bytes())
    assert found.settings == {"learning_rate": 0.001}
    assert all(trial.bpb is None for trial in found.trials)
