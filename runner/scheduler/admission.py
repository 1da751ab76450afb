"""Admission: what a run takes of the cluster and of its person's budget, or why it may not run.

Device-hours are reserved here, and released by `runner.scheduler.queue_state` when the run ends.
"""

from collections.abc import Sequence
from dataclasses import asdict

from runner.scheduler.queue_order import Cluster, Policy
from runner.scheduler.queue_state import HOUR, Entry, Priority, Queue, Request, device_hours


class Refused(Exception):
    """The request cannot be approved; the message says why."""


def admit(
    requests: Sequence[Request], queue: Queue, cluster: Cluster, policy: Policy
) -> list[Entry]:
    """The entries for requests that are approved together, for `Queue.add`, with reserved
    device-hours.

    Raises Refused if one of them fits in no pool, or all together exceed a budget.
    """
    entries = [entry_of(request, cluster) for request in requests]
    for entry in entries:
        if not entry.pools:
            raise Refused(_too_large(entry, cluster))
    for account in sorted({entry.account for entry in entries}):
        limit = policy.budgets.get(account)
        needed = sum(entry.reserved for entry in entries if entry.account == account)
        committed = queue.use(account).committed
        if limit is not None and committed + needed > limit:
            person, kind = account
            raise Refused(
                f"the experiment needs {device_hours(needed)} of `{kind}`, but {person} may use "
                f"{device_hours(limit)}, and {device_hours(committed)} of these are used or "
                "reserved; ask for more, or wait until a reservation ends"
            )
    return entries


def entry_of(request: Request, cluster: Cluster) -> Entry:
    """The reservation for a request; without a pool if none has so many devices of its kind."""
    pools = cluster.pools_for(request.kind, request.count)
    devices = pools[0].held(request.count) if pools else request.count
    return Entry(
        **asdict(request),
        pools=tuple(pool.name for pool in pools),
        devices=devices,
        reserved=request.seconds * devices,
    )


def _too_large(request: Request, cluster: Cluster) -> str:
    sizes = [pool.devices for pool in cluster.pools if pool.kind == request.kind]
    there = f"the largest pool has {max(sizes)}" if sizes else "the cluster has none"
    return (
        f"the experiment needs {request.count} devices of kind `{request.kind}` in one pool; "
        f"{there}"
    )


def priority_of(runs: int, seconds: int) -> Priority:
    """The priority of an experiment by its size: number of runs and seconds per run.

    Size cannot be faked, as a name could: one or two runs of up to a quarter of an hour are
    debugging, more than twelve runs are a sweep.
    """
    if runs <= 2 and seconds <= HOUR // 4:
        return "debugging"
    return "run" if runs <= 12 else "sweep"
