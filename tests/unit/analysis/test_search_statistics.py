"""What the trials of a search say: corrected differences, stopping, and the last comparison."""

import math
import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from runner.analysis import search_statistics
from runner.schema.record import SearchTerms, SearchTrial

AT = datetime(2026, 1, 1, tzinfo=UTC)
TERMS = SearchTerms(
    experiment="experiments/x",
    declaration="title: X",
    fingerprint="0" * 64,
    proposer=("python", "p.py"),
    metric="eval/bpb",
    trials=3,
    device_hours=None,
    patience=8,
    compute=1.0,
    noise_seeds=(1000, 1001, 1002, 1003),
    seeds=(1000, 1001),
    fresh_seeds=(2000, 2001, 2002),
    level=0.05,
)


def trial(n: int, *scores: float | None, **changes: object) -> SearchTrial:
    made = SearchTrial(n=n, at=AT, declaration="", execution="x1", scores=scores)
    return made.model_copy(update=changes)


BASE = trial(0, 2.00, 2.02, 2.01, 1.99)


def test_a_trial_is_weighed_by_students_t_with_the_pooled_variance() -> None:
    """Two groups, of which scipy's test knows the answer."""
    other = trial(1, 1.95, 1.98)
    (found,) = search_statistics.weigh([BASE, other])
    expected = stats.ttest_ind(other.scores, BASE.scores, alternative="less")
    assert found.p == pytest.approx(expected.pvalue)
    assert found.adjusted == found.p, "of one trial there is nothing to correct"
    assert found.difference == pytest.approx(-0.04)


def test_p_values_are_corrected_for_the_number_of_trials() -> None:
    found = search_statistics.holm({1: 0.01, 2: 0.04, 3: 0.03, 4: 0.005})
    assert found == pytest.approx({4: 0.02, 1: 0.03, 3: 0.06, 2: 0.06})  # Holm's own rule by hand
    assert search_statistics.holm({1: 0.9, 2: 0.8}) == {2: 1.0, 1: 1.0}


@given(st.dictionaries(st.integers(1, 50), st.floats(0, 1), max_size=20))
def test_a_corrected_p_value_is_never_smaller_and_keeps_the_order(given: dict[int, float]) -> None:
    found = search_statistics.holm(given)
    assert all(given[n] <= found[n] <= 1 for n in given)
    ordered = [found[n] for n in sorted(given, key=lambda n: (given[n], n))]
    assert ordered == sorted(ordered)


def test_where_nothing_helps_the_correction_is_seldom_wrong() -> None:
    """Of 400 searches of 20 trials that are all as the baseline, one in twenty at most finds one
    that is better at the 5 % level; without the correction most do."""
    chance = random.Random(0)
    wrong = plain = 0
    for _ in range(400):
        base = trial(0, *(chance.gauss(2, 0.01) for _ in range(4)))
        others = [trial(n, *(chance.gauss(2, 0.01) for _ in range(2))) for n in range(1, 21)]
        weighed = search_statistics.weigh([base, *others])
        wrong += any(one.adjusted < 0.05 for one in weighed)
        plain += any(one.p < 0.05 for one in weighed)
    assert wrong / 400 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    assert plain / 400 > 0.2


def test_what_diverged_or_was_refused_is_not_weighed_and_counts_for_no_noise() -> None:
    refused = trial(2, refused="it has its own code", execution="")
    found = search_statistics.weigh([BASE, trial(1, 1.9, None), refused, trial(3, 1.9, 1.91)])
    assert [one.n for one in found] == [3]
    assert search_statistics.noise([BASE, trial(1, 1.0, None)]) == search_statistics.noise([BASE])
    assert search_statistics.weigh([trial(0, None, None), trial(1, 1.0, 1.0)]) == ()


def test_the_best_trial_is_better_than_the_baseline_or_there_is_none() -> None:
    weighed = search_statistics.weigh([BASE, trial(1, 1.9, 1.91), trial(2, 2.1, 2.1)])
    best = search_statistics.best(weighed)
    assert best is not None
    assert best.n == 1
    worse = search_statistics.weigh([BASE, trial(1, 2.1, 2.11)])
    assert search_statistics.best(worse) is None


@pytest.mark.parametrize(
    ("trials", "changes", "why"),
    [
        ([BASE], {}, ""),
        ([trial(0, None, 2.0)], {}, "the baseline has no scores"),
        ([BASE, *(trial(n, 1.9, 1.9) for n in (1, 2, 3))], {}, "the budget of 3 trials is spent"),
        ([BASE, trial(1, 1.9, 1.9), trial(2, refused="no")], {}, ""),
        (
            [BASE.model_copy(update={"device_hours": 0.3}), trial(1, 1.9, 1.9, device_hours=0.2)],
            {"device_hours": 0.5},
            "the budget of 0.5 device-hours is spent",
        ),
        (
            [BASE, *(trial(n, refused="no") for n in range(1, 6))],
            {},
            "5 proposals in a row were refused",
        ),
        (
            [BASE, trial(1, 1.5, 1.5), trial(2, 1.499, 1.499), trial(3, None, 1.0)],
            {"patience": 2, "trials": 9},
            "2 trials in a row were not better by more than the noise",
        ),
        ([BASE, trial(1, 2.1, 2.1), trial(2, 1.5, 1.5)], {"patience": 2, "trials": 9}, ""),
    ],
)
def test_a_search_stops_by_its_rule(
    trials: list[SearchTrial], changes: dict[str, object], why: str
) -> None:
    terms = TERMS.model_copy(update=changes)
    assert search_statistics.over(terms, trials) == why


def test_the_last_comparison_is_welchs_t_with_fresh_seeds() -> None:
    base, new = (2.0, 2.02, 2.01), (1.9, 1.95, 1.91)
    found = search_statistics.compare(4, ("x1", "x2"), base, new)
    expected = stats.ttest_ind(new, base, equal_var=False, alternative="less")
    two_sided = stats.ttest_ind(new, base, equal_var=False).confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.interval == pytest.approx((two_sided.low, two_sided.high))
    assert found.difference == pytest.approx(-0.09)
    without = search_statistics.compare(4, ("x1", "x2"), base, (None, 1.9, 1.9))
    assert (without.difference, without.p) == (None, None)
    same = search_statistics.compare(4, ("x1", "x2"), (2.0, 2.0), (1.0, 1.0))
    assert (same.difference, same.interval, same.p) == (-1.0, (-1.0, -1.0), 0.0)


def test_equal_terms_are_one_search_and_others_another_one() -> None:
    assert TERMS.id == TERMS.model_copy().id
    assert TERMS.id != TERMS.model_copy(update={"trials": 4}).id
    assert len(TERMS.id) == 17
