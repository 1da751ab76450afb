"""Who may do what, and which plan a `/run` approves."""

from datetime import UTC, datetime, timedelta

import pytest

from bot import policy
from bot.facts import Pull
from bot.policy import Proposed
from runner.record import Person, PlanRecord
from tests import synthetic

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
A, B = "a" * 40, "b" * 40


def at(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


def pull(head: str = A, *, open: bool = True) -> Pull:
    return Pull("Warm", Person(login="ada", id=11), head, "0" * 40, open, draft=False)


def proposed(n: int, commit: str, seconds: int, *, problems: bool = False) -> Proposed:
    record = PlanRecord(
        repository=1,
        pull=2,
        n=n,
        commit=commit,
        at=at(seconds),
        plan=None if problems else synthetic.plan(),
        problems=("it is wrong",) if problems else (),
    )
    return Proposed(record, at(seconds))


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("none", False),
        ("", False),
        ("read", False),
        ("triage", False),
        ("write", False),
        ("maintain", True),
        ("admin", True),
        ("Admin", False),
        ("maintainers", False),
        ("a custom role", False),
    ],
)
def test_only_maintain_and_admin_may_command(role: str, may: bool) -> None:
    decision = policy.may_command("sam", role, "start runs")
    assert bool(decision) is may
    assert ("sam" in decision.why and "start runs" in decision.why) is not may


@pytest.mark.parametrize(
    ("plans", "asked", "answer"),
    [
        ([(1, A, 0)], 1, 1),
        ([(1, A, 0)], 0, "There was no plan yet"),  # a tie is not before
        ([], 5, "There was no plan yet"),
        ([(1, B, 0)], 5, "The branch has moved on"),
        ([(1, B, 0), (2, A, 3)], 5, 2),
        ([(1, B, 0), (2, A, 5)], 5, "The branch has moved on"),
        ([(1, A, 0), (2, B, 3)], 5, "The branch has moved on"),
        ([(1, A, 0), (2, B, 3), (3, A, 4)], 5, 3),
        ([(1, A, 0), (2, B, 3), (3, A, 6)], 5, "The branch has moved on"),
    ],
)
def test_a_run_approves_the_newest_plan_that_was_there_before_it(
    plans: list[tuple[int, str, int]], asked: int, answer: int | str
) -> None:
    found = policy.approvable([proposed(*plan) for plan in plans], at(asked), pull())
    if isinstance(found, PlanRecord):
        assert found.n == answer
    else:
        assert isinstance(answer, str)
        assert answer in found


def test_a_plan_with_problems_cannot_be_approved() -> None:
    found = policy.approvable([proposed(1, A, 0, problems=True)], at(1), pull())
    assert found == (
        "The newest plan names problems; there is nothing that could run until they are mended."
    )


@pytest.mark.parametrize("gone", [None, pull(open=False)])
def test_nothing_is_approved_or_launched_on_a_pull_request_that_is_closed_or_gone(
    gone: Pull | None,
) -> None:
    found = policy.approvable([proposed(1, A, 0)], at(1), gone)
    assert "closed" in str(found)
    decision = policy.may_launch(A, gone, "grace", "admin")
    assert not decision
    assert "closed" in decision.why


@pytest.mark.parametrize(
    ("head", "role", "why"),
    [
        (A, "maintain", ""),
        (A, "admin", ""),
        (B, "admin", "the branch moved from"),
        (A, "write", "grace may no longer approve (role `write`)"),
        (A, "none", "grace may no longer approve (role `none`)"),
    ],
)
def test_a_launch_looks_at_head_and_role_again(head: str, role: str, why: str) -> None:
    decision = policy.may_launch(A, pull(head), "grace", role)
    assert bool(decision) is (not why)
    assert why in decision.why
