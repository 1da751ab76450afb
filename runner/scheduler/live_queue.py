"""The queue of a lab's executions, for the decisions of `runner.scheduler.queue_order`.

It is derived from records at each look, so a restart of the bot loses nothing. An approved
execution without an attempt waits; one with an attempt and without a result holds its devices, from
training to evaluation, also between a lost attempt and the next. It counts as one run on its
`resources`, because one job trains its arms and seeds in sequence. Its person is the approver. Its
pool is not recorded, so slices are assigned anew each time. Executions of `regatta run` do not
queue.

A budget is per calendar month (UTC): it counts what ended in the month, and what has not ended. A
training that takes longer than expected continues up to the limit of its approval
(`runner.planning.limits`), and its use counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from runner.scheduler.admission import Refused, admit, entry_of
from runner.scheduler.budget_ledger import Ledger, Life, request_of, same_month
from runner.scheduler.cluster import Described
from runner.scheduler.queue_order import Cluster, Place, Policy, forecast, schedule
from runner.scheduler.queue_state import Entry, Queue, Start
from runner.schema.record import Plan
from runner.store.store import Store

FRESH = 15  # seconds for which an answer is cached while nothing is added, starts or ends


# ── The queue ────────────────────────────────────────────────────────────────────────────────


def queue_of(lives: Iterable[Life], cluster: Cluster, policy: Policy, now: int) -> Queue:
    """The queue of these executions at `now`. An execution that no longer fits the cluster has no
    pool."""
    queue = Queue(policy.half_life)
    holding: list[tuple[int, Entry]] = []
    for life in lives:
        entry, since = entry_of(life.request, cluster), life.claimed
        if life.ended is not None:
            if since is not None:
                used = max(0, life.ended - since) * entry.devices
                queue.remember(
                    entry.account, used, life.ended, same_month(_at(life.ended), _at(now))
                )
            continue
        if since is not None:  # it may have used more than was reserved
            entry = replace(entry, reserved=max(entry.reserved, (now - since) * entry.devices))
            holding.append((since, entry))
        queue.add(entry)
    # Those with the fewest possible pools come first, so that the others take what remains.
    for since, entry in sorted(holding, key=lambda one: (len(one[1].pools), one[0], one[1].name)):
        queue.begin(_placed(entry, cluster, queue), since)
    return queue


def _placed(entry: Entry, cluster: Cluster, queue: Queue) -> Start:
    """Free slices for a running execution; if there are too few (the cluster has shrunk), all of
    them."""
    pools = {pool.name: pool for pool in cluster.pools}
    fitting, most = "", 0
    for pool in (pools[name] for name in entry.pools):
        needed, free = entry.devices // pool.size, pool.slices - queue.taken.get(pool.name, 0)
        if free >= needed:
            return Start(entry, pool.name, needed)
        if not fitting or free > most:
            fitting, most = pool.name, free
    return Start(entry, fitting, most)


# ── Records ──────────────────────────────────────────────────────────────────────────────────


class Turns:
    """Answers from a store's records whether an execution may start on a described cluster. Changes
    nothing."""

    def __init__(self, store: Store, described: Described) -> None:
        self.ledger = Ledger(store)
        self._cluster = described.cluster
        self._policy = _in_lower_case(described.policy)
        self._last: tuple[list[Life], int, dict[str, Place]] | None = None

    def waiting(self, now: datetime) -> Mapping[str, Place]:
        """The executions that may not start yet, with their places. All others may."""
        lives, at = self._lives(), _seconds(now)
        if self._last and self._last[0] == lives and 0 <= at - self._last[1] < FRESH:
            return self._last[2]
        places: dict[str, Place] = {}
        if any(life.claimed is None and life.ended is None for life in lives):
            queue = queue_of(lives, self._cluster, self._policy, at)
            starts = schedule(queue, self._cluster, self._policy, at).starts
            for start in starts:
                queue.begin(start, at)
            places = forecast(queue, self._cluster, self._policy, at)
        self._last = lives, at, places
        return places

    def refusal(self, plan: Plan, person: str, now: datetime) -> str | None:
        """Why `person` may not approve `plan` now, as a sentence; None if they may."""
        at = _seconds(now)
        lives = [*self._lives(), *self.ledger.about_to_be()]
        queue = queue_of(lives, self._cluster, self._policy, at)
        try:
            admit(
                [request_of(plan.experiment, plan, person, now)], queue, self._cluster, self._policy
            )
        except Refused as error:
            words = str(error)
            month = " A budget is for one calendar month (UTC)." if "may use" in words else ""
            return f"{words[:1].upper()}{words[1:]}.{month}"
        return None

    def _lives(self) -> list[Life]:
        return [
            life for life in self.ledger.lives() if life.claimed is not None or not life.stopped
        ]


def _in_lower_case(policy: Policy) -> Policy:
    return replace(
        policy,
        shares={person.lower(): share for person, share in policy.shares.items()},
        budgets={(person.lower(), kind): most for (person, kind), most in policy.budgets.items()},
    )


def _seconds(at: datetime) -> int:
    return int(at.timestamp())


def _at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
