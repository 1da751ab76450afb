"""Runs an execution locally: starts it and repeats look, decide, act until there is a result, with
a Ray of its own or a given one. Unsigned and without approval; otherwise as the bot does it."""

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime

from rich.console import Console

from runner.cli import steps_view, terminal
from runner.cli.ending import stop
from runner.execution import effects, lifecycle, local_ray
from runner.execution.lifecycle import Facts
from runner.execution.local_ray import LocalRay
from runner.execution.progress import progress
from runner.execution.ray_jobs import RayAddress, RayError, RayJobs
from runner.history import provenance
from runner.lib import accelerators
from runner.planning import limits
from runner.publish import step_summary, wandb_live
from runner.schema import record
from runner.store.leases import LeaseWatch
from runner.store.store import Remote, Store

POLL = 0.5  # seconds between two looks
STOP_MAY_TAKE = 30.0  # seconds for a cancelled execution to end


def earlier(
    store: Store, planned: record.Plan
) -> Iterator[tuple[record.Execution, record.Result | None]]:
    """Local executions of this plan in this store, oldest first."""
    for counter in itertools.count(1):
        name = record.execution_id(f"{store.id}/{planned.fingerprint}/{counter}")
        execution = record.read(store, f"executions/{name}/execution", record.Execution)
        if execution is None:
            return
        yield execution, record.read(store, f"executions/{name}/result", record.Ending)


def begin(
    store: Store,
    planned: record.Plan,
    console: Console,
    source: record.Source | None = None,
    isolation: record.Isolated = "",
) -> str:
    """Start an execution of the plan, whose folder is `source`, or continue an unfinished one.
    Without `isolation`, own code counts as the caller's."""
    known = 0
    for execution, result in earlier(store, planned):
        known += 1
        cancelled = f"executions/{execution.id}/cancelled"
        if result is None and record.read(store, cancelled, record.Cancelled) is None:
            console.print(f"{execution.id}: continued (unsigned, no approval)")
            return execution.id
    name = record.execution_id(f"{store.id}/{planned.fingerprint}/{known + 1}")
    begun = record.Execution(
        id=name,
        at=datetime.now(UTC),
        plan=planned,
        origin=None,
        source=source,
        limit_seconds=limits.ceiling_seconds(planned),
        isolation=isolation,
    )
    effects.begin(store, begun)
    console.print(f"{name}: started (unsigned, no approval)")
    return name


def unusable_devices(plan: record.Plan) -> str | None:
    """Why JAX cannot use this machine's devices for a plan, and what to do; None if it can, or if
    the machine has none."""
    asked = (plan.resources, *(step.resources for step in plan.steps.values()))
    for platform in dict.fromkeys(plan.kinds[one.kind].platform for one in asked):
        if found := accelerators.unusable(platform):
            return f"{plan.experiment}, `resources`: {found.words} {found.mend}."
    return None


def missing_devices(plan: record.Plan) -> str | None:
    """What this machine lacks for a plan, as a sentence; None if nothing. A local Ray would let a
    job wait forever for missing devices."""
    gpus, cpus = local_ray.local_gpus(), local_ray.local_cpus()
    for resources in (plan.resources, *(step.resources for step in plan.steps.values())):
        kind, count = plan.kinds[resources.kind], resources.count
        lacks = f"of NVIDIA's devices this machine has {gpus}" * (kind.ray_gpus * count > gpus)
        lacks = lacks or f"this machine has {cpus} cores" * (kind.ray_cpus * count > cpus)
        lacks = lacks or "this machine is not a host of a TPU slice" * bool(kind.ray_tpu)
        if not kind.ray_tpu and (words := unusable_devices(plan)):
            return words
        if lacks:
            return (
                f"{plan.experiment}, `resources`: the experiment asks for {count} × "
                f"{kind.description}, and {lacks}; write `{{kind: cpu, count: 1}}`, or name a "
                "cluster with --ray-address and --ray-token-file."
            )
    return None


def execute(
    store: Store,
    planned: record.Plan,
    console: Console,
    ray: RayAddress | None,
    source: record.Source | None,
    isolation: record.Isolated = "",
) -> Facts:
    """Execute a plan to its end, on `ray` or on a local one that is started for it; see `begin`.
    Raises RayError and StoreError."""
    if isinstance(ray, LocalRay | None) and (words := missing_devices(planned)):
        stop(words)
    with reaching(store, ray, console) as there:
        name = begin(store, planned, console, source, isolation)
        with wandb_live.streaming(store, name), terminal.Watching(console) as watching:
            return turn(store, there, name, watching)


@contextmanager
def reaching(store: Store, ray: RayAddress | None, console: Console) -> Iterator[RayAddress]:
    """The given Ray, or a local one during the `with` body. Raises RayError; also if the given one
    does not answer."""
    with ExitStack() as stack:
        if ray:
            stack.enter_context(closing(RayJobs(ray))).check()
        else:
            with console.status("starting a local Ray"):
                local = local_ray.local_ray(store.local("ray"), _reach(store))
                ray = stack.enter_context(local)
        yield ray


def _reach(store: Store) -> dict[str, str]:
    if isinstance(store.at("work"), Remote):
        from runner.store.gcs import for_jobs  # the client library is imported only for a bucket

        return for_jobs()
    return {}


def turn(store: Store, ray: RayAddress, execution: str, watching: terminal.Watching) -> Facts:
    """Look, decide, act, until there is a result. Ctrl-C cancels; a second one exits."""
    jobs, leases = RayJobs(ray), LeaseWatch(store)
    show_at, stop_by = 0.0, float("inf")
    told: dict[str, record.StepEnd] = {}
    with _interrupts() as interrupted:
        while True:
            facts = effects.observe(store, jobs.look, leases, execution)
            if facts.result:
                return facts
            if interrupted() and not facts.cancelled:
                watching.say("cancelling; press Ctrl-C again to leave at once")
                said = record.Cancelled(at=datetime.now(UTC), by="you")
                record.write(store, f"executions/{execution}/cancelled", said)
                stop_by = time.monotonic() + STOP_MAY_TAKE
                continue
            if time.monotonic() > stop_by:
                raise RayError(f"{execution} was cancelled; its job has not ended yet.")
            if isinstance(ray, LocalRay) and not ray.alive:
                raise RayError(
                    f"The local Ray ended; {store.local('ray')}/ray.log may say why. Run the same "
                    "command again: it continues from the last checkpoints."
                )
            if action := lifecycle.decide(facts):
                effects.act(store, jobs, facts, action, datetime.now(UTC))
                ended = action if isinstance(action, lifecycle.End) else None
                if ended and ended.how != "finished" and not steps_view.says(ended.why, told):
                    watching.say(f"{ended.attempt} {ended.how}: {ended.why}")
                show_at = 0.0
                continue
            if (began := time.monotonic()) >= show_at:
                for name, end in _ended(store, facts.execution, told):
                    watching.say(
                        f"{name}: {step_summary.status(end.state)}, {step_summary.ended(end)}"
                    )
                advance = progress(store, facts, told, provenance.failed(told))
                if advance.runs:
                    watching.show(facts, advance)
                # Long curves and many steps take time: spend at most a tenth of it on the display.
                show_at = time.monotonic() + max(POLL, 10 * (time.monotonic() - began))
            time.sleep(POLL)


def _ended(
    store: Store, execution: record.Execution, told: dict[str, record.StepEnd]
) -> Iterator[tuple[str, record.StepEnd]]:
    """The steps that have ended since the last look, which are added to `told`. Looks only at steps
    whose inputs are all in `told`: no other can have ended."""
    steps = execution.plan.steps
    while due := [
        name for name, step in steps.items() if name not in told and told.keys() >= set(step.needs)
    ]:
        ends = provenance.step_ends(store, execution, due)
        told.update(ends)
        yield from ends.items()
        if not ends:
            return


@contextmanager
def _interrupts() -> Iterator[Callable[[], int]]:
    """Count Ctrl-Cs in the `with` body, so that the first one interrupts nothing."""
    count = 0

    def interrupt(*_: object) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: count
    finally:
        signal.signal(signal.SIGINT, previous)
