"""The status of each step of a graph: whether its output exists, who makes it, and why it would run
again; the differences of two graphs; and all records of an execution. Reads the store and changes
nothing."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runner.analysis import run_comparison
from runner.history import step_runs
from runner.lib.untrusted_files import printable
from runner.schema import record, step_graph
from runner.schema.metrics import BPB, Measured
from runner.schema.record import (
    BadRecord,
    Evaluated,
    Execution,
    Lab,
    Plan,
    PlannedStep,
    Result,
    Run,
    Source,
    Standing,
    StepEnd,
)
from runner.schema.step_graph import a_few, differences
from runner.spec import measured
from runner.store import artifacts
from runner.store.scratch_paths import LOG, SCRATCH
from runner.store.store import Store

log = logging.getLogger("regatta.provenance")


def standing(
    store: Store | None, steps: Mapping[str, PlannedStep], before: Mapping[str, PlannedStep]
) -> dict[str, Standing]:
    """The status of each step, compared with the steps of an earlier execution of the same
    experiment. Without a store all are new."""
    return {name: _standing(store, step, before.get(name)) for name, step in steps.items()}


def standing_now(store: Store | None, plan: Plan) -> dict[str, Standing]:
    """The status of each step of a plan, compared with the newest execution of its experiment."""
    earlier = latest(store, plan.experiment) if store and plan.steps else None
    return standing(store, plan.steps, earlier.plan.steps if earlier else {})


def _standing(store: Store | None, step: PlannedStep, before: PlannedStep | None) -> Standing:
    if store is None:
        return Standing(state="new")
    try:
        if made := artifacts.find(store, step.store, step.fingerprint, check=False):
            by = f" from {made.manifest.by}" if made.manifest.by else ""
            return Standing(state="cached", why=f"{made.manifest.made_at:%Y-%m-%d %H:%M}{by}")
        start, end = artifacts.newest(store, step.store, step.fingerprint)
    except artifacts.BadOutput as error:
        return Standing(state="failed before", why=str(error))
    if start and not end:
        return Standing(state="being made", why=f"by {start.by or 'somebody'} on {start.host}")
    if end and end.how == "failed":
        return Standing(state="failed before", why=end.why)
    if before is None or before.fingerprint == step.fingerprint:
        return Standing(state="new")  # an earlier execution did not get to it
    return Standing(state="changed", why=a_few(step_graph.changes(before, step)))


def step_ends(
    store: Store, execution: Execution, only: Iterable[str] | None = None
) -> dict[str, StepEnd]:
    """How each step (or each of `only`) of an execution ended, as far as the store knows."""
    found: dict[str, StepEnd] = {}
    steps = execution.plan.steps
    asked = steps if only is None else only
    asks_models = step_graph.ASKS_MODELS
    for name in sorted(asked, key=lambda name: steps[name].do in asks_models):  # those come last
        step = steps[name]
        if step.do in asks_models:  # it may have asked only the existing models
            models = [one for one in step.inputs["models"] if one not in found]
            before = found | (step_ends(store, execution, models) if models else {})
            step = step_runs.scoring(execution.plan, name, before)
        try:
            if made := artifacts.find(store, step.store, step.fingerprint, check=False):
                found[name] = _made(made.manifest, execution.id)
                continue
            start, end = artifacts.newest(store, step.store, step.fingerprint)
        except artifacts.BadOutput as error:
            found[name] = StepEnd(state="failed", why=str(error))
        else:
            if start and end and end.how == "failed" and start.by == execution.id:
                found[name] = StepEnd(state="failed", why=end.why)
    return found


def failed(ends: Mapping[str, StepEnd]) -> set[str]:
    """The ended steps that have no output."""
    return {name for name, end in ends.items() if end.state == "failed"}


def logs(store: Store, execution: Execution) -> dict[str, str]:
    """The paths of the logs of steps that failed in this execution, on disk."""
    found = {}
    for name, step in execution.plan.steps.items():
        with suppress(artifacts.BadOutput):
            start, end = artifacts.newest(store, step.store, step.fingerprint)
            if start and end and end.how == "failed" and start.by == execution.id:
                found[name] = str(store.local(f"{start.folder}{SCRATCH}") / LOG)
    return found


def _made(manifest: artifacts.Manifest, execution: str) -> StepEnd:
    return StepEnd(
        state="made" if manifest.by == execution else "cached",
        by=manifest.by,
        host=manifest.host,
        made_at=manifest.made_at,
        seconds=manifest.seconds,
        folder=manifest.folder,
        output_sha256=manifest.output_sha256,
        receipt=manifest.receipt,
    )


def latest(store: Store, experiment: str) -> Execution | None:
    """The newest execution that has steps of the experiment in a folder of this name."""
    called = Path(experiment).resolve().name
    found = (
        execution
        for execution in executions(store)
        if execution.plan.steps and Path(execution.plan.experiment).resolve().name == called
    )
    return max(found, key=lambda execution: execution.at, default=None)


def executions(store: Store) -> Iterator[Execution]:
    """All executions, one at a time, because their plans are large."""
    for name in record.names(store, "executions"):
        if execution := record.read(store, f"executions/{name}/execution", Execution):
            yield execution


# ── An execution, whole ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Account:
    """All records of an execution, and what its steps' outputs contain."""

    execution: Execution
    result: Result | None
    ends: Mapping[str, StepEnd]  # of steps
    receipts: Mapping[str, Mapping[str, str]]  # by step; in old records by attempt
    runs: tuple[Run, ...]
    scores: Mapping[str, Mapping[str, Evaluated]]  # {evaluate step: {train step: figures}}
    measured: Mapping[str, Mapping[str, Measured]]  # {step: {the step of a model: its scores}}
    files: Mapping[str, Mapping[str, int]]  # {step: {file of its output: bytes}}, if it exists
    unread: Mapping[str, str]  # {step: why its output is damaged}


def account(store: Store, execution: Execution) -> Account:
    """Everything that is known about an execution."""
    folder, plan = f"executions/{execution.id}", execution.plan
    events = [x for x in record.names(store, folder) if x.endswith(".ended")]
    ended = {event: record.require(store, f"{folder}/{event}", record.Ended) for event in events}
    result = record.read(store, f"{folder}/result", Result)
    ends = {name: end for one in ended.values() for name, end in one.steps.items()}
    if plan.steps and not result:
        ends = step_ends(store, execution)
    order = step_graph.order({name: step.needs for name, step in plan.steps.items()})
    ends = {name: ends[name] for name in order if name in ends}
    files, scores = dict[str, dict[str, int]](), dict[str, dict[str, Evaluated]]()
    unread, found = dict[str, str](), dict[str, dict[str, Measured]]()
    for name in order:
        if name not in ends or ends[name].state == "failed":
            continue
        step = step_runs.scoring(plan, name, ends)
        try:
            if made := artifacts.find(store, step.store, step.fingerprint, check=False):
                files[name] = {x: of.bytes for x, of in made.manifest.files.items()}
            if step.do == "evaluate":
                scores[name] = step_runs.scores_of(store, step, plan.steps)
            if measured.measures(step):
                found[name] = step_runs.measured_of(store, name, step, plan.steps)
        except step_runs.UNBELIEVED as error:
            unread[name] = " ".join(str(error).split())
    return Account(
        execution=execution,
        result=result,
        ends=ends,
        receipts={name: end.receipt for name, end in ends.items() if end.receipt}
        or {event.removesuffix(".ended"): one.receipt for event, one in ended.items()},
        runs=tuple(runs_of(store, execution)),
        scores=scores,
        measured=found,
        files=files,
        unread=unread,
    )


def runs_of(store: Store, execution: Execution) -> list[Run]:
    """The recorded runs of an execution, in the plan's order. A run with an unreadable record has
    no figure. Raises StoreError."""
    found = []
    for arm, seed in execution.plan.runs():
        path = f"runs/{execution.id}.{record.run_name(arm, seed)}"
        try:
            run = record.read(store, path, Run)
        except BadRecord as error:
            log.warning("%s", printable(str(error)))
            continue
        found += [run] if run else []
    return found


# ── Two of them ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Side:
    """One side of a comparison: an execution, or a folder as it is now."""

    plan: Plan
    source: Source | None
    lab: Lab | None
    account: Account | None = None  # of an execution


@dataclass(frozen=True)
class Differences:
    """The differences between two sides. Empty fields mean no difference."""

    figures: Mapping[str, tuple[float | None, float | None]]  # scores: before, after
    steps: Mapping[str, str]  # why each differs, causes first
    besides: tuple[str, ...]  # what no fingerprint covers: checkouts, libraries, devices


def compare(before: Side, after: Side) -> Differences:
    """The differences between two executions or folders. Pure."""
    needs = {name: step.needs for name, step in after.plan.steps.items()}
    steps = {name: after.plan.steps[name] for name in step_graph.order(needs)}
    one, other = before.account, after.account
    figures = dict[str, tuple[float | None, float | None]]()
    if one and other:
        then, now = dict(_figures(one)), dict(_figures(other))
        figures = {x: (then.get(x), now.get(x)) for x in dict.fromkeys((*then, *now))}
    return Differences(
        figures=figures,
        steps=dict(differences(before.plan.steps, steps)),
        besides=(*_checkouts(before, after), *(receipts(one, other) if one and other else ())),
    )


def _figures(account: Account) -> Iterator[tuple[str, float]]:
    many = len(account.scores) > 1
    for step, scores in account.scores.items():
        for model, score in scores.items():
            yield f"{model} in {step}" if many else model, score.bpb
    for of_models in account.measured.values():
        for model, of in of_models.items():
            yield from ((f"{model}, {x}", score.value) for x, score in of.items() if x != BPB)
    if not account.execution.plan.steps:
        for run in account.runs:
            if run.evaluated:
                yield f"{run.arm}, seed {run.seed}", run.evaluated.bpb


def _checkouts(before: Side, after: Side) -> Iterator[str]:
    if before.source and after.source and before.source.tree != after.source.tree:
        one, other = (_at(side.source, side.source.tree) for side in (before, after) if side.source)
        yield f"the experiment's folder: {one} → {other}"
    if before.lab and after.lab:
        if before.lab.code_sha256 != after.lab.code_sha256:
            one, other = (_at(x, x.code_sha256) for x in (before.lab, after.lab))
            yield f"the lab's code: {one} → {other}"
        if before.lab.lock_sha256 != after.lab.lock_sha256:
            one, other = ((x.lock_sha256 or "none")[:16] for x in (before.lab, after.lab))
            yield f"the lab's requirements.lock: {one} → {other}"


def _at(of: Source | Lab, digest: str) -> str:
    commit = f" of commit {of.commit[:12]}{' with changes' if of.changed else ''}"
    return digest[:16] + (commit if of.commit else "")


def receipts(before: Account, after: Account) -> Iterator[str]:
    """The differences in hardware and libraries, and for which steps."""
    found: dict[str, list[str]] = {}
    for name, receipt in after.receipts.items():
        then = {**before.receipts.get(name, receipt), "code_sha256": ""}
        for line in run_comparison.differing(then, {**receipt, "code_sha256": ""}):
            found.setdefault(line, []).append(name)
    for line, names in found.items():
        yield f"{line} ({', '.join(names)})"
