"""Training as a story: it learns, it says what it did, it dies and goes on, bit for bit."""

import math
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine import model as decoder
from engine.checkpoint import BadCheckpoint, latest, params_sha256
from engine.config import ModelConfig, TrainConfig
from engine.data import WrongTokens
from engine.evaluate import load_params
from engine.train import Metrics, NonFiniteLoss, train


def changed(config: TrainConfig, **changes: object) -> TrainConfig:
    return TrainConfig(**{**config.model_dump(), **changes})


@pytest.fixture(scope="module")
def undisturbed(
    tiny: ModelConfig, dozen: TrainConfig, tokens: np.ndarray, tmp_path_factory: object
) -> tuple[list[Metrics], str]:
    """The metrics of a run of a dozen steps, and the digest of what it learned."""
    folder = tmp_path_factory.mktemp("undisturbed")
    metrics = list(train(tiny, dozen, tokens, 3, folder))
    return metrics, params_sha256(load_params(folder / "12", tiny))


def in_a_process(
    folder: Path, tiny: ModelConfig, dozen: TrainConfig, tokens: np.ndarray, *killed_at: str
) -> subprocess.CompletedProcess[str]:
    text = folder.with_suffix(".tokens")
    tokens.tofile(text)
    script = Path(__file__).with_name("one_run.py")
    models = tiny.model_dump_json(), dozen.model_dump_json()
    command = [sys.executable, script, folder, *models, text, *killed_at]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_loss_falls(undisturbed: tuple[list[Metrics], str]) -> None:
    metrics, _ = undisturbed
    assert metrics[0].loss == pytest.approx(math.log(256), abs=0.05)
    assert metrics[-1].loss < metrics[0].loss - 0.3


def test_every_step_says_what_it_did(undisturbed: tuple[list[Metrics], str]) -> None:
    metrics, _ = undisturbed
    assert [m.step for m in metrics] == list(range(1, 13))
    assert [m.tokens for m in metrics] == [step * 2 * 16 for step in range(1, 13)]
    assert [m.learning_rate for m in metrics[:3]] == pytest.approx([0.01, 0.01, 0.01 * 10 / 11])
    assert all(m.grad_norm > 0 for m in metrics)
    assert [m.step for m in metrics if m.tokens_per_second] == [6, 11]


def test_two_processes_learn_the_same_bits(
    tiny: ModelConfig,
    dozen: TrainConfig,
    tokens: np.ndarray,
    tmp_path: Path,
    undisturbed: tuple[list[Metrics], str],
) -> None:
    done = in_a_process(tmp_path / "run", tiny, dozen, tokens)
    assert done.returncode == 0, done.stderr
    assert params_sha256(load_params(tmp_path / "run/12", tiny)) == undisturbed[1]


def test_a_kill_while_saving_costs_only_the_steps_since_the_last_checkpoint(
    tiny: ModelConfig,
    dozen: TrainConfig,
    tokens: np.ndarray,
    tmp_path: Path,
    undisturbed: tuple[list[Metrics], str],
) -> None:
    folder = tmp_path / "run"
    done = in_a_process(folder, tiny, dozen, tokens, "6")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert any(path.name.startswith("6.") for path in folder.iterdir()), "it died too early"
    assert latest(folder) == 4

    again = list(train(tiny, dozen, tokens, 3, folder))

    assert [m.step for m in again] == list(range(5, 13))
    assert [m.loss for m in again] == [m.loss for m in undisturbed[0][4:]]
    assert params_sha256(load_params(folder / "12", tiny)) == undisturbed[1]
    assert sorted(path.name for path in folder.iterdir()) == ["10", "12"]


def test_a_run_goes_on_from_the_newest_of_all_folders(
    tiny: ModelConfig,
    dozen: TrainConfig,
    tokens: np.ndarray,
    tmp_path: Path,
    undisturbed: tuple[list[Metrics], str],
) -> None:
    for folder, stop in (("old", 3), ("newer", 7)):
        run = train(tiny, dozen, tokens, 3, tmp_path / folder)
        while next(run).step < stop:
            pass
        run.close()
    old, newer, here = (tmp_path / name for name in ("old", "newer", "here"))

    steps = [m.step for m in train(tiny, dozen, tokens, 3, here, resume_from=(newer, old))]

    assert steps == list(range(7, 13))
    assert params_sha256(load_params(here / "12", tiny)) == undisturbed[1]
    assert latest(newer) == 6, "only its own folder is written to"


def test_a_finished_run_has_nothing_to_do_but_to_keep_its_result(
    tiny: ModelConfig, dozen: TrainConfig, tokens: np.ndarray, tmp_path: Path
) -> None:
    short = changed(dozen, num_train_steps=2)
    there, here = tmp_path / "there", tmp_path / "here"
    assert len(list(train(tiny, short, tokens, 3, there))) == 2
    assert list(train(tiny, short, tokens, 3, there)) == []
    assert list(train(tiny, short, tokens, 3, here, resume_from=[there])) == []
    learned = [params_sha256(load_params(folder / "2", tiny)) for folder in (there, here)]
    assert learned[0] == learned[1]
    with pytest.raises(BadCheckpoint, match="2 steps into a run and num_train_steps is 1"):
        next(train(tiny, changed(short, num_train_steps=1), tokens, 3, there))


def test_a_checkpoint_that_cannot_be_used_is_an_error(
    tiny: ModelConfig, dozen: TrainConfig, tokens: np.ndarray, tmp_path: Path
) -> None:
    (tmp_path / "dead/4/params").mkdir(parents=True)
    with pytest.raises(BadCheckpoint, match="dead/4 cannot be read"):
        next(train(tiny, dozen, tokens, 3, tmp_path / "run", resume_from=[tmp_path / "dead"]))


def test_arms_that_differ_in_rate_and_schedule_share_one_compilation(
    tiny: ModelConfig,
    dozen: TrainConfig,
    tokens: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traces = []
    logits = decoder.logits

    def counted(*arguments: object) -> object:
        traces.append(arguments)
        return logits(*arguments)

    monkeypatch.setattr(decoder, "logits", counted)
    unseen = changed(dozen, weight_decay=0.05, num_train_steps=2)
    list(train(tiny, unseen, tokens, 0, tmp_path / "a"))
    first = len(traces)
    assert first > 0
    other = changed(unseen, learning_rate=1e-4, lr_schedule="cosine", warmup=0.5, num_train_steps=3)
    list(train(tiny, other, tokens, 1, tmp_path / "b"))
    assert len(traces) == first


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(("rate", "what"), [(1e38, "gradient norm"), (1e39, "loss")])
def test_divergence_is_reported_with_its_step_and_never_saved(
    tiny: ModelConfig,
    dozen: TrainConfig,
    tokens: np.ndarray,
    tmp_path: Path,
    rate: float,
    what: str,
) -> None:
    run = train(tiny, changed(dozen, learning_rate=rate, checkpoint_every=2), tokens, 3, tmp_path)
    assert next(run).step == 1
    with pytest.raises(
        NonFiniteLoss, match=rf"the {what} was not finite \(nan\) at step 2; "
    ) as it:
        next(run)
    assert it.value.step == 2
    assert latest(tmp_path) is None


def test_tokens_outside_of_the_vocabulary_are_refused(
    tiny: ModelConfig, dozen: TrainConfig, tokens: np.ndarray, tmp_path: Path
) -> None:
    small = ModelConfig(**{**tiny.model_dump(), "vocab_size": int(tokens.max())})
    with pytest.raises(WrongTokens, match="raise vocab_size"):
        next(train(small, dozen, tokens, 3, tmp_path))
