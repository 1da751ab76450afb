"""Who has a part in a pull request."""

from datetime import UTC, datetime

import pytest

from bot.model.contributions import contributors, merged
from bot.model.thread import Commit, Contributions, Push

ADA, GRACE, HUGO = 1, 2, 3
A, B, C, D = (letter * 40 for letter in "abcd")
START = datetime(2026, 11, 28, tzinfo=UTC)


def push(after: str, before: str = "", by: int = ADA) -> Push:
    return Push(START, after, before, by)


def commit(sha: str, *parents: str, by: int = ADA) -> Commit:
    return Commit(sha, parents, frozenset({by} if by else ()), has_no_account=not by)


def test_who_pushed_under_another_persons_address_has_a_part() -> None:
    """Anybody can write Ada's address into a commit (sigstore/gitsign and many reports before)."""
    work = Contributions(ADA, (commit(A), commit(B, A)))
    assert contributors(work, [push(A)]).people == {ADA}
    assert contributors(work, [push(A), push(B, A, by=GRACE)]).people == {ADA, GRACE}


def test_a_commit_without_an_account_is_of_who_pushed_it_and_else_of_nobody_known() -> None:
    work = Contributions(ADA, (commit(A), commit(B, A, by=0), commit(C, B)))
    assert contributors(work, []).unknown_commit == B
    assert contributors(work, [push(A)]).unknown_commit == B
    # The push of B was never delivered: that of C came after it and brought C alone.
    assert contributors(work, [push(A), push(C, B)]).unknown_commit == B
    assert contributors(work, [push(A), push(B, A, by=GRACE)]) == ({ADA, GRACE}, "")
    assert contributors(work, [push(C)]).unknown_commit == ""  # all of it when it was opened
    assert contributors(work, [push(B, A, by=0)]).unknown_commit == B  # of whom is unknown


def test_who_pushed_what_is_no_longer_there_has_no_part() -> None:
    work = Contributions(ADA, (commit(A), commit(C, A)))
    assert contributors(work, [push(B, A, by=GRACE), push(C, B)]).people == {ADA}


def test_a_plain_merge_is_no_part_of_who_made_or_pushed_it() -> None:
    """palantir/policy-bot#39: a maintainer presses *Update branch*; palantir/policy-bot#12 (with
    conflicts that were resolved), zalando/zappr#310 (before a later commit),
    open-telemetry/opentelemetry-java-instrumentation#18485 (again and again)."""
    merge = Commit(B, (A, D), frozenset({GRACE}), is_plain_merge=True)
    work = Contributions(ADA, (commit(A), merge))
    assert contributors(work, [push(A), push(B, A, by=GRACE)]) == ({ADA}, "")
    changed = Contributions(ADA, (commit(A), merge._replace(is_plain_merge=False)))
    assert contributors(changed, [push(A)]).people == {ADA, GRACE}
    again = Commit(C, (B, D), frozenset({HUGO}), is_plain_merge=True)
    twice = Contributions(ADA, (commit(A), merge, again))
    assert contributors(twice, [push(A), push(B, A, by=GRACE), push(C, B, by=HUGO)]).people == {ADA}
    later = Contributions(ADA, (commit(A), merge, commit(C, B, by=HUGO)))
    assert contributors(later, [push(A), push(B, A, by=GRACE)]).people == {ADA, HUGO}


def test_a_deleted_account_is_nobody() -> None:
    assert contributors(Contributions(0, (commit(A),)), [push(A, by=0)]) == ({ADA}, "")


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "tree"),
    [
        ({"x": 1}, {"x": 2}, {"x": 1}, {"x": 2}),
        ({"x": 1}, {"x": 1}, {"x": 2}, {"x": 2}),
        ({"x": 1}, {"x": 2}, {"x": 2}, {"x": 2}),
        ({"x": 1, "y": 1}, {"x": 2, "y": 1}, {"x": 1, "y": 2}, {"x": 2, "y": 2}),
        ({"x": 1, "y": 1}, {"y": 1}, {"x": 1, "y": 2}, {"y": 2}),
        ({}, {"x": 1}, {"y": 1}, {"x": 1, "y": 1}),
        ({"x": 1}, {}, {}, {}),
        ({"x": 1}, {"x": 2}, {"x": 3}, None),
        ({"x": 1}, {}, {"x": 2}, None),
        ({}, {"x": 1}, {"x": 2}, None),
    ],
)
def test_trees_merge_where_at_most_one_side_changed_a_file(
    base: dict[str, int], ours: dict[str, int], theirs: dict[str, int], tree: dict[str, int] | None
) -> None:
    assert merged(base, ours, theirs) == tree
    assert merged(base, theirs, ours) == tree
