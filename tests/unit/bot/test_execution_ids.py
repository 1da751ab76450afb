"""The ids of the executions that approvals start."""

from datetime import timedelta

from runner.schema import record
from tests.unit.bot.test_decide import NOW, approval


def test_approvals_with_equal_numbers_of_two_hosts_start_executions_with_other_ids() -> None:
    first = approval(commit="a" * 40)
    others = [
        approval(commit="b" * 40),
        approval(fingerprint="f" * 64),
        approval(at=NOW + timedelta(microseconds=1)),
    ]
    assert {one.id for one in (first, *others)} == {first.id}
    assert len({one.naming_execution().execution for one in (first, *others)}) == 4
    assert first.naming_execution() == first.naming_execution().naming_execution()


def test_an_old_approval_starts_the_execution_that_it_started() -> None:
    old = approval()
    assert old.execution == record.execution_id(old.id)
    assert b"starts" not in old.canonical()
