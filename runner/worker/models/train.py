"""The step that trains a model. Its output has the same bytes however often it was interrupted:
`params.safetensors`, `model.json` and `curve.jsonl`, the chat template of a model that has one, and
if asked for `moments.safetensors` and `snapshots/<step>/params.safetensors`. Beside the output are
checkpoints, which are not kept, and in `curve` the metrics of each step, also of throughput
(`runner.worker.metrics_chunks`)."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import safetensors.numpy

from engine.config.schema import ModelConfig
from engine.data import chat_template
from engine.training.checkpoint import latest, of_step, restore
from engine.training.digest import leaves
from engine.training.heap import keep_heap
from engine.training.step import recipe
from engine.training.train import Diverged, Metrics
from engine.training.train import train as steps_of
from runner.lib import preemption, process_tree
from runner.store import scratch_paths
from runner.store.scratch_paths import CHECKPOINTS, CURVE
from runner.worker.environment import PEAK_FLOPS
from runner.worker.metrics_chunks import MetricsChunks
from runner.worker.models import chat, initial_model
from runner.worker.models.params_file import MOMENTS, PARAMS, snapshot_of
from runner.worker.models.plugin_model import OWN, Functions
from runner.worker.models.plugins import Parts

if TYPE_CHECKING:
    from runner.store.store import Remote

OF_THE_MACHINE = ("tokens_per_second", "mfu", "compile_seconds", "seconds")  # different in each run
OF_EXPERTS = ("max_load", "dropped")  # no other model's curve has them


class Saves(NamedTuple):
    """Where a training saves, and where others have saved before."""

    mine: Path  # its checkpoints; in a bucket an `etils.epath.Path`
    earlier: Sequence[Path]
    curve: "Path | Remote"


def steps(
    parts: Parts, checkpoints: Path, earlier: Sequence[Path], stop: Callable[[], bool] | None = None
) -> Iterator[Metrics]:
    """Train, as `engine.training.train.train` does, and attribute errors to own functions."""
    try:
        yield from steps_of(
            parts.model,
            parts.recipe,
            parts.batches,
            parts.config["seed"],
            checkpoints,
            earlier,
            start_from=parts.start.params,
            start_rest=parts.start.rest,
            loss=parts.loss,
            optimizer=parts.optimizer,
            rates=parts.rates,
            peak_flops=_peak_flops(parts.model.config),
            stop=stop or (lambda: False),
        )
    except Diverged as error:
        raise parts.blame_for(error) from error


def train(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path],
    out: Path,
    functions: Functions = {},  # noqa: B006  # never changed
    *,
    output: bool = True,
    saves: "Saves | None" = None,
) -> None:
    """Train on the train split of the input `tokens`, and on those that phases name. Continues from
    an earlier maker's checkpoints, in folders beside this one. Without `output`, as a process of a
    gang (`runner.worker.multi_host_step`), it only trains up to the last checkpoint; `saves`: where
    to, if not beside `out`. After SIGTERM it saves and raises Left."""
    began = time.monotonic()
    keep_heap()
    parts = Parts(config, inputs, functions)
    last = parts.recipe.num_train_steps
    makers = [*scratch_paths.others(out), scratch_paths.of(out)]
    places = [maker / CHECKPOINTS for maker in makers]
    saves = saves or Saves(places[-1], places[:-1], makers[-1] / CURVE)
    checkpoints = [*saves.earlier, saves.mine]
    if not output or last not in map(latest, checkpoints):
        with process_tree.noting(signal.SIGTERM) as told:
            some = steps(parts, saves.mine, saves.earlier, stop=told)
            if _note(some, last, saves.curve, began) < last:
                raise preemption.Left
    if not output:
        return
    finished = of_step(last, checkpoints)
    like = jax.eval_shape(parts.model.init, jax.random.key(0))
    _write(restore(finished, "params", like), out / PARAMS)
    for step in parts.recipe.snapshots:
        snapshot = snapshot_of(out, step)
        snapshot.mkdir(parents=True)
        _write(restore(of_step(step, checkpoints), "params", like), snapshot / PARAMS)
    if parts.recipe.keep_moments:
        made = recipe(parts.model, parts.recipe, parts.loss, parts.optimizer)
        _write(restore(finished, "rest", initial_model.rest_like(made)), out / MOMENTS)
    (out / "model.json").write_text(json.dumps(config["model"], sort_keys=True) + "\n")
    if name := config["own"].get("model"):
        (out / OWN).write_text(json.dumps({"model": name}) + "\n")
    if (template := chat.learned(config, inputs)) is not None:
        (out / chat_template.FILE).write_text(template, encoding="utf-8")
    curve: dict[int, dict[str, Any]] = {}
    for maker in makers:
        curve |= _noted(maker / CURVE)
    lines = (json.dumps(curve[step], sort_keys=True) + "\n" for step in sorted(curve))
    (out / "curve.jsonl").write_text("".join(lines))


def _write(tree: Any, path: Path) -> None:
    safetensors.numpy.save_file(leaves(jax.device_get(tree)), path)


def _note(steps: Iterator[Metrics], last: int, curve: "Path | Remote", began: float) -> int:
    """Train; the first process writes the metrics of each step, with the seconds since `began`.
    Returns the number of the last step."""
    chunks, done = MetricsChunks(curve), last
    try:
        for metrics in steps:
            done = metrics.step
            print(f"step {done} of {last}: loss {metrics.loss:.4f}", flush=True)
            if jax.process_index() == 0:
                figures = metrics._asdict() | {"seconds": round(time.monotonic() - began, 3)}
                saving = figures.pop("saving")
                for name in OF_EXPERTS:
                    if figures[name] is None:
                        del figures[name]
                chunks.add(figures)
                if saving:  # so that the curve reaches the checkpoint
                    chunks.flush()
    finally:
        chunks.flush()
    return done


def _peak_flops(config: object) -> float | None:
    """FLOP/s of one device; None for an own model, whose cost is unknown."""
    said = os.environ.get(PEAK_FLOPS)
    return float(said) if said and isinstance(config, ModelConfig) else None


def _noted(folder: Path) -> dict[int, dict[str, Any]]:
    """{step: its metrics} in the chunks of a folder, without those that depend on the machine."""
    found = {}
    for chunk in sorted(folder.glob("*.jsonl")):
        for line in chunk.read_text().splitlines():
            figures = {x: of for x, of in json.loads(line).items() if x not in OF_THE_MACHINE}
            found[int(figures["step"])] = figures
    return found
