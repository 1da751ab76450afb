"""The training loop. It takes batches, yields metrics and writes checkpoints to a folder; it has no
other effects. Every batch and key is a function of (seed, step), so a run that was killed and
resumed ends with the same parameters and moments, bit for bit, on the same devices, versions,
flags, number of threads and available cores."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from engine.config import flops, memory
from engine.config.hardware import Platform
from engine.config.schema import ModelConfig, TrainConfig
from engine.data.sampling import Batches, ahead
from engine.data.token_store import Batch, WrongTokens
from engine.model import mesh as meshes
from engine.model import processes
from engine.model.decoder import Model, Params
from engine.model.loss import LossFunction, cross_entropy
from engine.training import checkpoint, optim
from engine.training import step as training_step
from engine.training.step import Figures, Recipe, State

PACE_WINDOW = 5  # steps over which throughput is measured
MOST_SKIPPED = 10  # bad steps in a row; a run that skips bad steps then stops


class Metrics(NamedTuple):
    """The measurements of a step."""

    step: int  # finished steps, from 1
    loss: float  # nats per scored token, of the batch before the update
    # The same in bits per byte, at the text's mean bytes per token; None if they are not known.
    bpb: float | None
    grad_norm: float  # global, before clipping
    param_norm: float  # global, before the update
    learning_rate: float  # of matrices
    tokens: int  # in the whole run, earlier attempts and padding included
    skipped: bool  # whether the step was bad and changed nothing; its loss may not be finite
    saving: bool = False  # whether a checkpoint of this step comes next
    tokens_per_second: float | None = None  # over the last 5 steps, every 5 steps
    mfu: float | None = None  # model FLOPs utilisation at that pace, see `_Reporter`
    compile_seconds: float | None = None  # before the first step of this process
    max_load: float | None = None  # of any expert in any layer, 1 being even; only with experts
    dropped: float | None = None  # fraction of what tokens chose; only with experts


class Diverged(Exception):
    """Training stopped at `step`, whose loss or gradient norm was bad; the message says why."""

    def __init__(self, step: int, why: str) -> None:
        super().__init__(
            f"{why} at step {step}; lower learning_rate or max_grad_norm, or lengthen warmup"
        )
        self.step = step


class OutOfMemory(Exception):
    """The devices do not have enough memory; the message says what was asked for and what would
    fit."""


class Profile(NamedTuple):
    """Steps `first` to `last`, traced into `folder` for Perfetto or TensorBoard."""

    folder: Path
    first: int
    last: int


def train(
    decoder: Model,
    config: TrainConfig,
    sampler: Batches,
    seed: int,
    checkpoints: Path,
    resume_from: Sequence[Path] = (),
    *,
    start_from: Params | None = None,
    start_rest: dict[str, Any] | None = None,
    loss: LossFunction = cross_entropy,
    optimizer: optim.AtRate | None = None,
    rates: Callable[[int], optim.Rates] | None = None,
    devices: Sequence[jax.Device] | None = None,
    peak_flops: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    profile: Profile | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Metrics]:
    """Train `decoder` on `sampler`'s batches and yield each step's metrics.

    Continues after the newest complete checkpoint in `checkpoints` or any of `resume_from`; if that
    is the last step, yields nothing. A new run starts from parameters drawn by `seed` (0 … 2³² −
    1), or from `start_from`, the scored parameters of another run; with `start_rest`
    (`State.rest`), also from that run's moments. Writes only to `checkpoints`:
    `<checkpoints>/<step>` every `checkpoint_every` and every `evaluate_every` steps, every
    `checkpoint_seconds` of `clock`, at the end, and when `stop` returns true after a step, which
    ends the run early. Those of `evaluate_every` stay. The last
    checkpoint is complete when the iterator ends. A step's metrics are yielded before its
    checkpoint starts, so a caller that stores them at once has no gap in the curve after a resume.

    Several processes (`engine.model.processes`) call it with equal arguments and shared folders.
    Each reads its own rows and yields the same metrics; `stop` in one ends the run in all, a step
    later.

    `optimizer` and `rates` replace those that `config` declares. `peak_flops` (FLOP/s of one
    device) is for the metrics only. Raises WrongTokens, BadMesh, BadCheckpoint and OutOfMemory;
    raises Diverged after the metrics of all earlier steps.
    """
    _refuse_what_cannot_work(decoder, config, sampler)
    mesh = meshes.make(decoder.compute.mesh, devices)
    recipe = training_step.recipe(decoder, config, loss, optimizer)
    with _memory_in_words(decoder, config, mesh):
        start, folders = (start_from, start_rest), (checkpoints, *resume_from)
        state, done = _begin(recipe, config, mesh, seed, start, folders)
        began = clock()
        run_of = {
            size: training_step.compiled(recipe, mesh, size, sampler.seq_len, sampler.packed)
            for size in config.batch_sizes.sizes
        }
        compile_seconds = clock() - began
    rates_of = rates or optim.rates(config)
    report = _Reporter(decoder, config, sampler, rates_of, peak_flops, compile_seconds)
    batch_size = config.batch_sizes.at

    def read(number: int) -> Batch:
        size = batch_size(number)
        return meshes.put(mesh, sampler.rows(number, meshes.local_rows(mesh, size)), size)

    tracer = _Tracer(profile)
    keep_every = config.keep_every, config.evaluate_every
    with checkpoint.manager(checkpoints, config.keep_checkpoints, keep_every) as saver:
        if done == config.num_train_steps and _newest([checkpoints]) != [done]:
            _save(saver, done, state)  # the last step was saved elsewhere
        numbers = range(done + 1, config.num_train_steps + 1)
        unread = None  # the previous step: its figures are fetched while the next one computes
        saved_at = clock()
        agree = processes.Agreement(mesh)
        with (
            closing(ahead(read, numbers)) as batches,
            closing(tracer),
            _memory_in_words(decoder, config, mesh),
        ):
            for number, batch in zip(numbers, batches, strict=True):
                tracer.before(number)
                state, figures = run_of[batch_size(number)](state, batch, rates_of(number))
                tracer.after(number, figures)
                if unread:
                    yield report(*unread)
                unread = number, figures
                due = number % config.checkpoint_every == 0 or number == config.num_train_steps
                due = due or number in config.snapshots
                aged = not due and clock() - saved_at >= (config.checkpoint_seconds or math.inf)
                stopping, aged = agree(stop(), aged)
                if due or aged or stopping:
                    # `report` also raises before figures that are not finite would be saved.
                    yield report(*unread)._replace(saving=True)
                    unread = None
                    _save(saver, number, state)
                    saved_at = clock()
                if stopping:
                    return


def _refuse_what_cannot_work(decoder: Model, config: TrainConfig, sampler: Batches) -> None:
    model = decoder.config
    if sampler.vocab_size > model.vocab_size:
        raise WrongTokens(
            f"the tokens have ids up to {sampler.vocab_size - 1} and vocab_size is "
            f"{model.vocab_size}; make vocab_size at least {sampler.vocab_size}"
        )
    if sampler.seq_len > model.seq_len:
        raise WrongTokens(
            f"windows of {sampler.seq_len} tokens are longer than seq_len {model.seq_len}; make "
            "seq_len as long, or cut shorter windows"
        )
    theirs, ours = sampler.batch_sizes, config.batch_sizes
    if theirs != ours:
        raise WrongTokens(
            f"the sampler's batches have {theirs.sizes} rows from the steps {theirs.before} on, "
            f"and the run's {ours.sizes} from {ours.before} on; make both the same"
        )
    counted = model if isinstance(model, ModelConfig) else None
    meshes.check(counted, config, decoder.compute.mesh)


def _begin(
    recipe: Recipe,
    config: TrainConfig,
    mesh: jax.sharding.Mesh,
    seed: int,
    start: tuple[Params | None, dict[str, Any] | None],
    folders: Sequence[Path],
) -> tuple[State, int]:
    """The state to continue from and the number of its finished steps."""
    like = training_step.abstract_state(recipe, mesh)
    newest = _newest(folders)
    number = max(newest)
    if not number:
        start_from, rest = start
        if start_from is None:
            return training_step.starter(recipe, mesh)(jax.random.key(seed)), 0
        if difference := checkpoint.difference(start_from, like.params):
            raise checkpoint.BadCheckpoint(
                f"the parameters to start from are of another model: {difference}; use the "
                "configuration that came with them"
            )
        given = jax.device_put(start_from, training_step.shardings_of(like.params))
        if rest is not None:
            if difference := checkpoint.difference(rest, like.rest):
                raise checkpoint.BadCheckpoint(
                    f"the moments to start from are of another optimizer: {difference}; use the "
                    "optimizer that they came from, or start without them"
                )
            # Copies, because the first step overwrites the state that it gets.
            others = jax.device_put(rest, training_step.shardings_of(like.rest))
            return State.of(*jax.tree.map(jnp.copy, (given, others))), 0

        def begin(params: Params) -> State:
            # A copy, because the first step overwrites the state that it gets.
            return training_step.initial(recipe, jax.tree.map(jnp.copy, params))

        return jax.jit(begin, out_shardings=training_step.shardings_of(like))(given), 0
    path = folders[newest.index(number)] / str(number)
    if number > config.num_train_steps:
        raise checkpoint.BadCheckpoint(
            f"{path} is {number} steps into a run and num_train_steps is {config.num_train_steps}; "
            "use another folder or raise num_train_steps"
        )
    scored, rest = (
        checkpoint.restore(path, item, part, training_step.shardings_of(part))
        for item, part in (("params", like.scored), ("rest", like.rest))
    )
    return State.of(scored, rest), number


def _newest(folders: Sequence[Path]) -> list[int]:
    """The step of the newest complete checkpoint in each folder, or 0. A shared folder may look
    different on each host; the first process decides."""
    return processes.as_first([checkpoint.latest(folder) or 0 for folder in folders])


def _save(saver: ocp.CheckpointManager, number: int, state: State) -> None:
    checkpoint.save(saver, number, state.scored, state.rest)


@contextmanager
def _memory_in_words(
    decoder: Model, config: TrainConfig, mesh: jax.sharding.Mesh
) -> Iterator[None]:
    """Turn XLA's out-of-memory error into OutOfMemory."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        device: jax.Device = mesh.devices.flat[0]
        limit = (device.memory_stats() or {}).get("bytes_limit")
        said, platform = str(error), cast(Platform, device.platform)
        if not isinstance(decoder.config, ModelConfig):
            raise OutOfMemory(
                f"memory is out ({' '.join(said.split())[:200]}); make train_batch_size or the "
                "model smaller, or gradient_accumulation_steps larger"
            ) from error
        raise OutOfMemory(
            memory.what_fits(decoder.config, config, decoder.compute, said, limit, platform)
        ) from error


class _Reporter:
    """Makes metrics from a step's figures once they are available, and measures throughput.

    Tokens per second are over windows of steps. The clock starts at the first step, so compiling
    does not count; saving and the caller's time do, because the run takes that time, too. MFU is
    the FLOPs of the built-in model by `flops.model_flops` (attention as the full square; look-up
    and recomputation not counted) at that pace, as a fraction of all devices' peak.
    """

    def __init__(
        self,
        decoder: Model,
        config: TrainConfig,
        sampler: Batches,
        rates_of: Callable[[int], optim.Rates],
        peak_flops: float | None,
        compile_seconds: float,
    ) -> None:
        self._config, self._rates_of = config, rates_of
        self._tokens_until = lambda step: config.batch_sizes.until(step) * sampler.seq_len
        self._bytes_per_token = sampler.bytes_per_token
        self._mfu_of_pace = (
            flops.model_flops(decoder.config, 1) / (peak_flops * decoder.compute.mesh.devices)
            if peak_flops
            else None
        )
        self._compile_seconds: float | None = compile_seconds
        self._began: float | None = None
        self._steps = 0

    def __call__(self, number: int, figures: Figures) -> Metrics:
        """Raises Diverged if the step was bad and the run must stop."""
        fetched = jax.tree.map(lambda x: x.item(), jax.device_get(figures))
        loss, grad_norm, param_norm, bad_steps, max_load, dropped = fetched
        if bad_steps > (MOST_SKIPPED if self._config.on_bad_step == "skip" else 0):
            raise Diverged(number, self._complaint(loss, grad_norm, param_norm, bad_steps))
        pace, compile_seconds = self._pace(number), self._compile_seconds
        size = self._bytes_per_token(number)
        self._compile_seconds = None
        return Metrics(
            step=number,
            loss=loss,
            bpb=loss / math.log(2) / size if math.isfinite(size) else None,
            grad_norm=grad_norm,
            param_norm=param_norm,
            learning_rate=float(self._rates_of(number).matrix),
            tokens=self._tokens_until(number),
            skipped=bad_steps > 0,
            tokens_per_second=pace,
            mfu=pace * self._mfu_of_pace if pace and self._mfu_of_pace else None,
            compile_seconds=compile_seconds,
            max_load=max_load,
            dropped=dropped,
        )

    def _complaint(self, loss: float, grad_norm: float, param_norm: float, bad_steps: int) -> str:
        named = ("loss", loss), ("gradient norm", grad_norm), ("parameter norm", param_norm)
        for name, value in named:
            if not math.isfinite(value):
                why = f"the {name} was not finite ({value})"
                break
        else:
            why = (
                f"the loss ({loss:.4g}) or gradient norm ({grad_norm:.4g}) was more than "
                f"{self._config.spike_sigma} standard deviations above its mean"
            )
        return f"{why}, as in {bad_steps - 1} steps before," if bad_steps > 1 else why

    def _pace(self, number: int) -> float | None:
        now = time.monotonic()
        if self._began is None:
            self._began = now
            return None
        self._steps += 1
        if self._steps < PACE_WINDOW:
            return None
        tokens = self._tokens_until(number) - self._tokens_until(number - self._steps)
        pace = tokens / (now - self._began)
        self._began, self._steps = now, 0
        return pace


class _Tracer:
    """Traces the steps of a profile."""

    def __init__(self, profile: Profile | None) -> None:
        self._profile, self._running = profile, False

    def before(self, number: int) -> None:
        profile = self._profile
        if profile and not self._running and profile.first <= number <= profile.last:
            jax.profiler.start_trace(profile.folder)
            self._running = True

    def after(self, number: int, figures: Figures) -> None:
        if self._running and self._profile and number >= self._profile.last:
            jax.block_until_ready(figures)
            self.close()

    def close(self) -> None:
        if self._running:
            jax.profiler.stop_trace()
            self._running = False
