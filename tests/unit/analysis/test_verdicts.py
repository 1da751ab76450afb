"""Verdicts: what `expect` may say, when the interval decides, and what is said when it cannot."""

import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from runner.analysis import estimates, verdicts
from runner.analysis.verdicts import BadExpectation, arm_summary, judge, parse_expect
from runner.lib.bounds import MOST_FIGURE
from runner.schema import record
from tests import synthetic
from tests.synthetic import figures, prediction

INF = math.inf

# ── What `expect` may say ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "canonical", "ends"),
    [
        ("< -0.05", "< -0.05", (-INF, -0.05)),
        ("<-0.05", "< -0.05", (-INF, -0.05)),
        ("  <=  1.90 ", "<= 1.9", (-INF, 1.9)),
        ("≤ 2", "<= 2", (-INF, 2.0)),
        ("> 1e-3", "> 0.001", (0.001, INF)),
        (">= .5", ">= 0.5", (0.5, INF)),
        ("≥ +5.", ">= 5", (5.0, INF)),
        ("< −0.05", "< -0.05", (-INF, -0.05)),
        ("< - 0.05", "< -0.05", (-INF, -0.05)),
        ("> -0", "> 0", (0.0, INF)),
        ("1.9 ± 0.1", "1.9 ± 0.1", (1.8, 2.0)),
        ("1.9±0.1", "1.9 ± 0.1", (1.8, 2.0)),
        ("1.9 +- 0.1", "1.9 ± 0.1", (1.8, 2.0)),
        ("1.9+/-0.1", "1.9 ± 0.1", (1.8, 2.0)),
        ("−3e−2 ± 1E-2", "-0.03 ± 0.01", (-0.04, -0.02)),
    ],
)
def test_each_form_names_its_set_and_has_one_canonical_writing(text, canonical, ends):
    expected = parse_expect(text)
    assert (str(expected), (expected.lower, expected.upper)) == (canonical, ends)


@pytest.mark.parametrize(
    "text",
    [
        *("", "   ", "<", "banana", "1.9", "= 1.9", "== 1", "< x", "<< 1", "< 1 2", "1 - 2"),
        *("± 0.1", "1 ±", "< 1,5", "< nan", "< inf", "< 1_000", "< ١", "0 < 1", "1 ± 2 ± 3"),
    ],
)
def test_an_invalid_expect_is_refused_with_the_valid_forms(text):
    with pytest.raises(BadExpectation, match=r'write `"< 1\.9"`, `"> 1\.5"` or `"1\.9 ± 0\.1"`'):
        parse_expect(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1.9 ± 0", "has a tolerance that is not above 0; write one"),
        ("1.9 ± -0.1", "has a tolerance that is not above 0; write one"),
        ("< 1e999", "too large to compute with"),
        ("1e308 ± 1e308", "too large to compute with"),
        ("< " + "9" * 200, "longer than 100 characters"),
    ],
)
def test_a_set_that_cannot_be_computed_with_is_refused_with_the_reason(text, why):
    with pytest.raises(BadExpectation, match=why):
        parse_expect(text)


@given(st.sampled_from(["<", "<=", ">", ">="]), st.floats(allow_nan=False, allow_infinity=False))
def test_any_bound_survives_being_written_and_read_again(sign, bound):
    expected = parse_expect(f"{sign} {bound!r}")
    assert parse_expect(str(expected)) == expected
    assert bound in (expected.lower, expected.upper)


scraps = st.lists(st.sampled_from([*"<>=±+-−.eE 0159", "1.9", "0.1", "\n", "٣", "e9"]), max_size=8)


@given(st.one_of(st.text(max_size=120), scraps.map("".join)))
def test_an_expectation_round_trips_through_its_text(text):
    with suppress(BadExpectation):
        expected = parse_expect(text)
        assert parse_expect(str(expected)) == expected


# ── Ends that belong to a set, and ends that do not ──────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "interval", "contains", "excludes"),
    [
        ("< 1", (0.0, 0.5), True, False),
        ("< 1", (0.0, 1.0), False, False),
        ("< 1", (1.0, 2.0), False, True),
        ("< 1", (1.0, 1.0), False, True),
        ("<= 1", (0.0, 1.0), True, False),
        ("<= 1", (1.0, 2.0), False, False),
        ("<= 1", (math.nextafter(1, 2), 2.0), False, True),
        ("<= 1", (1.0, 1.0), True, False),
        ("> 1", (1.0, 2.0), False, False),
        ("> 1", (0.0, 1.0), False, True),
        ("> 1", (1.5, 2.0), True, False),
        (">= 1", (1.0, 2.0), True, False),
        (">= 1", (0.0, 1.0), False, False),
        (">= 1", (0.0, 0.5), False, True),
        ("1.9 ± 0.1", (1.8, 2.0), True, False),
        ("1.9 ± 0.1", (2.0, 2.5), False, False),
        ("1.9 ± 0.1", (1.0, 1.7), False, True),
        ("1.9 ± 0.1", (1.0, 3.0), False, False),
    ],
)
def test_an_interval_end_counts_as_its_sign_says(text, interval, contains, excludes):
    expected = parse_expect(text)
    assert (expected.contains(interval), expected.excludes(interval)) == (contains, excludes)


finite = st.floats(-1e6, 1e6, allow_nan=False)
expectations = st.one_of(
    st.builds("{} {!r}".format, st.sampled_from(["<", "<=", ">", ">="]), finite),
    st.builds("{!r} ± {!r}".format, finite, st.floats(1e-3, 1e3)),
).map(parse_expect)


@given(expectations, finite, finite)
def test_no_interval_is_both_inside_and_outside(expected, one, other):
    interval = (min(one, other), max(one, other))
    assert not (expected.contains(interval) and expected.excludes(interval))


@given(expectations, finite)
def test_a_point_is_either_inside_or_outside(expected, point):
    assert expected.contains((point, point)) != expected.excludes((point, point))


@given(finite, finite, finite)
def test_below_and_at_least_are_each_others_opposite(bound, one, other):
    interval = (min(one, other), max(one, other))
    below, at_least = parse_expect(f"< {bound!r}"), parse_expect(f">= {bound!r}")
    assert below.contains(interval) == at_least.excludes(interval)
    assert below.excludes(interval) == at_least.contains(interval)


# ── Judging ──────────────────────────────────────────────────────────────────────────────────


def verdict(expect, by_arm, *, versus="slow", seeds=(0, 1, 2)):
    plan = synthetic.plan(predictions=[prediction(expect, versus=versus)], seeds=seeds)
    (only,) = judge(plan, {"eval/bpb": by_arm})
    return only


@pytest.mark.parametrize(
    ("expect", "outcome", "ending"),
    [
        ("< -0.05", "confirmed", "n = 3: all below −0.05"),
        ("> -0.05", "refuted", "n = 3: none above −0.05"),
        ("< -0.8", "inconclusive", "n = 3: only partly below −0.8"),
        ("-0.8 ± 0.15", "confirmed", "n = 3: all within −0.8 ± 0.15"),
        ("0.8 ± 0.15", "refuted", "n = 3: none within 0.8 ± 0.15"),
        ("-0.8 ± 0.05", "inconclusive", "n = 3: only partly within −0.8 ± 0.05"),
    ],
)
def test_the_whole_interval_decides(expect, outcome, ending):
    # Differences −0.83, −0.81, −0.76: mean −0.80, SE 0.0208, t(2) 4.303.
    judged = verdict(expect, figures([3.41, 3.47, 3.38], [2.58, 2.66, 2.62]))
    assert judged.outcome == outcome
    assert judged.estimate == pytest.approx(-0.80)
    assert judged.standard_error == pytest.approx(0.0208167, abs=1e-7)
    assert judged.interval == pytest.approx((-0.889567, -0.710433), abs=1e-6)
    assert judged.beyond_two_se is True
    assert judged.why.endswith(ending)


def test_the_sentence_says_estimate_interval_and_set():
    judged = verdict("< -0.05", figures([3.4, 3.5, 3.3], [2.5, 2.8, 2.5]))
    assert judged.why == (
        "fast minus slow: −0.80 bpb, 95 % interval [−1.05, −0.55], n = 3: all below −0.05"
    )


def test_the_sentence_keeps_enough_digits_to_bear_out_the_verdict():
    judged = verdict("< -0.5", figures([3.0] * 3, [2.4999, 2.4997, 2.4998]))
    assert judged.outcome == "inconclusive"
    assert "[−0.50045, −0.49995]" in judged.why
    near = verdict("< -0.49995", figures([3.0] * 3, [2.4999, 2.4997, 2.4998]))
    assert near.outcome == "confirmed"
    assert "−0.499952], n = 3: all below −0.49995" in near.why


def test_without_versus_the_arm_itself_is_judged():
    judged = verdict("2.6 ± 0.2", figures([None] * 3, [2.58, 2.66, 2.62]), versus=None)
    assert judged.outcome == "confirmed"
    assert judged.estimate == pytest.approx(2.62)
    assert judged.beyond_two_se is None
    assert judged.why.startswith("fast: 2.620 bpb, 95 % interval [2.521, 2.719], n = 3: all")


def test_equal_differences_make_the_interval_a_point():
    judged = verdict("<= -0.5", figures([3.0, 3.25, 3.5], [2.5, 2.75, 3.0]))
    assert (judged.interval, judged.standard_error) == ((-0.5, -0.5), 0.0)
    assert (judged.outcome, judged.beyond_two_se) == ("confirmed", True)
    assert verdict("< -0.5", figures([3.0, 3.25, 3.5], [2.5, 2.75, 3.0])).outcome == "refuted"


def test_no_difference_at_all_is_not_beyond_two_standard_errors():
    judged = verdict("< 0", figures([3.0, 3.1, 3.2], [3.0, 3.1, 3.2]))
    assert (judged.outcome, judged.beyond_two_se) == ("refuted", False)


def test_seeds_that_change_nothing_count_as_one():
    """Own code that does not look at its seed has no spread, and shows nothing beyond one run."""
    judged = verdict("< -0.05", figures([3.4] * 3, [2.6] * 3))
    words = "inconclusive: 3 seeds that change no figure; fast minus slow: −0.8000 bpb"
    assert (judged.why, judged.estimate) == (words, pytest.approx(-0.8))
    assert (judged.outcome, judged.n, judged.interval) == ("inconclusive", 1, None)
    alone = verdict("< 3", {("fast", seed): 2.6 for seed in range(3)}, versus=None)
    assert (alone.outcome, alone.n) == ("inconclusive", 1)
    beside = verdict("< -0.05", figures([3.4, 3.41, 3.39], [2.6] * 3))
    assert (beside.outcome, beside.n) == ("confirmed", 3)


def test_one_seed_is_inconclusive_and_says_so():
    judged = verdict("< -0.05", figures([3.4], [2.6]), seeds=(0,))
    assert judged.why == "inconclusive: one seed; fast minus slow: −0.8000 bpb"
    assert (judged.outcome, judged.n, judged.interval) == ("inconclusive", 1, None)
    assert judged.estimate == pytest.approx(-0.8)


def test_a_missing_run_is_named_and_not_left_out_in_silence():
    judged = verdict("< -0.05", figures([3.41, None, 3.38], [2.58, 2.66, None]))
    assert judged.why == ("inconclusive: incomplete, 1 of 3 seeds; no figure for fast.s2, slow.s1")
    assert (judged.outcome, judged.n, judged.estimate) == ("inconclusive", 1, None)


def test_a_missing_run_of_another_arm_matters_to_nobody():
    judged = verdict("< 3", figures([None, None, None], [2.58, 2.66, 2.62]), versus=None)
    assert judged.outcome == "confirmed"


def test_a_run_without_a_record_is_a_missing_run():
    assert "no figure for fast.s0, fast.s1" in verdict("< 0", {}).why


@pytest.mark.parametrize("bpb", [math.nan, math.inf, -1.0, 1e308])
def test_no_record_has_a_figure_beyond_what_can_be_computed(bpb):
    known = {"loss": 1.0, "targets": 64, "params_sha256": "a" * 64}
    with pytest.raises(ValidationError, match="bpb"):
        record.Evaluated(bpb=bpb, **known)
    with pytest.raises(ValidationError, match="bpb"):
        record.Climbed(execution="x1", arm="a", seed=0, bpb=bpb)


def test_many_missing_runs_are_counted_rather_than_all_listed():
    plan = synthetic.plan(predictions=[prediction()], seeds=range(20))
    (judged,) = judge(plan, {"eval/bpb": {}})
    assert judged.why.endswith("fast.s5 and 34 more")


def test_predictions_are_judged_in_their_order():
    plan = synthetic.plan(predictions=[prediction("< -0.05"), prediction("> 0"), prediction("< 0")])
    outcomes = [judged.outcome for judged in judge(plan, {"eval/bpb": synthetic.PLAIN})]
    assert outcomes == ["confirmed", "refuted", "confirmed"]


samples = st.lists(st.floats(0.5, 8), min_size=2, max_size=12)


@given(samples)
def test_the_interval_is_the_one_scipy_computes(values):
    assume(np.ptp(values) > 1e-6)
    interval = estimates.interval_of(values)
    independent = stats.t.interval(
        0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values)
    )
    assert interval == pytest.approx(independent, rel=1e-9, abs=1e-9)


@given(samples, st.floats(-4, 4))
def test_shifting_figures_and_prediction_together_changes_no_verdict(values, shift):
    assume(len({value + shift for value in values}) > 1)  # or they count as one
    seeds = range(len(values))
    interval = estimates.interval_of(values)
    bound = 2.0
    assume(all(abs(end - bound) > 1e-9 for end in interval))
    before = {("fast", seed): value for seed, value in enumerate(values)}
    after = {key: value + shift for key, value in before.items()}
    one = verdict(f"< {bound!r}", before, versus=None, seeds=seeds)
    other = verdict(f"< {bound + shift!r}", after, versus=None, seeds=seeds)
    assert one.outcome == other.outcome
    assert other.estimate == pytest.approx(one.estimate + shift, abs=1e-9)
    assert other.interval == pytest.approx([end + shift for end in one.interval], abs=1e-6)


@given(samples, samples)
def test_exchanging_the_arms_mirrors_the_difference(slow, fast):
    n = min(len(slow), len(fast))
    by_arm = figures(slow[:n], fast[:n])
    swapped = figures(fast[:n], slow[:n])
    one = verdict("< 0.25", by_arm, seeds=range(n))
    other = verdict("> -0.25", swapped, seeds=range(n))
    assert one.outcome == other.outcome
    assert other.interval == (one.interval and (-one.interval[1], -one.interval[0]))


@given(st.lists(st.one_of(st.none(), st.floats(0, MOST_FIGURE)), min_size=1, max_size=6))
def test_whatever_the_figures_a_verdict_can_be_written_down(values):
    by_arm = {("fast", seed): value for seed, value in enumerate(values)}
    judged = verdict("1 ± 0.5", by_arm, versus=None, seeds=range(len(values)))
    assert type(judged).model_validate_json(judged.canonical()) == judged


# ── Arms ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("values", "shown", "n"),
    [
        ([2.58, 2.66, 2.62], "2.620 ± 0.040", 3),
        ([2.5811, 2.5822, 2.5819], "2.5817 ± 0.0006", 3),
        ([2.58, 2.66, None], "2.620 ± 0.057", 2),
        ([2.58, None, None], "2.5800", 1),
        ([2.5, 2.5, 2.5], "2.5000", 3),
        ([None, None, None], "–", 0),
    ],
)
def test_an_arm_is_its_mean_its_spread_and_how_many_seeds(values, shown, n):
    summary = arm_summary(synthetic.plan(), figures([None] * 3, values), "fast")
    assert (str(summary), summary.n, summary.of) == (shown, n, 3)


def test_the_spread_divides_by_one_less_than_the_seeds():
    summary = arm_summary(synthetic.plan(), figures([], [2.0, 3.0, 4.0]), "fast")
    assert (summary.mean, summary.spread) == (3.0, 1.0)


def test_the_figures_of_runs_are_the_labs_own():
    plan = synthetic.plan()
    runs = [synthetic.run(plan, "fast", 0, 2.6), synthetic.run(plan, "fast", 1, None)]
    assert verdicts.figures_of(runs) == {("fast", 0): 2.6, ("fast", 1): None}
