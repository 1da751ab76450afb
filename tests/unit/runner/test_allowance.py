"""What an approved plan may take by the clock, and what that takes of a person's budget."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from runner.planning import cost as planning_cost
from runner.planning import limits
from runner.scheduler import budget_ledger
from runner.scheduler.budget_ledger import Ledger, Spending
from runner.schema import record
from runner.schema.record import (
    Approval,
    Claimed,
    Narrowing,
    Person,
    Plan,
    PlannedStep,
    PlanRecord,
    Resources,
    Result,
    Used,
)
from runner.store.store import Store
from tests import synthetic

NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
GRACE = 12


def taking(hours: float, **changes: object) -> Spending:
    made = {"person": GRACE, "kind": "cpu", "device_hours": hours, "ended": None}
    return Spending(**(made | changes))  # type: ignore[arg-type]


def test_the_limit_is_generous_and_an_hour_at_least() -> None:
    plan = synthetic.plan()
    assert limits.limit_seconds(plan, 4.0) == 3600
    slow = plan.cost.model_copy(update={"seconds": (4000.0, 10_000.0)})
    assert limits.limit_seconds(plan.model_copy(update={"cost": slow}), 4.0) == 40_000


def test_work_without_an_estimate_adds_the_policys_limit() -> None:
    plan = synthetic.plan()
    unknown = plan.cost.model_copy(update={"uncounted": 1})
    assert limits.limit_seconds(plan.model_copy(update={"cost": unknown}), 4.0) == 5 * 3600


def test_device_hours_count_every_device_that_is_held() -> None:
    plan = made_of({"a": "h100"}, {})
    eight = Resources(kind="h100", count=8)
    steps = {"a": plan.steps["a"].model_copy(update={"resources": eight})}
    assert limits.device_hours(plan.model_copy(update={"steps": steps}), 1800) == 4
    older = plan.model_copy(update={"steps": {}, "resources": eight})
    assert limits.device_hours(older, 1800) == 4, "and what an older lab ran one after another"


def made_of(kinds: dict[str, str], needs: dict[str, list[str]]) -> Plan:
    """A plan of steps, each on one device of its kind."""
    steps = {
        name: PlannedStep(
            do="own:f",
            function="own:f",
            config={},
            inputs={"of": dict.fromkeys(needs.get(name, ()), "a" * 64)},
            code={},
            resources=Resources(kind=kind),
            fingerprint="a" * 64,
            store="x.own.f",
        )
        for name, kind in kinds.items()
    }
    return synthetic.plan().model_copy(update={"steps": steps, "arms": {}})


POINTS = [f"a/{n}" for n in range(64)]
AFTER = [f"b/{n}" for n in range(64)]


@pytest.mark.parametrize(
    ("kinds", "needs", "held"),
    [
        (dict.fromkeys(POINTS, "h100"), {}, {"h100": 64}),
        (dict.fromkeys("abc", "h100"), {"b": ["a"], "c": ["b"]}, {"h100": 1}),
        (dict.fromkeys("abc", "h100"), {"c": ["a", "b"]}, {"h100": 2}),
        ({"a": "cpu", "b": "h100", "c": "h100"}, {"b": ["a"], "c": ["a"]}, {"cpu": 1, "h100": 2}),
        (
            dict.fromkeys([*POINTS, *AFTER], "h100"),
            {after: [point] for after, point in zip(AFTER, POINTS, strict=True)},
            {"h100": 64},
        ),
        (
            dict.fromkeys([*POINTS, "all", *AFTER], "h100"),
            {"all": POINTS} | {after: ["all"] for after in AFTER},
            {"h100": 64},
        ),
    ],
)
def test_steps_hold_what_may_be_made_side_by_side(
    kinds: dict[str, str], needs: dict[str, list[str]], held: dict[str, int]
) -> None:
    plan = made_of(kinds, needs)
    assert limits.at_once(plan) == held
    hours = {one.kind: one.device_hours for one in budget_ledger.set_aside(GRACE, plan, 5 * 3600)}
    assert hours == {kind: 5 * count for kind, count in held.items()}
    assert limits.device_hours(plan, 3600) == sum(held.values())


def of_cost(plan: Plan) -> Plan:
    return plan.model_copy(update={"cost": planning_cost.of(plan)})


FOUR = of_cost(synthetic.plan(arms={"fast": synthetic.planned_arm()}, seeds=range(4)))


def reserved(plan: Plan, limit: float = 3600) -> float:
    return sum(one.device_hours for one in budget_ledger.set_aside(GRACE, plan, limit))


def test_four_tiny_runs_reserve_minutes_and_not_four_device_hours() -> None:
    assert limits.at_once(FOUR) == {"cpu": 4}
    assert 0.1 < reserved(FOUR) < 0.5
    assert reserved(FOUR, 60) == pytest.approx(4 / 60), "never more than all for all of the limit"


def test_what_may_take_longer_than_expected_reserves_all_devices_for_the_limit() -> None:
    own = {name: step.model_copy(update={"own": ("m:f",)}) for name, step in FOUR.steps.items()}
    other = FOUR.steps["evaluate"].model_copy(update={"do": "benchmark"})
    uncounted = FOUR.cost.model_copy(update={"uncounted": 1})
    for changes in (
        {"steps": own},
        {"steps": {**FOUR.steps, "evaluate": other}},
        {"cost": uncounted},
        {"cost": FOUR.cost.model_copy(update={"device_seconds": {}})},
    ):
        plan = FOUR.model_copy(update=changes)
        assert reserved(plan) == 4


def test_many_steps_of_a_model_that_costs_nothing_and_much_scoring_are_reserved() -> None:
    long = of_cost(synthetic.plan(arms={"fast": synthetic.planned_arm(steps=100_000)}, seeds=[0]))
    assert reserved(long, 10**9) > 4 * 100_000 * limits.STEP / 3600
    much = of_cost(synthetic.plan(arms={"fast": synthetic.planned_arm()}, eval_tokens=10**9))
    assert reserved(much) == reserved(much, 3600) == 3.0


def test_a_budget_of_one_kind_counts_that_kind_alone() -> None:
    wanted = [taking(2), taking(3, kind="h100")]
    assert budget_ledger.over_budget(wanted, [], {"*": 5, "h100": 3, "cpu": 2}, NOW) is None
    assert "needs 5 device-hours, but" in budget_ledger.over_budget(wanted, [], {"*": 4}, NOW)
    assert "3 device-hours of `h100`" in budget_ledger.over_budget(wanted, [], {"h100": 2}, NOW)


@pytest.mark.parametrize(
    ("state", "hours"),
    [("done", {"cpu": 0.25, "h100": 7.0}), ("failed", {"h100": 32.0}), ("cancelled", {"h100": 32})],
)
def test_steps_that_ended_are_charged_what_they_used_or_where_nobody_knows_what_they_could(
    tmp_path: Path, state: Any, hours: dict[str, float]
) -> None:
    store, plan = Store(tmp_path), made_of(dict.fromkeys(POINTS, "h100"), {})
    execution = synthetic.execution(plan, "x0")
    record.write(store, "executions/x0/execution", execution)
    assert execution.origin
    who = execution.origin.approved_by.id
    assert list(Ledger(store).spendings()) == budget_ledger.set_aside(who, plan, 3600)
    claimed = Claimed(at=NOW, nonce="0" * 16, spec_sha256="0" * 64)
    record.write(store, "executions/x0/t1.claimed", claimed)
    used = (
        Used(kind="cpu", device_seconds=900, price=None),
        Used(kind="h100", device_seconds=7 * 3600, price=None),
    )
    ended = NOW + timedelta(minutes=30)
    result = Result(at=ended, state=state, seconds=1800, used=used)
    record.write(store, "executions/x0/result", result)
    found = {one.kind: one.device_hours for one in Ledger(store).spendings()}
    assert found == hours


@pytest.mark.parametrize(
    ("others", "budgets", "why"),
    [
        ([], {}, ""),
        ([], {"*": 2}, ""),
        ([], {"*": 1.9}, "needs 2 device-hours, but the budget is 1.9 per person"),
        ([taking(3)], {"*": 4}, "3 of these are used or reserved"),
        ([taking(3)], {"h100": 1}, ""),
        ([taking(3)], {"cpu": 4}, "needs 2 device-hours of `cpu`"),
        ([taking(3, kind="h100")], {"cpu": 4}, ""),
        ([taking(3, kind="h100")], {"*": 4}, "3 of these are used or reserved"),
        ([taking(3, person=13)], {"*": 4}, ""),
        ([taking(3, ended=NOW - timedelta(days=1))], {"*": 4}, "3 of these are used"),
        ([taking(3, ended=datetime(2026, 2, 28, 23, tzinfo=UTC))], {"*": 4}, ""),
        ([taking(1), taking(1)], {"*": 4, "cpu": 4}, ""),
    ],
)  # fmt: skip
def test_a_budget_counts_what_a_person_has_set_aside_or_used_this_month(
    others: list[Spending], budgets: dict[str, float], why: str
) -> None:
    found = budget_ledger.over_budget([taking(2)], others, budgets, NOW)
    assert why in (found or "")
    assert bool(found) == bool(why)


def test_the_ledger_knows_what_is_set_aside_and_what_was_used(tmp_path: Path) -> None:
    store, plan = Store(tmp_path), synthetic.plan()
    ledger = Ledger(store)
    who = Person(login="grace-renamed", id=GRACE)
    approval = Approval(
        repository=7, pull=2, command="50-0", by=who, role="maintain", at=NOW, approved=True, plan=1
    )
    proposed = PlanRecord(
        repository=7, pull=2, n=1, commit="a" * 40, at=NOW, plan=plan, limit_seconds=7200.0
    )
    record.write(store, "plans/7/2/1", proposed)
    record.write(store, "approvals/7/2/50-0", approval)
    # The bot died before it wrote the execution. Six runs may be made side by side.
    assert list(ledger.spendings()) == [taking(6 * 2)]
    other = approval.model_copy(update={"command": "51-0", "narrowing": Narrowing(seeds=(0,))})
    record.write(store, "approvals/7/2/51-0", other)
    # A part of it, two tiny runs in four steps.
    whole, part = ledger.spendings()
    assert whole == taking(6 * 2)
    assert part.device_hours == pytest.approx(0.3, abs=0.01)
    store.remove("records/approvals/7/2/51-0.json")
    made = synthetic.execution(plan, approval.id)
    assert made.origin
    execution = made.model_copy(
        update={
            "limit_seconds": 7200.0,
            "origin": made.origin.model_copy(update={"approved_by": who}),
        }
    )
    folder = f"executions/{execution.id}"
    record.write(store, f"{folder}/execution", execution)
    assert list(ledger.spendings()) == [taking(6 * 2)]
    claimed = Claimed(at=NOW, nonce="0" * 16, spec_sha256="0" * 64)
    record.write(store, f"{folder}/t1.claimed", claimed)
    assert list(ledger.spendings()) == [taking(6 * 2)]
    ended = NOW + timedelta(minutes=30)
    used = Used(kind="cpu", device_seconds=1800.0, price=None)
    result = Result(at=ended, state="done", seconds=900.0, used=(used,))
    record.write(store, f"{folder}/result", result)
    assert list(ledger.spendings()) == [taking(0.5, ended=ended)] == list(Ledger(store).spendings())


def test_an_execution_voided_before_its_start_used_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    execution = synthetic.execution(synthetic.plan(), "x0")
    record.write(store, "executions/x0/execution", execution)
    record.write(store, "executions/x0/result", Result(at=NOW, state="voided"))
    assert list(Ledger(store).spendings()) == []


def test_a_run_by_hand_counts_for_nobodys_budget(tmp_path: Path) -> None:
    store = Store(tmp_path)
    record.write(
        store, "executions/x0/execution", synthetic.execution(synthetic.plan(), "x0", pull=None)
    )
    assert list(Ledger(store).spendings()) == []
