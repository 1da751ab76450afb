"""The step that trains a model. Its output is the same bytes however often it was interrupted:
`params.safetensors`, `model.json` and `curve.jsonl`. Checkpoints lie beside it and are not kept."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import safetensors.numpy

from engine.config.schema import TrainConfig
from engine.data.sampling import Batches
from engine.training.checkpoint import latest, restore
from engine.training.heap import keep_heap
from engine.training.train import Diverged
from engine.training.train import train as steps_of
from runner.store import scratch_paths
from runner.worker.builtin import plugins
from runner.worker.builtin.mixtures import sampler as sampler_of
from runner.worker.builtin.plugin_model import OWN, Functions


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
    curve: dict[int, float | None] = {}
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
    )
    try:
        for metrics in () if last and output else steps:
            loss = metrics.loss if math.isfinite(metrics.loss) else None
            said = f"step {metrics.step} of {recipe.num_train_steps}: loss {metrics.loss:.4f}"
            print(said, flush=True)
            if jax.process_index() == 0:
                _note(mine / "curve", metrics.step, loss)
    except Diverged as error:
        first = sampler.rows(1, range(sampler.batch_size))
        raise plugins.blame_for(error, config, parts, first) from error
    if not output:
        return
    for folder in (*earlier, mine / "checkpoints"):
        curve |= _noted(folder.parent / "curve")
    like = jax.eval_shape(decoder.init, jax.random.key(0))
    folder = last[0] if last else mine / "checkpoints"
    params = restore(folder / str(recipe.num_train_steps), "params", like)
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(params))
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}
    safetensors.numpy.save_file(named, out / "params.safetensors")
    (out / "model.json").write_text(json.dumps(config["model"], sort_keys=True) + "\n")
    if name := config["own"].get("model"):
        (out / OWN).write_text(json.dumps({"model": name}) + "\n")
    lines = (json.dumps({"step": step, "loss": curve[step]}) + "\n" for step in sorted(curve))
    (out / "curve.jsonl").write_text("".join(lines))


def _note(folder: Path, step: int, loss: float | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "losses.jsonl").open("a") as file:
        file.write(json.dumps([step, loss]) + "\n")


def _noted(folder: Path) -> dict[int, float | None]:
    path = folder / "losses.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    return dict(json.loads(line) for line in lines if line.endswith("\n"))
