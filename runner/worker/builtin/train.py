"""The step that trains a model. Its output is the same bytes however often it was interrupted:
`params.safetensors`, `model.json` and `curve.jsonl`. Beside it lie checkpoints, which are not kept,
and in `curve` the metrics of each step, which also tell the pace (`runner.worker.metrics_chunks`).
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import safetensors.numpy

from engine.config.schema import ModelConfig, TrainConfig
from engine.data.sampling import Batches
from engine.training.checkpoint import latest, restore
from engine.training.heap import keep_heap
from engine.training.train import Diverged
from engine.training.train import train as steps_of
from runner.store import scratch_paths
from runner.store.scratch_paths import CURVE
from runner.worker.builtin import plugins
from runner.worker.builtin.mixtures import sampler as sampler_of
from runner.worker.builtin.plugin_model import OWN, Functions
from runner.worker.environment import PEAK_FLOPS
from runner.worker.metrics_chunks import MetricsChunks

OF_THE_MACHINE = ("tokens_per_second", "mfu", "compile_seconds")  # other ones each time


def train(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path],
    out: Path,
    functions: Functions = {},  # noqa: B006  # never changed
    *,
    output: bool = True,
) -> None:
    """Train on the train split of the input `tokens`, and of what phases name. An earlier maker's
    checkpoints, in folders beside this one, are gone on from. `functions` are those of the
    experiment's own. Without `output`, as a process of a gang (`runner.worker.multi_host_step`), it
    only trains; who comes after finds the last checkpoint."""
    keep_heap()
    parts = plugins.parts(config, inputs, functions)
    decoder = parts.model
    recipe = TrainConfig.model_validate(config["train"])
    sampler: Batches = parts.batches or sampler_of(
        recipe, config["seed"], decoder.config.seq_len, inputs
    )
    mine = scratch_paths.of(out)
    earlier = [x / "checkpoints" for x in scratch_paths.others(out)]
    last = [x for x in earlier if latest(x) == recipe.num_train_steps]
    steps = steps_of(
        decoder,
        recipe,
        sampler,
        config["seed"],
        mine / "checkpoints",
        earlier,
        loss=parts.loss,
        optimizer=parts.optimizer,
        rates=parts.rates,
        peak_flops=_peak_flops(decoder.config),
    )
    chunks = MetricsChunks(mine / CURVE)
    noting = jax.process_index() == 0
    try:
        for metrics in () if last and output else steps:
            said = f"step {metrics.step} of {recipe.num_train_steps}: loss {metrics.loss:.4f}"
            print(said, flush=True)
            if noting:
                figures = metrics._asdict()
                saving = figures.pop("saving")
                chunks.add(figures)
                if saving:  # so that who goes on from the checkpoint finds the curve up to it
                    chunks.flush()
    except Diverged as error:
        first = sampler.rows(1, range(sampler.batch_size))
        raise plugins.blame_for(error, config, parts, first) from error
    finally:
        chunks.flush()
    if not output:
        return
    curve: dict[int, dict[str, Any]] = {}
    for folder in (*earlier, mine / "checkpoints"):
        curve |= _noted(folder.parent / CURVE)
    like = jax.eval_shape(decoder.init, jax.random.key(0))
    folder = last[0] if last else mine / "checkpoints"
    params = restore(folder / str(recipe.num_train_steps), "params", like)
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(params))
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}
    safetensors.numpy.save_file(named, out / "params.safetensors")
    (out / "model.json").write_text(json.dumps(config["model"], sort_keys=True) + "\n")
    if name := config["own"].get("model"):
        (out / OWN).write_text(json.dumps({"model": name}) + "\n")
    lines = (json.dumps(curve[step], sort_keys=True) + "\n" for step in sorted(curve))
    (out / "curve.jsonl").write_text("".join(lines))


def _peak_flops(config: object) -> float | None:
    """FLOP/s of one device. What a model of the experiment's own costs is not known."""
    said = os.environ.get(PEAK_FLOPS)
    return float(said) if said and isinstance(config, ModelConfig) else None


def _noted(folder: Path) -> dict[int, dict[str, Any]]:
    """{step: its figures} in the chunks of a folder, without those that tell of the machine."""
    found = {}
    for chunk in sorted(folder.glob("*.jsonl")):
        for line in chunk.read_text().splitlines():
            figures = {x: of for x, of in json.loads(line).items() if x not in OF_THE_MACHINE}
            found[int(figures["step"])] = figures
    return found
