"""The progress of a lost job: what the next one can continue from. A loss does not count if there
is more than before, so that a long run on preemptible machines still ends. The amount of work is
finite, so this also ends if somebody leaves files that only look like progress. Reads the store;
does not use the job's reports."""

import re
from collections.abc import Iterable, Mapping, Set
from pathlib import Path

from runner.schema.record import Execution, PlannedStep, StepEnd
from runner.spec.step_types import BUILT_IN, TRAINS
from runner.spec.tuning import TUNED
from runner.store import artifacts, checkpoint_sync
from runner.store.scratch_paths import DIGESTS, PARTS, SCRATCH
from runner.store.store import Store

PART = re.compile("[0-9a-f]{32}")  # a complete part; incomplete ones have other names


def of_steps(store: Store, execution: Execution, ended: Mapping[str, StepEnd]) -> dict[str, int]:
    """The progress of each step that has not `ended`, by makers of this execution."""
    found = {}
    for name, step in execution.plan.steps.items():
        if name not in ended and _leaves_something(step):
            history = artifacts.history(store, step.store, step.fingerprint)
            own = [start.folder for start, _ in history if start.by == execution.id]
            found[name] = of_makers(store, step, own)
    return {name: at for name, at in found.items() if at}


def of_makers(store: Store, step: PlannedStep, folders: Iterable[str]) -> int:
    """The newest checkpoint's step, or the number of trials or of complete parts, that makers left
    beside these `folders`. 0 for a step that is made as a whole: the next maker starts again."""
    if not _leaves_something(step):
        return 0
    places = [place for folder in folders for place in scratch_of(store, folder)]
    if step.do == "train":
        last = step.config["train"]["num_train_steps"]
        tried = (store.at(f"{place}/checkpoints") for place in places)
        return max((checkpoint_sync.saved(each, last) for each in tried), default=0)
    if step.do == "tune":
        found = (store.local(place).glob(f"checkpoints/*/{TUNED}") for place in places)
        return len({path.parent.name for these in found for path in these})
    return len({part for place in places for part in _parts(store.local(place) / PARTS)})


def _leaves_something(step: PlannedStep) -> bool:
    return step.do in TRAINS or (step.do in BUILT_IN and BUILT_IN[step.do].over is not None)


def scratch_of(store: Store, folder: str) -> list[str]:
    """The scratch folders of a maker, and of its gang's attempts."""
    around, _, maker = folder.rpartition("/")
    names = {*store.list(around), f"{maker}{SCRATCH}"}  # a bucket has no folder without files
    return [f"{around}/{x}" for x in names if x.startswith(f"{maker}.") and x.endswith(SCRATCH)]


def _parts(place: Path) -> Set[str]:
    found = place.glob(f"*/{DIGESTS}")
    return {path.parent.name for path in found if PART.fullmatch(path.parent.name)}
