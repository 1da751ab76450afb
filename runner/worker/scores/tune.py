"""The step that searches for the settings of an arm (`runner.spec.tuning`). Each trial is a
training like that of a `train` step, in this process, and is scored on the validation tokens at its
end. `tuned.json` has the settings, why the search stopped, and every trial in order.

A finished trial is a file in the scratch folder, so the next maker goes on with the next trial, and
a trial that was interrupted continues from its checkpoint. The output has the same bytes however
often that happened."""

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.training.train import Diverged
from runner.lib import search
from runner.lib.canonical_json import to_json
from runner.lib.own_code_errors import BadOwnCode
from runner.lib.search import At, Space
from runner.spec.tuning import TUNED, Search, with_settings
from runner.store import scratch_paths
from runner.worker.models.plugin_model import Functions
from runner.worker.models.train import train
from runner.worker.scores.evaluate import evaluate

TRIALS = "checkpoints"  # in the scratch folder: the next maker finds it
SCORES = "scores.json"
OUT = "out"


def tune(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path],
    out: Path,
    functions: Functions = {},  # noqa: B006  # never changed
) -> None:
    """Search, and write `tuned.json`."""
    space = Search.model_validate(config["search"]).space(config["train"])
    mine = scratch_paths.of(out) / TRIALS
    losses: dict[tuple[At, int], float] = {}
    trials: list[dict[str, Any]] = []
    while (now := search.state(space, losses)).next is not None:
        at, seed = now.next
        folder = mine / f"trial-{len(trials) + 1:04}"
        if not (folder / TUNED).is_file():
            _resume(out, folder)
        if not (folder / TUNED).is_file():
            bpb = _trial(config, space, at, seed, inputs, folder, functions)
            trial = {"settings": space.settings(at), "seed": seed, "bpb": bpb}
            _put(folder / TUNED, trial)
            shutil.rmtree(folder / OUT, ignore_errors=True)
            for left in folder.glob(f"*{scratch_paths.SCRATCH}"):
                shutil.rmtree(left, ignore_errors=True)
        trial = json.loads((folder / TUNED).read_bytes())
        print(f"trial {len(trials) + 1} of at most {space.trials}: {trial}", flush=True)
        trials.append(trial)
        losses[at, seed] = math.inf if trial["bpb"] is None else trial["bpb"]
    found = {
        "settings": space.settings(now.best),
        "why": now.why,
        "noise": now.noise,
        "trials": trials,
    }
    _put(out / TUNED, found)


def _trial(
    config: Mapping[str, Any],
    space: Space,
    at: At,
    seed: int,
    inputs: Mapping[str, Path],
    folder: Path,
    functions: Functions,
) -> float | None:
    """Train and score; None if it diverged."""
    whole = {key: of for key, of in config.items() if key not in ("search", "eval")}
    whole |= {"train": with_settings(config["train"], space.settings(at)), "seed": seed}
    shutil.rmtree(folder / OUT, ignore_errors=True)
    (folder / OUT).mkdir(parents=True)
    scratch_paths.of(folder / OUT).mkdir(exist_ok=True)
    try:
        train(whole, inputs, folder / OUT, functions)
    except (Diverged, BadOwnCode) as error:
        if isinstance(error, BadOwnCode) and not isinstance(error.__cause__, Diverged):
            raise
        print(error, flush=True)
        return None
    of = {"models": folder / OUT, "tokens": inputs["tokens"]}
    evaluate(config["eval"], of, folder, functions)
    bpb = float(json.loads((folder / SCORES).read_bytes())[""]["bpb"])
    return bpb if math.isfinite(bpb) else None


def _resume(out: Path, folder: Path) -> None:
    """Take over what an earlier maker has of this trial: its result, or its checkpoints."""
    for other in scratch_paths.others(out):
        there = other / TRIALS / folder.name
        if not there.is_dir():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        if (there / TUNED).is_file():
            shutil.copyfile(there / TUNED, folder / TUNED)
            return
        for n, left in enumerate(sorted(there.glob(f"*{scratch_paths.SCRATCH}"))):
            to = folder / f"{other.name}-{n}{scratch_paths.SCRATCH}"
            shutil.copytree(left, to, dirs_exist_ok=True)


def _put(path: Path, found: Mapping[str, Any]) -> None:
    """Write a file as a whole, or not at all."""
    draft = path.with_suffix(".new")
    draft.write_bytes(to_json(found) + b"\n")
    draft.replace(path)
