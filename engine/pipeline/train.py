"""The training loop of a pipeline: what `engine.training.train.train` does, with the model in
stages. Batches, keys and the order in which gradients are added up are those of one process, and so
are checkpoints; figures agree to the rounding of sums."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from engine.config.schedules import Schedule, Times, simulate, table
from engine.config.schema import TrainConfig
from engine.data.sampling import Batches, ahead
from engine.model import mesh as meshes
from engine.model import processes
from engine.model.decoder import Decoder, Params
from engine.pipeline.pipeline import Given, Pipeline
from engine.training import checkpoint, optim
from engine.training import step as training_step
from engine.training import train as training
from engine.training.checkpoint import BadCheckpoint
from engine.training.step import State
from engine.training.train import Metrics


def train(
    decoder: Decoder,
    config: TrainConfig,
    sampler: Batches,
    seed: int,
    checkpoints: Path,
    resume_from: Sequence[Path] = (),
    *,
    stages: int,
    schedule: Schedule,
    start_from: Params | None = None,
    start_rest: dict[str, Any] | None = None,
    rates: Callable[[int], optim.Rates] | None = None,
    devices: Sequence[jax.Device] | None = None,
    peak_flops: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], object] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Metrics]:
    """Train as `engine.training.train.train` does, in stages with the mesh `decoder.compute.mesh`
    in each. Several processes call it together. `say` gets a sentence with the times that were
    measured before the first step, and the bubble to expect of them."""
    training._refuse_what_cannot_work(decoder, config, sampler)
    with _memory_in_words():
        pipeline = Pipeline(decoder, config, stages, schedule, sampler.seq_len, devices)
        start, folders = (start_from, start_rest), (checkpoints, *resume_from)
        states, done = _begin(pipeline, config, seed, start, folders)
    rates_of = rates or optim.rates(config)

    def read(number: int) -> dict[int, Given]:
        return read_batch(pipeline, config, sampler, number)

    compile_seconds = 0.0
    if done < config.num_train_steps:
        began = clock()
        with _memory_in_words():
            times = pipeline.measured(states, read(done + 1))
        compile_seconds = clock() - began
        expected = simulate(table(schedule, stages, config.gradient_accumulation_steps), times)
        say(_in_words(pipeline, times, expected.bubble))
    peak_flops = peak_flops * stages if peak_flops else None  # the mesh is that of one stage
    report = training._Reporter(decoder, config, sampler, rates_of, peak_flops, compile_seconds)
    keep_every = config.keep_every, config.evaluate_every
    with checkpoint.manager(checkpoints, config.keep_checkpoints, keep_every) as saver:

        def save(number: int) -> None:
            whole = pipeline.whole.joined(states)
            checkpoint.save(saver, number, whole.scored, whole.rest)

        if done == config.num_train_steps and training._newest([checkpoints]) != [done]:
            save(done)  # the last step was saved elsewhere
        numbers = range(done + 1, config.num_train_steps + 1)
        unread, saved_at, agree = None, clock(), processes.Agreement(pipeline.whole.mesh)
        with closing(ahead(read, numbers)) as batches, _memory_in_words():
            for number, given in zip(numbers, batches, strict=True):
                states, figures = pipeline.step(states, given, rates_of(number))
                if unread:
                    yield report(*unread)
                unread = number, figures
                due = number % config.checkpoint_every == 0 or number == config.num_train_steps
                due = due or number in config.snapshots
                aged = not due and clock() - saved_at >= (config.checkpoint_seconds or math.inf)
                stopping, aged = agree(stop(), aged)
                if due or aged or stopping:
                    yield report(*unread)._replace(saving=True)
                    unread = None
                    save(number)
                    saved_at = clock()
                if stopping:
                    return


def _begin(
    pipeline: Pipeline,
    config: TrainConfig,
    seed: int,
    start: tuple[Params | None, dict[str, Any] | None],
    folders: Sequence[Path],
) -> tuple[dict[int, State], int]:
    """The states to continue from, of the stages that are here, and the finished steps."""
    like, here = pipeline.whole.like, pipeline.here
    newest = training._newest(folders)
    if number := max(newest):
        path = folders[newest.index(number)] / str(number)
        if number > config.num_train_steps:
            raise BadCheckpoint(
                f"{path} is {number} steps into a run and num_train_steps is "
                f"{config.num_train_steps}; use another folder or raise num_train_steps"
            )
        scored, rest = (
            checkpoint.restore(path, item, part, training_step.shardings_of(part))
            for item, part in (("params", like.scored), ("rest", like.rest))
        )
        return pipeline.whole.parted(State.of(scored, rest)), number
    start_from, start_rest = start
    if start_from is None:
        return {of: stage.draw(jax.random.key(seed)) for of, stage in here.items()}, 0
    both = (("parameters", start_from, like.params), ("moments", start_rest, like.rest))
    for what, other, mine in both:
        if other is not None and (difference := checkpoint.difference(other, mine)):
            raise BadCheckpoint(
                f"the {what} to start from are of another model or optimizer: {difference}; use "
                "the configuration that came with them"
            )
    given = jax.device_put(start_from, training_step.shardings_of(like.params))
    if start_rest is None:
        parts = pipeline.whole.parted(given, "params")
        return {of: stage.begin(parts[of]) for of, stage in here.items()}, 0
    others = jax.device_put(start_rest, training_step.shardings_of(like.rest))
    # Copies, because the first step overwrites the states that it gets.
    whole = State.of(*jax.tree.map(jnp.copy, (given, others)))
    return pipeline.whole.parted(whole), 0


def read_batch(
    pipeline: Pipeline, config: TrainConfig, sampler: Batches, number: int
) -> dict[int, Given]:
    """The batch of a step on each stage that is here. Row i is in part i mod parts, as in
    `engine.training.step`."""
    parts, size = config.gradient_accumulation_steps, config.batch_sizes.at(number)
    found = {}
    for of, stage in pipeline.here.items():
        read = []
        if stage.first or stage.last or sampler.packed:
            rows = meshes.local_rows(stage.mesh, size // parts)
            for part in range(parts):
                here = sampler.rows(number, rows * parts + part)
                read.append(meshes.put(stage.mesh, here, size // parts))
        found[of] = Given(
            size // parts,
            [batch.inputs_BS for batch in read] if stage.first else (),
            [batch.targets_BS for batch in read] if stage.last else (),
            [batch.segments_BS for batch in read] or [None] * parts,
        )
    return found


def _in_words(pipeline: Pipeline, times: Times, bubble: float) -> str:
    of = "; ".join(
        f"chunk {number}: " + ", ".join(f"{kind} {1000 * x:.3g} ms" for kind, x in one.items() if x)
        for number, one in enumerate(times.of_chunk)
    )
    return (
        f"measured with one part: {of}; transport {1000 * times.transport:.3g} ms, "
        f"{1000 * times.between:.3g} ms from one action to the next. With these "
        f"times {pipeline.schedule} is expected to have a bubble of {100 * bubble:.0f} %"
    )


@contextmanager
def _memory_in_words() -> Iterator[None]:
    """Turn XLA's out-of-memory error into OutOfMemory."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise training.OutOfMemory(
            f"memory is out ({' '.join(str(error).split())[:200]}); write more "
            "gradient_accumulation_steps, remat: block, more stages or another schedule"
        ) from error
