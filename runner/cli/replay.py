"""`replay`: trains a random part of a finished run again, from one of its checkpoints to the next,
and records whether the result is the same. This verifies an execution at a fraction of its cost."""

import json
import random
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from runner.analysis import run_comparison
from runner.cli import options
from runner.cli.ending import DONE, FAILED, print_json, stopping
from runner.cli.options import AsJson, TheExecution, TheJobs, TheStore
from runner.history import provenance, step_runs
from runner.isolation import bubblewrap
from runner.lib.canonical_json import to_json
from runner.lib.problems import near
from runner.planning import planner
from runner.planning.own_code_folder import laid
from runner.schema import record
from runner.schema.record import Execution, Replayed, StepEnd
from runner.store import artifacts
from runner.store.scratch_paths import SCRATCH
from runner.store.store import Store


class CannotReplay(Exception):
    """Nothing is left that could be trained again; the message says what."""


def command(
    execution: TheExecution,
    store: TheStore = "store",
    jobs: TheJobs = None,
    run: Annotated[
        str | None, typer.Option(help="Which `train` step. By default a random one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a random stretch of a run again, between two checkpoints, and record the result.

    It is the same bit for bit or, on other devices or versions, within 1 % of its losses. Own code
    runs under bubblewrap; where that does not work, it is not replayed."""
    opened = options.opened(store, jobs)
    known = options.in_steps(opened, execution)
    with stopping(CannotReplay):
        told = replay(opened, known, run, random.Random(secrets.randbits(64)))
    if as_json:
        print_json(told)
    else:
        print(f"{told.run}, steps {told.first + 1} to {told.last}: {told.how} ({told.words})")
    sys.exit(DONE if told.how in run_comparison.GOOD else FAILED)


def replay(store: Store, execution: Execution, run: str | None, chance: random.Random) -> Replayed:
    """Train a stretch again and record the result. Raises CannotReplay and StoreError."""
    ends = provenance.account(store, execution).ends
    trains = [name for name, step in execution.plan.steps.items() if step.do == "train"]
    if run and run not in trains:
        raise CannotReplay(
            f"no `train` step of {execution.id} is called {run}; there are: "
            f"{', '.join(trains) or 'none'}{near(run, trains)}"
        )
    wanted = [run] if run else trains
    why_not = {name: _why_not(name, ends.get(name)) for name in wanted}
    trained = [name for name, why in why_not.items() if why is None]
    if not trained:
        why = "; ".join(filter(None, why_not.values())) or "it has no `train` step"
        raise CannotReplay(f"{execution.id} has nothing that could be trained again: {why}")
    choices = [
        (name, *stretch) for name in trained for stretch in _stretches(store, execution, name)
    ]
    if not choices:
        raise CannotReplay(
            f"no checkpoint of {execution.id} is left (`regatta store gc` removes those of what is "
            f"finished); `regatta reproduce {execution.id}` runs it again"
        )
    name, folder, first, last = chance.choice(choices)
    try:
        curve = dict(step_runs.losses_of(store, execution.plan.steps[name]))
    except step_runs.UNBELIEVED as error:
        raise CannotReplay(f"{name}, curve.jsonl: {' '.join(str(error).split())}") from error
    found = _trained(store, execution, name, folder, (first, last))
    how, words = judged(found, curve, ends[name].receipt)
    told = Replayed(at=datetime.now(UTC), run=name, first=first, last=last, how=how, words=words)
    number = len(record.names(store, f"replays/{execution.id}")) + 1
    record.write(store, f"replays/{execution.id}/{number}", told)
    return told


def _why_not(name: str, end: StepEnd | None) -> str | None:
    """Why a step cannot be trained again; None if it can."""
    if end is None:
        return f"{name} did not run"
    return f"{name} failed: {end.why}" if end.state == "failed" else None


def judged(
    found: Mapping[str, Any], curve: Mapping[int, float], receipt: Mapping[str, str]
) -> tuple[run_comparison.How, str]:
    """The comparison of a stretch, and an explanation: `found` is what `runner.worker.replay`
    printed, `curve` the recorded losses, `receipt` how they were computed."""
    if found["same"]:
        return "bit for bit", f"the same parameters, {found['now_sha256'][:16]}…"
    besides = dict.fromkeys(("isolation", "code_sha256", step_runs.READ), "")  # not the machine's
    differing = run_comparison.differing({**receipt, **besides}, {**found["receipt"], **besides})
    apart = [
        abs(float(loss) - curve[int(step)]) / curve[int(step)]
        for step, loss in found["losses"].items()
        if curve.get(int(step))
    ]
    if not differing:
        return "differs", "although devices and versions are the same"
    if apart and max(apart) <= run_comparison.TOLERANCE:
        return "within the tolerance", f"losses at most {max(apart):.2%} apart; {differing[0]}"
    return "differs", f"losses up to {max(apart, default=float('inf')):.2%} apart"


def _stretches(store: Store, execution: Execution, name: str) -> list[tuple[Path, int, int]]:
    """(folder of checkpoints, first step, last step) of each stretch of a run."""
    step = execution.plan.steps[name]
    place = store.local(f"steps/{step.store}/{step.fingerprint[:16]}")
    found: list[tuple[Path, int, int]] = []
    for folder in sorted(place.glob(f"*{SCRATCH}/checkpoints")):
        numbers = sorted(int(x.name) for x in folder.iterdir() if x.name.isdecimal())
        starts: Sequence[int] = (0, *numbers)
        found += [(folder, *pair) for pair in zip(starts, numbers, strict=False)]
    return found


def _trained(
    store: Store, execution: Execution, name: str, folder: Path, between: tuple[int, int]
) -> dict[str, Any]:
    """The output of `runner.worker.replay` for a stretch. Raises CannotReplay."""
    steps, step = execution.plan.steps, execution.plan.steps[name]
    inputs = {}
    for key, these in step.inputs.items():
        for other, fingerprint in these.items():
            try:
                made = artifacts.find(store, steps[other].store, fingerprint)
            except artifacts.BadOutput as error:
                raise CannotReplay(f"what {other} made cannot be trained on: {error}") from error
            if made is None:
                raise CannotReplay(f"what {other} made is no longer in {store.root}")
            inputs[key] = str(made.folder)
    if step.private and (words := bubblewrap.probe()):
        raise CannotReplay(
            f"{name} is own code, or reads the output of own code, and that is "
            f"replayed only in isolation: {words} Nothing was run."
        )
    limit = execution.limit_seconds or bubblewrap.USUAL.seconds
    stretch = {
        "config": step.config,
        "inputs": inputs,
        "own": list(step.own),
        "isolated": step.private,
        "limits": asdict(bubblewrap.Limits(seconds=limit)),
        "devices": asdict(execution.plan.kinds[step.resources.kind]),
        "count": step.resources.count,
        "checkpoints": str(folder),
        "first": between[0],
        "last": between[1],
    }
    own = store.fetch(planner.code_folder(execution.plan)) if step.own else Path()
    with tempfile.TemporaryDirectory() as place, laid(step.code, own, Path(place)) as code:
        said = subprocess.run(
            [sys.executable, "-m", "runner.worker.replay"],
            input=to_json(stretch | {"code": str(code) if step.own else ""}),
            capture_output=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
    if said.returncode:
        words = said.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise CannotReplay(f"{name} cannot be trained here: {words}")
    return dict(json.loads(said.stdout))
