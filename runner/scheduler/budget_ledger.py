"""What executions that were approved on GitHub have taken of people's budgets, or set aside: read
from records, so that nothing is lost when the bot is restarted. See `runner.planning.limits`."""

from collections.abc import Container, Iterator

from runner.planning import limits, subset
from runner.planning.limits import Spending
from runner.schema import record
from runner.schema.record import Approval, Claimed, Ending, Execution, PlanRecord
from runner.store.store import Store


class Ledger:
    """Reads a store's records. Changes nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._closed: dict[str, list[Spending]] = {}  # of executions that have ended

    def spendings(self) -> Iterator[Spending]:
        """Of every execution, what it took; while it has not ended, what its approval set aside."""
        known = record.names(self._store, "executions")
        for id in known:
            if id not in self._closed:
                found, closed = self._of(id)
                if not closed:
                    yield from found
                    continue
                self._closed[id] = found
            yield from self._closed[id]
        yield from self._about_to_be(set(known))

    def _of(self, id: str) -> tuple[list[Spending], bool]:
        """What an execution takes or took, and whether that will not change any more."""
        folder = f"executions/{id}"
        execution = record.read(self._store, f"{folder}/execution", Execution)
        if execution is None:
            return [], False
        if execution.origin is None:  # started by hand
            return [], True
        by, plan = execution.origin.approved_by.id, execution.plan
        claimed = record.read(self._store, f"{folder}/t1.claimed", Claimed)
        result = record.read(self._store, f"{folder}/result", Ending)
        if result is None:
            limit = execution.limit_seconds or limits.LEAST
            return limits.set_aside(by, plan, limit), False
        if claimed is None:
            return [], True
        if plan.steps and result.state == "done" and result.seconds is not None:
            return [
                Spending(by, used.kind, used.device_seconds / 3600, result.at)
                for used in result.used
            ], True
        # Of steps that were stopped, and of those that failed, nobody knows what they took.
        seconds = max(0.0, (result.at - claimed.at).total_seconds())
        return limits.set_aside(by, plan, seconds, result.at), True

    def _about_to_be(self, known: Container[str]) -> Iterator[Spending]:
        for approval, proposed in about_to_be(self._store, known):
            if proposed.plan:
                plan, limit = subset.remaining(proposed, approval.narrowing)
                yield from limits.set_aside(approval.by.id, plan, limit or limits.LEAST)


def about_to_be(store: Store, known: Container[str]) -> Iterator[tuple[Approval, PlanRecord]]:
    """Approvals on record whose executions are not among the `known` ones, because the bot died
    between the two; each with its plan."""
    for repository in record.names(store, "approvals"):
        for pull in record.names(store, f"approvals/{repository}"):
            place = f"{repository}/{pull}"
            for name in record.names(store, f"approvals/{place}"):
                approval = record.require(store, f"approvals/{place}/{name}", Approval)
                if approval.approved and approval.execution not in known:
                    path = f"plans/{place}/{approval.plan}"
                    yield approval, record.require(store, path, PlanRecord)
