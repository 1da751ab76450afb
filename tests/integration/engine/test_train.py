"""Training as a story: it learns, it says what it did, it dies and goes on, bit for bit."""

import math
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.config import flops
from engine.config.schema import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from engine.data.sampling import Sampler
from engine.data.token_store import WrongTokens
from engine.model.decoder import Decoder, Params
from engine.model.mesh import BadMesh
from engine.training import checkpoint
from engine.training.checkpoint import BadCheckpoint, latest, tree_sha256
from engine.training.train import Diverged, Metrics, Profile, train
from tests.engine.one_run import sampler_of

Run = Callable[..., Iterator[Metrics]]


def changed(config: TrainConfig, **changes: object) -> TrainConfig:
    return TrainConfig(**{**config.model_dump(exclude_unset=True), **changes})


def digests(folder: Path) -> tuple[str, str]:
    """Of the parameters and of the optimizer's state in a checkpoint."""
    reader = checkpoint.ocp.StandardCheckpointer()
    both = (
        tree_sha256(reader.restore(folder / "params")),
        tree_sha256(reader.restore(folder / "rest")),
    )
    reader.close()
    return both


@pytest.fixture(scope="session")
def run(tiny: ModelConfig, dozen: TrainConfig, tokens: np.ndarray) -> Run:
    """Trains the tiny model on its text: `run(folder, config=…, …)`."""

    def start(
        folder: Path,
        *,
        config: TrainConfig = dozen,
        decoder: Decoder = Decoder(tiny),  # noqa: B008
        tokens: np.ndarray = tokens,
        **options: Any,
    ) -> Iterator[Metrics]:
        sampler = sampler_of(tokens, config, decoder.config.seq_len)
        return train(decoder, config, sampler, 3, folder, **options)

    return start


@pytest.fixture(scope="module")
def undisturbed(
    run: Run, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Metrics], tuple[str, str]]:
    """The metrics of a run of a dozen steps, and the digests of what it ended with."""
    folder = tmp_path_factory.mktemp("undisturbed")
    metrics = list(run(folder))
    return metrics, digests(folder / "12")


@pytest.fixture(scope="module", autouse=True)
def compilations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Compiled steps, kept for other processes."""
    settings = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compilations")),
        "jax_persistent_cache_min_compile_time_secs": 0,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield Path(str(settings["jax_compilation_cache_dir"]))
    for name, value in before.items():
        jax.config.update(name, value)


def in_a_process(
    folder: Path,
    tiny: ModelConfig,
    dozen: TrainConfig,
    tokens: np.ndarray,
    *death: str,
    compilations: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Without `compilations` it compiles its step itself."""
    text = folder.with_suffix(".tokens")
    tokens.tofile(text)
    script = Path(__file__).parents[2].joinpath("engine", "one_run.py")
    models = tiny.model_dump_json(), dozen.model_dump_json()
    command = [sys.executable, script, folder, *models, text, *death]
    environment = {name: x for name, x in os.environ.items() if not name.startswith("JAX_")}
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # as this process
    if compilations:
        environment["JAX_COMPILATION_CACHE_DIR"] = str(compilations)
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def test_the_loss_falls(undisturbed: tuple[list[Metrics], tuple[str, str]]) -> None:
    metrics, _ = undisturbed
    assert metrics[0].loss == pytest.approx(math.log(256), abs=0.05)
    assert metrics[-1].loss < metrics[0].loss - 0.3


def test_every_step_says_what_it_did(undisturbed: tuple[list[Metrics], tuple[str, str]]) -> None:
    metrics, _ = undisturbed
    assert [m.step for m in metrics] == list(range(1, 13))
    assert [m.tokens for m in metrics] == [step * 2 * 16 for step in range(1, 13)]
    assert [m.learning_rate for m in metrics[:3]] == pytest.approx([0.01, 0.01, 0.01 * 10 / 11])
    assert [m.bpb for m in metrics] == pytest.approx([m.loss / math.log(2) for m in metrics])
    assert all(m.grad_norm > 0 and m.param_norm > 1 and not m.skipped for m in metrics)
    assert [m.step for m in metrics if m.tokens_per_second] == [6, 11]
    assert [m.step for m in metrics if m.compile_seconds is not None] == [1]
    assert not any(m.mfu for m in metrics), "nobody said what the device can do"


def test_a_compiled_step_is_there_for_the_next_process(
    tiny: ModelConfig,
    dozen: TrainConfig,
    tokens: np.ndarray,
    tmp_path: Path,
    compilations: Path,
    undisturbed: tuple[list[Metrics], tuple[str, str]],
) -> None:
    # JAX 0.11 may compile otherwise in this process, which has traced the same functions before.
    for name in ("first", "run"):
        before = {path.name for path in compilations.iterdir()}
        done = in_a_process(tmp_path / name, tiny, dozen, tokens, compilations=compilations)
        assert done.returncode == 0, done.stderr
    assert any("train_step" in name for name in before)
    added = {path.name for path in compilations.iterdir()} - before
    assert not any(name.endswith("-cache") and "train_step" in name for name in added)
    assert digests(tmp_path / "run/12") == undisturbed[1]


def test_utilisation_is_model_flops_at_the_measured_pace_over_all_peaks(
    run: Run, tiny: ModelConfig, tmp_path: Path
) -> None:
    peak = 1e9
    lines = [m for m in run(tmp_path, peak_flops=peak) if m.tokens_per_second]
    for m in lines:
        assert m.mfu == pytest.approx(m.tokens_per_second * flops.model_flops(tiny, 1) / peak)


def test_two_processes_learn_the_same_bits(
    tiny: ModelConfig,
    dozen: TrainConfig,
    tokens: np.ndarray,
    tmp_path: Path,
    undisturbed: tuple[list[Metrics], tuple[str, str]],
) -> None:
    done = in_a_process(tmp_path / "run", tiny, dozen, tokens)
    assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "run/12") == undisturbed[1]


def test_a_kill_while_saving_costs_only_the_steps_since_the_last_checkpoint(
    run: Run,
    tiny: ModelConfig,
    dozen: TrainConfig,
    tokens: np.ndarray,
    tmp_path: Path,
    compilations: Path,
    undisturbed: tuple[list[Metrics], tuple[str, str]],
) -> None:
    folder = tmp_path / "run"
    done = in_a_process(folder, tiny, dozen, tokens, "saving", "6", compilations=compilations)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert any(path.name.startswith("6.") for path in folder.iterdir()), "it died too early"
    assert latest(folder) == 4

    again = list(run(folder))

    assert [m.step for m in again] == list(range(5, 13))
    assert [m.loss for m in again] == [m.loss for m in undisturbed[0][4:]]
    assert digests(folder / "12") == undisturbed[1]
    assert sorted(path.name for path in folder.iterdir()) == ["10", "12"]


def test_kills_at_seeded_steps_leave_no_trace_in_parameters_and_moments(
    run: Run,
    tiny: ModelConfig,
    dozen: TrainConfig,
    tokens: np.ndarray,
    tmp_path: Path,
    compilations: Path,
    undisturbed: tuple[list[Metrics], tuple[str, str]],
) -> None:
    folder = tmp_path / "killed"
    for step in sorted(random.Random("adamw").sample(range(1, 12), 2)):
        death = "computing", str(step)
        done = in_a_process(folder, tiny, dozen, tokens, *death, compilations=compilations)
        assert done.returncode == -signal.SIGKILL, done.stderr
    list(run(folder))
    assert digests(folder / "12") == undisturbed[1]


@pytest.mark.slow
def test_a_kill_leaves_no_trace_in_a_model_of_experts_and_every_part(
    run: Run,
    tiny: ModelConfig,
    dozen: TrainConfig,
    tokens: np.ndarray,
    tmp_path: Path,
    compilations: Path,
) -> None:
    moe = {"num_experts": 4, "top_k": 2, "expert_dim": 8, "capacity_factor": 1.0}
    parts = {
        "layer_pattern": ["window", "linear"],
        "sliding_window": 5,
        "gated_norm": 4,
        "attention_gate": True,
        "exclusive_attention": True,
        "rope_fraction": 0.5,
        "short_convolution": 4,
    }
    shape = tiny.model_dump() | {"intermediate_dim": None, "moe": moe} | parts
    mixed = ModelConfig.model_validate(shape)
    metrics = list(run(tmp_path / "whole", decoder=Decoder(mixed)))
    assert all((m.max_load or 0) > 1 and (m.dropped or 0) > 0 for m in metrics)
    folder, death = tmp_path / "killed", ("computing", "7")
    done = in_a_process(folder, mixed, dozen, tokens, *death, compilations=compilations)
    assert done.returncode == -signal.SIGKILL, done.stderr
    again = list(run(folder, decoder=Decoder(mixed)))
    assert again[0].step in (5, 7)
    assert digests(folder / "12") == digests(tmp_path / "whole/12")


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "muonh", "ema_decay": 0.9, "gradient_accumulation_steps": 2},
        {"optimizer": "muon", "on_bad_step": "skip"},
        {
            "phases": [
                {"at": 5, "weights": {"first": 1, "second": 3}},
                {"at": 9, "learning_rate": 0.02, "lr_schedule": "cosine", "warmup": 1},
            ]
        },
        {"phases": [{"at": 4, "train_batch_size": 3}, {"at": 8, "train_batch_size": 6}]},
    ],
    ids=["muonh", "muon", "phases", "growing batch"],
)
def test_whatever_is_trained_goes_on_without_a_trace_where_it_was_left(
    run: Run, dozen: TrainConfig, tmp_path: Path, changes: dict[str, object]
) -> None:
    config = changed(dozen, **changes)
    list(run(tmp_path / "undisturbed", config=config))
    folder = tmp_path / "left"
    for step in sorted(random.Random(str(changes)).sample(range(1, 12), 2)):
        part = run(folder, config=config)
        while next(part).step < step:
            pass
        part.close()
    list(run(folder, config=config))
    assert digests(folder / "12") == digests(tmp_path / "undisturbed/12")


def test_a_growing_batch_counts_its_tokens(run: Run, dozen: TrainConfig, tmp_path: Path) -> None:
    grown = changed(dozen, phases=[{"at": 4, "train_batch_size": 6}])
    metrics = list(run(tmp_path / "grown", config=grown))
    assert [m.tokens for m in metrics] == [
        16 * (2 * min(step, 4) + 6 * max(step - 4, 0)) for step in range(1, 13)
    ]
    plain = list(run(tmp_path / "plain"))
    assert [m.loss for m in metrics[:4]] == [m.loss for m in plain[:4]]


def test_a_run_goes_on_from_the_newest_of_all_folders(
    run: Run, tmp_path: Path, undisturbed: tuple[list[Metrics], tuple[str, str]]
) -> None:
    for folder, stop in (("old", 3), ("newer", 7)):
        part = run(tmp_path / folder)
        while next(part).step < stop:
            pass
        part.close()
    old, newer, here = (tmp_path / name for name in ("old", "newer", "here"))

    steps = [m.step for m in run(here, resume_from=(newer, old))]

    assert steps == list(range(7, 13))
    assert digests(here / "12") == undisturbed[1]
    assert latest(newer) == 6, "only its own folder is written to"


def test_a_finished_run_has_nothing_to_do_but_to_keep_its_result(
    run: Run, dozen: TrainConfig, tmp_path: Path
) -> None:
    short = changed(dozen, num_train_steps=2)
    there, here = tmp_path / "there", tmp_path / "here"
    assert len(list(run(there, config=short))) == 2
    assert list(run(there, config=short)) == []
    assert list(run(here, config=short, resume_from=[there])) == []
    assert digests(here / "2") == digests(there / "2")
    with pytest.raises(BadCheckpoint, match="2 steps into a run and num_train_steps is 1"):
        next(run(there, config=changed(short, num_train_steps=1)))


def test_a_checkpoint_that_cannot_be_used_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "dead/4/params").mkdir(parents=True)
    with pytest.raises(BadCheckpoint, match="dead/4 cannot be read"):
        next(run(tmp_path / "run", resume_from=[tmp_path / "dead"]))


def test_training_can_start_from_given_parameters(
    run: Run, tiny: ModelConfig, fresh: Callable[[ModelConfig, int], Params], tmp_path: Path
) -> None:
    given = jax.tree.map(jnp.asarray, fresh(tiny, 5))
    list(run(tmp_path / "before", start_from=given))  # which must leave them as they are
    assert next(run(tmp_path / "given", start_from=given)).param_norm == pytest.approx(
        float(np.sqrt(sum((np.asarray(x, np.float64) ** 2).sum() for x in jax.tree.leaves(given))))
    )
    with pytest.raises(BadCheckpoint, match=r"to start from are of another model: .* missing"):
        next(run(tmp_path / "foreign", start_from={"embedding": given["embedding"]}))


def test_a_request_to_stop_saves_the_step_and_ends_the_run(
    run: Run, tmp_path: Path, undisturbed: tuple[list[Metrics], tuple[str, str]]
) -> None:
    asked = iter([False, False, True])
    assert [m.step for m in run(tmp_path, stop=lambda: next(asked))] == [1, 2, 3]
    assert latest(tmp_path) == 3
    assert next(iter(list(run(tmp_path)))).step == 4
    assert digests(tmp_path / "12") == undisturbed[1]


def test_checkpoints_are_made_by_time_as_well(run: Run, dozen: TrainConfig, tmp_path: Path) -> None:
    now = [0.0]
    config = changed(dozen, checkpoint_every=100, checkpoint_seconds=30.0, keep_checkpoints=9)
    for m in run(tmp_path, config=config, clock=lambda: now[0]):
        now[0] += 30.0 if m.step in (4, 8) else 0.1
    # The metrics of step n are read while n + 1 is computed, and time is looked at after that.
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [5, 9, 12]


def test_arms_that_differ_in_rate_and_schedule_share_one_compilation(
    run: Run,
    dozen: TrainConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traces = []
    features = Decoder.features

    def counted(*arguments: object) -> object:
        traces.append(arguments)
        return features(*arguments)

    monkeypatch.setattr(Decoder, "features", counted)
    unseen = changed(dozen, weight_decay=0.05, num_train_steps=2)
    list(run(tmp_path / "a", config=unseen))
    first = len(traces)
    assert first > 0
    other = changed(unseen, learning_rate=1e-4, lr_schedule="cosine", warmup=0.5, num_train_steps=3)
    list(run(tmp_path / "b", config=other))
    assert len(traces) == first


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(("rate", "what"), [(1e38, "gradient norm"), (1e39, "loss")])
def test_divergence_is_reported_with_its_step_and_never_saved(
    run: Run, dozen: TrainConfig, tmp_path: Path, rate: float, what: str
) -> None:
    metrics = run(tmp_path, config=changed(dozen, learning_rate=rate, checkpoint_every=2))
    assert next(metrics).step == 1
    with pytest.raises(Diverged, match=rf"the {what} was not finite \(nan\) at step 2; ") as it:
        next(metrics)
    assert it.value.step == 2
    assert latest(tmp_path) is None


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_run_that_skips_bad_steps_says_so_and_stops_after_ten_in_a_row(
    run: Run,
    tiny: ModelConfig,
    dozen: TrainConfig,
    fresh: Callable[[ModelConfig, int], Params],
    tmp_path: Path,
) -> None:
    config = changed(dozen, on_bad_step="skip", checkpoint_every=6)
    spoilt = jax.tree.map(lambda x: x * np.nan, fresh(tiny, 0))
    metrics = run(tmp_path, config=config, start_from=spoilt)
    assert [next(metrics).skipped for _ in range(7)] == [True] * 7
    metrics.close()
    metrics = run(tmp_path, config=config)  # the steps before a resume count
    assert [next(metrics).skipped for _ in range(4)] == [True] * 4
    with pytest.raises(Diverged, match=r"not finite \(nan\), as in 10 steps before, at step 11"):
        next(metrics)


def test_steps_can_be_traced_for_a_profiler(run: Run, tmp_path: Path) -> None:
    list(run(tmp_path / "run", profile=Profile(tmp_path / "trace", 3, 4)))
    assert list((tmp_path / "trace").rglob("*.xplane.pb"))


def test_tokens_outside_of_the_vocabulary_are_refused_before_anything_is_compiled(
    run: Run,
    tiny: ModelConfig,
    tokens: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jax.stages.Lowered, "compile", None)
    small = ModelConfig(**{**tiny.model_dump(), "vocab_size": int(tokens.max())})
    with pytest.raises(WrongTokens, match="make vocab_size at least 256"):
        next(run(tmp_path, decoder=Decoder(small)))


def test_mismatched_arguments_are_refused_before_compiling(
    run: Run,
    tiny: ModelConfig,
    dozen: TrainConfig,
    tokens: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jax.stages.Lowered, "compile", None)
    long, wide = Sampler(tokens, 0, 2, 17), Sampler(tokens, 0, 3, 16)
    with pytest.raises(WrongTokens, match="17 tokens are longer than seq_len 16"):
        next(train(Decoder(tiny), dozen, long, 0, tmp_path))
    with pytest.raises(WrongTokens, match=r"have \(3,\) rows .* the run's \(2,\) from"):
        next(train(Decoder(tiny), dozen, wide, 0, tmp_path))
    over_two = ComputeConfig(mesh=MeshConfig(fsdp=2))
    with pytest.raises(BadMesh, match="fsdp"):
        next(run(tmp_path, decoder=Decoder(tiny, over_two)))


def test_running_out_of_memory_says_what_was_asked_for_and_what_would_fit(tmp_path: Path) -> None:
    """A real lack of memory: the process may not have more than 6 GiB."""
    script = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
import numpy as np
from pathlib import Path
from engine.config.schema import ModelConfig, TrainConfig
from engine.model.decoder import Decoder
from engine.data.sampling import Sampler
from engine.training.train import OutOfMemory, train
model = ModelConfig(hidden_dim=64, intermediate_dim=64, num_layers=1, num_heads=1, seq_len=64)
config = TrainConfig(train_batch_size=2**17, num_train_steps=1, learning_rate=0.1)
sampler = Sampler(np.zeros(10_000, np.uint8), 0, 2**17, 64)
try:
    next(train(Decoder(model), config, sampler, 0, Path(sys.argv[1])))
except OutOfMemory as error:
    print(error)
"""
    command = [sys.executable, "-c", script, tmp_path / "run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "train_batch_size" in done.stdout, done.stderr
