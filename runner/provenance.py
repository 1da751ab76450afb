"""What is known of each step of a graph: whether its output is there, who makes it, and why it
would be made again; and what of two graphs differs. Read from the store; nothing is changed."""

from collections.abc import Iterable, Iterator, Mapping

from runner import graph, makers, record
from runner.record import Execution, PlannedStep, Standing, StepEnd
from runner.store import Store


def standing(
    store: Store | None, steps: Mapping[str, PlannedStep], before: Mapping[str, PlannedStep]
) -> dict[str, Standing]:
    """How each step stands, against the steps of an earlier execution of the same experiment.
    Without a store all are new."""
    return {name: _standing(store, step, before.get(name)) for name, step in steps.items()}


def _standing(store: Store | None, step: PlannedStep, before: PlannedStep | None) -> Standing:
    if store is None:
        return Standing(state="new")
    try:
        if made := makers.find(store, step.store, step.fingerprint, check=False):
            by = f" by {made.manifest.by}" if made.manifest.by else ""
            return Standing(state="cached", why=f"made {made.manifest.made_at:%Y-%m-%d %H:%M}{by}")
        start, end = makers.newest(store, step.store, step.fingerprint)
    except makers.BadOutput as error:
        return Standing(state="failed before", why=str(error))
    if start and not end:
        return Standing(state="being made", why=f"by {start.by or 'somebody'} on {start.host}")
    if end and end.how == "failed":
        return Standing(state="failed before", why=end.why)
    if before is None or before.fingerprint == step.fingerprint:
        return Standing(state="new")  # an earlier execution did not come to it
    return Standing(state="changed", why=_few(graph.changes(before, step)))


def step_ends(
    store: Store, execution: Execution, only: Iterable[str] | None = None
) -> dict[str, StepEnd]:
    """What became of each step of an execution, or of some, as far as the store knows."""
    found = {}
    for name in execution.plan.steps if only is None else only:
        step = execution.plan.steps[name]
        try:
            if made := makers.find(store, step.store, step.fingerprint, check=False):
                found[name] = _made(made.manifest, execution.id)
                continue
            start, end = makers.newest(store, step.store, step.fingerprint)
        except makers.BadOutput as error:
            found[name] = StepEnd(state="failed", why=str(error))
        else:
            if start and end and end.how == "failed" and start.by == execution.id:
                found[name] = StepEnd(state="failed", why=end.why)
    return found


def _made(manifest: makers.Manifest, execution: str) -> StepEnd:
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
    """The newest execution of the experiment in this folder that has steps."""
    found = [
        execution
        for name in record.names(store, "executions")
        if (execution := record.read(store, f"executions/{name}/execution", Execution))
        and execution.plan.steps
        and execution.plan.experiment == experiment
    ]
    return max(found, key=lambda execution: execution.at, default=None)


def differences(
    before: Mapping[str, PlannedStep], after: Mapping[str, PlannedStep]
) -> Iterator[tuple[str, str]]:
    """(step, why it is not the same), in the order of `after`."""
    for name in before:
        if name not in after:
            yield name, "is no longer there"
    for name, step in after.items():
        if name not in before:
            yield name, "is new"
        elif found := graph.changes(before[name], step):
            yield name, _few(found)


def _few(changes: list[str]) -> str:
    more = len(changes) - graph.MOST_CHANGES
    said = changes[: graph.MOST_CHANGES] + ([f"and {more} more"] if more > 0 else [])
    return "; ".join(said)
