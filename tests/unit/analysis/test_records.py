"""Records and ranks are no luck: twenty equal entries, whoever enters them, and however often."""

import math

import pytest

from runner.analysis import speedrun_ranking
from runner.analysis.speedrun_ranking import CHALLENGES, SURE, Row
from tests.bench.records import TRACK, by_luck, entry, power, tracks

FIRST = entry(0, (2.0, 2.01, 1.99))


@pytest.mark.parametrize(("design", "seeds"), [("equal", 3), ("equal", 5), ("unequal", 3)])
def test_twenty_equal_entries_give_a_false_record_or_rank_in_at_most_one_track_of_twenty(
    design: str, seeds: int
) -> None:
    found = [by_luck(ranked) for ranked in tracks(design, seeds, 120)]
    records, ranks = zip(*found, strict=True)
    assert sum(records) <= 0.05 * len(found)
    assert sum(ranks) <= 0.05 * len(found)


def test_what_all_challengers_of_a_record_need_sums_to_less_than_five_per_cent() -> None:
    needed = [speedrun_ranking.needed(n) for n in range(100_000)]
    assert needed == sorted(needed, reverse=True)
    assert sum(needed) <= CHALLENGES * SURE
    assert sum(SURE / (n + 1) for n in range(1, 20)) > 2 * SURE  # the rule that does not hold


def test_an_entry_that_is_better_is_found() -> None:
    assert power(5, 2, 2.0, 100) >= 0.6
    assert power(3, 2, 5.0, 100) >= 0.8


def record_after(rows: list[Row], figures: tuple[float, ...]) -> bool:
    last = entry(500, figures, "Grace")
    ranked = speedrun_ranking.rank(TRACK, [*rows, last])
    return next(one.record for one in ranked if one.row.id == last.id)


def test_bad_entries_and_copies_cost_others_nothing() -> None:
    """Otherwise fifty of them would keep a record from being broken."""
    better = (1.97, 1.965, 1.975)
    alone = record_after([FIRST], better)
    bad = [entry(n, (2.1 + n / 100, 2.11, 2.12), "Mallory") for n in range(1, 51)]
    copies = [entry(n, FIRST.figures, "Mallory") for n in range(1, 51)]
    assert alone
    assert record_after([FIRST, *bad], better)
    assert record_after([FIRST, *copies], better)


def test_who_enters_the_same_until_it_is_lucky_needs_more_each_time() -> None:
    """Each of these has p = 0.03 against the record, and none is one."""
    lucky = [
        entry(n, (1.979 + n / 1e5, 1.989 + n / 1e5, 1.969 + n / 1e5), "Mallory")
        for n in range(1, 21)
    ]
    ranked = speedrun_ranking.rank(TRACK, [FIRST, *lucky])
    later = sorted((one for one in ranked if one.against), key=lambda one: one.row.at)
    assert all(0.02 < (one.p_value or 0) < SURE for one in later)
    assert not any(one.record for one in later)
    needs = [one.needs or 0.0 for one in later]
    assert needs == [CHALLENGES * SURE / (n * (n + 1)) for n in range(1, 21)]
    assert {one.rank for one in ranked} == {1}


@pytest.mark.parametrize("before", [0, 1, 7])
def test_what_would_beat_the_record_is_told_by_the_rule_that_judges(before: int) -> None:
    rows = [FIRST, *(entry(n, (2.0 + n / 1000, 2.011, 1.992)) for n in range(1, before + 1))]
    ranked = speedrun_ranking.rank(TRACK, rows)
    standing = next(one for one in ranked if one.record)
    told = speedrun_ranking.to_beat(TRACK, ranked, standing)
    assert told
    mean, needs = told
    assert needs == speedrun_ranking.needed(before)
    off = mean - math.fsum(FIRST.figures) / 3
    assert record_after(rows, tuple(figure + off - 1e-6 for figure in FIRST.figures))
    assert not record_after(rows, tuple(figure + off + 1e-6 for figure in FIRST.figures))


def test_a_new_record_is_defended_anew() -> None:
    rows = [FIRST, *(entry(n, (2.0 + n / 1000, 2.011, 1.992)) for n in range(1, 8))]
    ranked = speedrun_ranking.rank(TRACK, [*rows, entry(9, (1.0, 1.01, 0.99))])
    standing = max((one for one in ranked if one.record), key=lambda one: one.row.at)
    told = speedrun_ranking.to_beat(TRACK, ranked, standing)
    assert told
    assert told[1] == speedrun_ranking.needed(0)
