"""What forecasts would have said of the public groups' largest sizes."""

import pytest

from runner.analysis import public_boards


def test_the_board_has_its_96_rows_and_says_where_they_are_from() -> None:
    assert len(public_boards.rows()) == 96
    assert "Marin" in public_boards.source()
    assert {len(row) for row in public_boards.rows()} == {10}


def test_a_pooled_floor_does_better_than_a_pinned_one() -> None:
    """On model FLOPs a plain fit with c = 0.6 misses the largest sizes by 1.6 % (median)."""
    board = public_boards.tested("model_flops")
    assert len(board.groups) == 18
    assert board.median_pinned == pytest.approx(0.016, abs=0.002)
    assert board.median_pooled < 0.01
    assert 0.6 < board.floor < 0.9
    for group in board.groups:
        assert abs(group.pooled) < 0.04, group


def test_fits_do_not_use_the_largest_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    board = public_boards.tested("model_flops")
    known = public_boards.groups("model_flops")
    spoilt = {group: [*of[:-1], (of[-1][0], 2 * of[-1][1])] for group, of in known.items()}
    monkeypatch.setattr(public_boards, "groups", lambda _: spoilt)
    again = public_boards.tested.__wrapped__("model_flops")
    assert again.floor == board.floor
    for one, other in zip(board.groups, again.groups, strict=True):
        assert other.measured * (1 + other.pooled) == pytest.approx(one.measured * (1 + one.pooled))
