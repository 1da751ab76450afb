"""Executions as a queue: what waits, what holds devices, what counts for a budget. From records."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runner.scheduler.budget_ledger import OVERHEAD, Life, request_of
from runner.scheduler.cluster import parse
from runner.scheduler.live_queue import Turns, queue_of
from runner.scheduler.queue_order import Cluster, Policy, Pool
from runner.scheduler.queue_state import HOUR
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.unit.runner.test_schedule import request

NOW = synthetic.START
AT = int(NOW.timestamp())
DESK = "pools: {desk: {kind: cpu, count: 1}}\n"
PLAN = synthetic.plan()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def approve(store: Store, command: str, at: datetime = NOW, pull: int = 2) -> str:
    """Grace approves the plan; the id of the execution that is to follow."""
    approval = record.Approval(
        repository=7,
        pull=pull,
        command=command,
        by=synthetic.GRACE,
        role="maintain",
        at=at,
        approved=True,
        plan=1,
    )
    planned = record.PlanRecord(repository=7, pull=pull, n=1, commit="a" * 40, at=at, plan=PLAN)
    record.write(store, f"plans/7/{pull}/1", planned)
    record.write(store, f"approvals/7/{pull}/{command}", approval)
    return approval.execution


def execute(store: Store, id: str, at: datetime = NOW) -> str:
    execution = synthetic.execution(PLAN, id).model_copy(update={"id": id, "at": at})
    record.write(store, f"executions/{id}/execution", execution)
    return id


def claim(store: Store, id: str, at: datetime = NOW) -> None:
    claimed = record.Claimed(at=at, nonce="0" * 16, spec_sha256="0" * 64)
    record.write(store, f"executions/{id}/t1.claimed", claimed)


def end(store: Store, id: str, at: datetime) -> None:
    record.write(store, f"executions/{id}/result", record.Result(at=at, state="done"))


def turns(store: Store, cluster: str = DESK) -> Turns:
    return Turns(store, parse(cluster, "cluster.yaml"))


def waiting(store: Store, at: datetime = NOW) -> list[str]:
    """Who waits, as a bot that was just started sees it."""
    return sorted(turns(store).waiting(at))


def test_an_execution_waits_from_its_approval_to_its_claim_and_holds_until_its_result(
    store: Store,
) -> None:
    first, second = execute(store, "xa"), execute(store, "xb", NOW + timedelta(seconds=1))
    assert waiting(store) == [second]
    claim(store, first)
    assert waiting(store) == [second]
    later = NOW + timedelta(minutes=9)  # long after it was expected to end
    assert waiting(store, later) == [second]
    end(store, first, later)
    assert waiting(store, later) == []


def test_a_long_running_and_a_new_process_see_the_same_queue(
    store: Store,
) -> None:
    watcher = turns(store)
    first, second = execute(store, "xa"), execute(store, "xb", NOW + timedelta(seconds=1))
    for event, waits in [
        (lambda: claim(store, first), [second]),
        (lambda: end(store, first, NOW), []),
        (lambda: claim(store, second), []),
        (lambda: execute(store, "xc"), ["xc"]),
    ]:
        event()
        assert sorted(watcher.waiting(NOW)) == waiting(store) == waits


def test_an_execution_cancelled_before_its_start_blocks_nobody(store: Store) -> None:
    first, second = execute(store, "xa"), execute(store, "xb", NOW + timedelta(seconds=1))
    record.write(store, f"executions/{first}/cancelled", record.Cancelled(at=NOW, by="ada"))
    assert waiting(store) == []
    claim(store, second)
    assert waiting(store) == []


def test_a_run_by_hand_does_not_queue(store: Store) -> None:
    local = synthetic.execution(PLAN, "xa").model_copy(update={"id": "xa", "origin": None})
    record.write(store, "executions/xa/execution", local)
    claim(store, "xa")
    execute(store, "xb")
    assert waiting(store) == []


def test_an_execution_is_expected_to_take_its_plans_slow_time_on_its_largest_part() -> None:
    asked = request_of("x", PLAN, "Grace", NOW)
    assert (asked.person, asked.kind, asked.count) == ("grace", "cpu", 1)
    assert PLAN.cost.seconds[1] <= asked.seconds - OVERHEAD < PLAN.cost.seconds[1] + 1
    assert asked.priority == "run"
    assert request_of("x", synthetic.plan(seeds=[0]), "g", NOW).priority == "debugging"
    assert request_of("x", synthetic.plan(seeds=range(7)), "g", NOW).priority == "sweep"


# ── Budgets ──────────────────────────────────────────────────────────────────────────────────

NEEDS = request_of("x", PLAN, "grace", NOW).seconds


def refused(store: Store, seconds: float, at: datetime = NOW) -> bool:
    """Whether Grace, who may use so many device-seconds, may not approve the plan."""
    rules = f"policy: {{budgets_device_hours: {{GRACE: {{cpu: {seconds / HOUR}}}}}}}\n"
    assert not turns(store, DESK + rules).refusal(PLAN, "sam", at)
    return bool(turns(store, DESK + rules).refusal(PLAN, "grace", at))


def test_approval_sets_aside_what_is_expected_and_the_end_gives_back_what_was_not_used(
    store: Store,
) -> None:
    assert refused(store, NEEDS - 1)
    assert not refused(store, NEEDS + 1)
    id = execute(store, "xa")
    assert refused(store, 2 * NEEDS - 1)
    assert not refused(store, 2 * NEEDS + 1)
    claim(store, id)
    end(store, id, NOW + timedelta(seconds=10))
    assert not refused(store, NEEDS + 11, NOW + timedelta(seconds=20))
    assert refused(store, NEEDS + 9, NOW + timedelta(seconds=20))


def test_a_run_over_its_expected_time_still_counts(store: Store) -> None:
    claim(store, execute(store, "xa"))
    late = NOW + timedelta(seconds=3 * NEEDS)
    assert refused(store, 4 * NEEDS - 1, late)
    assert not refused(store, 4 * NEEDS + 1, late)


def test_a_budget_begins_anew_with_the_month(store: Store) -> None:
    id = execute(store, "xa")
    claim(store, id)
    end(store, id, NOW + timedelta(seconds=NEEDS))
    assert refused(store, NEEDS + 1, datetime(2026, 3, 31, 23, 59, 59, tzinfo=UTC))
    assert not refused(store, NEEDS + 1, datetime(2026, 4, 1, tzinfo=UTC))


def test_an_approval_counts_also_where_the_bot_died_before_its_execution(store: Store) -> None:
    id = approve(store, "5-0")
    assert refused(store, 2 * NEEDS - 1)
    execute(store, id)
    assert not refused(store, 2 * NEEDS + 1)  # it counts once


# ── Devices ──────────────────────────────────────────────────────────────────────────────────


def test_slices_are_dealt_out_first_to_those_that_have_no_choice() -> None:
    cluster = Cluster((Pool("large", "v5p", 2, 8), Pool("small", "v5p", 3, 4)))
    either = request("either", kind="v5p", count=8)
    wide = request("wide", kind="v5p", count=16)
    lives = [Life(either, claimed=0), Life(wide, claimed=1)]
    queue = queue_of(lives, cluster, Policy(), 2)
    held = {name: (one.pool, one.slices) for name, one in queue.running.items()}
    assert held == {"wide": ("large", 2), "either": ("small", 2)}


def test_running_executions_keep_their_devices_in_a_smaller_cluster() -> None:
    lives = [Life(request(name, count=2), claimed=0) for name in ("a", "b")]
    lives.append(Life(request("c", count=1, submitted=1)))
    queue = queue_of(lives, Cluster((Pool("nodes", "h100", 3),)), Policy(), 2)
    assert sum(one.slices for one in queue.running.values()) == 3
    assert list(queue.waiting) == ["c"]


def test_an_execution_that_no_longer_fits_is_told_so(store: Store) -> None:
    execute(store, "xa")
    (place,) = turns(store, "pools: {n: {kind: h100, count: 1}}\n").waiting(NOW).values()
    assert (place.start, place.why) == (None, "no pool has 1 device any more")
