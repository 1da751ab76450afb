"""Estimates of the forms that are more than a mean: orders, exponents, larger runs."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from runner.analysis import scaling
from runner.analysis.verdicts import judge
from runner.schema import record
from tests import synthetic
from tests.examples import examples

SIZES = [f"s{n}" for n in range(1, 7)]


def told(expect, **keys):
    return record.Prediction(metric="eval/bpb", expect=expect, confidence=0.7, **keys)


def ladder(sizes=5, *, grows=4):
    """Arms of which each trains `grows` times as long as the one before it."""
    return {
        name: synthetic.planned_arm(steps=16 * grows**n) for n, name in enumerate(SIZES[:sizes])
    }


def along(arms, *, a=1.0, b=0.3, c=0.8, noise=0.002, seeds=3, seed=0):
    """Figures on a law of the arms' tokens."""
    rng, first = random.Random(seed), min(arm.tokens for arm in arms.values())
    return {
        (name, one): (a * (arm.tokens / first) ** -b + c) * (1 + rng.gauss(0, noise))
        for name, arm in arms.items()
        for one in range(seeds)
    }


def judged(prediction, figures, arms=None, seeds=3):
    plan = synthetic.plan(arms=arms, predictions=[prediction], seeds=range(seeds))
    (only,) = judge(plan, {"eval/bpb": figures})
    return only


# ── An order ─────────────────────────────────────────────────────────────────────────────────

ABC = {name: synthetic.planned_arm() for name in "abc"}


def of_abc(a, b, c):
    return {
        (arm, n): value
        for arm, of in zip("abc", (a, b, c), strict=True)
        for n, value in enumerate(of)
    }


def order(figures, expect="> 0", names="abc"):
    return judged(told(expect, order=tuple(names)), figures, ABC)


APART = of_abc([2.00, 2.01, 2.02], [2.10, 2.12, 2.11], [2.30, 2.29, 2.31])


def test_an_order_is_confirmed_where_each_step_is_one_for_sure():
    found = order(APART)
    assert (found.outcome, found.n) == ("confirmed", 3)
    assert found.estimate == pytest.approx(0.1)
    assert found.why.startswith("the least step, b minus a: 0.100 bpb, 95 % interval of all steps")
    assert found.why.endswith("n = 3: all above 0")


def test_an_order_is_refuted_where_one_step_goes_the_other_way_for_sure():
    found = order(APART, names="acb")
    assert found.outcome == "refuted"
    assert found.why.startswith("the least step, b minus c: −0.19")


def test_an_order_with_a_step_that_may_be_none_is_inconclusive():
    close = of_abc([2.00, 2.01, 2.02], [2.01, 2.00, 2.03], [2.30, 2.29, 2.31])
    assert order(close).outcome == "inconclusive"
    assert order(APART, expect="> 0.1").outcome == "inconclusive", "a step of 0.1 is asked for"
    assert order(APART, expect="> 0.05").outcome == "confirmed"


def test_an_order_of_two_is_their_difference():
    plan = synthetic.plan(
        arms=ABC, predictions=[told("> 0", order=("a", "b")), told("> 0", arm="b", versus="a")]
    )
    of_two, difference = judge(plan, {"eval/bpb": APART})
    assert of_two.interval == difference.interval
    assert (of_two.estimate, of_two.outcome) == (difference.estimate, difference.outcome)


def test_the_steps_intervals_are_bonferronis():
    found = order(APART)
    ends = [
        stats.t.interval(0.975, 2, loc=np.mean(by), scale=stats.sem(by))
        for by in ([0.10, 0.11, 0.09], [0.20, 0.17, 0.20])
    ]
    assert found.interval == pytest.approx([min(end) for end in zip(*ends, strict=True)])


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.floats(0.5, 4)] * 3), min_size=2, max_size=6))
def test_no_order_and_its_reverse_are_both_confirmed(rows):
    figures = of_abc(*zip(*rows, strict=True))
    plan = synthetic.plan(
        arms=ABC,
        predictions=[told("> 0", order=("a", "b", "c")), told("> 0", order=("c", "b", "a"))],
        seeds=range(len(rows)),
    )
    one, other = judge(plan, {"eval/bpb": figures})
    assert "confirmed" not in (one.outcome, other.outcome) or one.outcome != other.outcome
    assert (one.outcome == "confirmed") <= (other.outcome == "refuted")


def test_simultaneous_intervals_err_on_a_true_order_at_most_as_often_as_they_say():
    """Three arms that are equal are put into a strict order for sure at most in 5 % of boards."""
    rng, wrong = random.Random(1), 0
    for _ in range(400):
        figures = of_abc(*([2 + rng.gauss(0, 0.01) for _ in range(4)] for _ in range(3)))
        found = judged(told("> 0", order=tuple("abc")), figures, ABC, seeds=4)
        wrong += found.outcome != "inconclusive"
    assert wrong <= 400 * 0.07


def test_a_missing_run_and_one_seed_leave_an_order_open():
    found = order(of_abc([2.0, 2.0, 2.0], [2.1, None, 2.1], [2.2, 2.2, 2.2]))
    assert found.why == "inconclusive: incomplete, 2 of 3 seeds; no figure for b.s1"
    alone = judged(told("> 0", order=("a", "b")), APART, ABC, seeds=1)
    assert alone.why == "inconclusive: one seed; b minus a: 0.1000 bpb"


# ── An exponent ──────────────────────────────────────────────────────────────────────────────


def exponent(expect, arms, axis="tokens"):
    return told(expect, exponent=tuple(arms), axis=axis)


def test_an_exponent_is_judged_by_the_interval_that_its_runs_leave():
    arms = ladder()
    figures = along(arms)
    found = judged(exponent("0.3 ± 0.1", arms), figures, arms)
    assert (found.outcome, found.n) == ("confirmed", 15)
    assert found.interval[0] < 0.3 < found.interval[1]
    assert found.why.startswith("b of L = a·C^(−b) + c over 5 sizes in tokens: 0.")
    assert judged(exponent("< 0.1", arms), figures, arms).outcome == "refuted"
    low, high = found.interval
    assert judged(exponent(f"< {(low + high) / 2}", arms), figures, arms).outcome == "inconclusive"


def test_the_axis_that_is_named_is_the_one_that_is_fitted():
    arms = {
        name: synthetic.planned_arm(steps=16 * 4**n, hidden_dim=32 * 2**n)
        for n, name in enumerate(SIZES[:5])
    }
    figures = along(arms)
    by_tokens = judged(exponent("> 0", arms), figures, arms)
    by_flops = judged(exponent("> 0", arms, "model_flops"), figures, arms)
    assert by_flops.estimate < by_tokens.estimate - 0.05


def test_sizes_that_lie_off_the_curve_by_more_than_seeds_differ_tell_less():
    arms = ladder()
    figures = along(arms)
    off = figures | {("s3", seed): figures["s3", seed] * 1.01 for seed in range(3)}
    one, other = (judged(exponent("> 0", arms), of, arms).interval for of in (figures, off))
    assert other[1] - other[0] > 5 * (one[1] - one[0])


def test_the_interval_holds_where_each_size_has_an_error_of_its_own():
    missed, boards, rng = 0, 150, random.Random(3)
    arms = ladder()
    for n in range(boards):
        off = {arm: 1 + rng.gauss(0, 0.002) for arm in arms}
        figures = along(arms, noise=0.001, seed=n)
        points = [(arms[arm].tokens, loss * off[arm]) for (arm, _), loss in figures.items()]
        found = scaling.exponent(points)
        missed += not found.low <= 0.3 <= found.high
    assert missed <= 0.09 * boards


def test_losses_that_do_not_fall_have_no_exponent():
    arms = ladder()
    rising = {key: 4 - value for key, value in along(arms).items()}
    found = judged(exponent("> 0", arms), rising, arms)
    assert (found.outcome, found.interval) == ("inconclusive", None)
    assert "the losses do not fall" in found.why


def test_one_seed_will_do_where_there_are_five_sizes():
    arms = ladder()
    found = judged(exponent("> 0.1", arms), along(arms, seeds=1, noise=0.001), arms, seeds=1)
    assert (found.outcome, found.n) == ("confirmed", 5)


def test_an_exponents_interval_covers_it_as_often_as_it_says():
    missed = refused = 0
    cells = [(sizes, seeds, b) for sizes in (4, 5) for seeds in (1, 3) for b in (0.15, 0.4)]
    for n in range(160):
        sizes, seeds, b = cells[n % len(cells)]
        if seeds == 1:
            sizes += 1
        arms = ladder(sizes)
        points = [
            (arms[name].tokens, loss)
            for (name, _), loss in along(arms, b=b, seeds=seeds, noise=0.001, seed=n).items()
        ]
        try:
            found = scaling.exponent(points)
        except scaling.Refused:
            refused += 1
            continue
        missed += not found.low <= b <= found.high
    assert refused < 25
    assert missed <= 0.09 * (160 - refused)


def test_results_of_a_search_are_rounded_to_be_equal_on_all_machines():
    arms = ladder()
    found = judged(exponent("> 0", arms), along(arms), arms)
    for value in (found.estimate, *found.interval):
        assert value == float(f"{value:.4e}")


def test_exact_points_give_a_point_interval_of_the_exponent():
    points = [(float(c), 2 * c**-0.3 + 0.5) for c in (1, 4, 16, 64, 256)]
    found = scaling.exponent(points)
    assert found.low == pytest.approx(0.3, abs=1e-4)
    assert found.high == pytest.approx(0.3, abs=1e-4)
    assert found.low <= found.b <= found.high


def test_an_exponent_in_hardware_flops_is_that_of_what_the_devices_could_have_done():
    """At half the speed for each size more, compute grows faster than tokens do."""
    arms = ladder()
    of_tokens = exponent("> 0", arms)
    of_hardware = of_tokens.model_copy(update={"axis": "hardware_flops"})
    slower = {(f"s{n + 1}", seed): 1e5 / 2**n for n in range(5) for seed in range(3)}
    plan = synthetic.plan(arms=arms, predictions=[of_tokens, of_hardware])
    one, other = judge(plan, {"eval/bpb": along(arms, noise=0)}, speeds=slower)
    assert one.estimate == pytest.approx(0.3, abs=1e-3)
    assert other.estimate == pytest.approx(0.2, abs=1e-3), "8 times the compute for 4 times so many"
    assert "over 5 sizes in hardware FLOPs" in other.why
    (_, unknown) = judge(
        plan, {"eval/bpb": along(arms, noise=0)}, speeds=slower | {("s3", 1): None}
    )
    assert unknown.why == "inconclusive: no speed is known of s3, and so no hardware FLOPs"


# ── Other metrics ────────────────────────────────────────────────────────────────────────────


def test_an_order_is_best_first_also_where_higher_is_better():
    told_by = told("> 0", order=("a", "b")).model_copy(update={"metric": "task/x/accuracy"})
    plan = synthetic.plan(arms={"a": ABC["a"], "b": ABC["b"]}, predictions=[told_by])
    values = {(arm, n): base + n / 100 for arm, base in (("a", 0.6), ("b", 0.4)) for n in range(3)}
    values["a", 0] -= 0.001  # so that the steps of the seeds differ
    (found,) = judge(plan, {"task/x/accuracy": values})
    assert found.outcome == "confirmed"
    assert found.estimate == pytest.approx(0.2, abs=1e-3)
    assert found.why.startswith("the least step, a minus b: 0.1997, 95 % interval [0.198")


def test_a_prediction_is_judged_by_the_scores_of_its_metric_alone():
    told_by = told("< 1", arm="fast").model_copy(update={"metric": "eval/docs/bpb"})
    plan = synthetic.plan(predictions=[told_by])
    (found,) = judge(plan, {"eval/bpb": synthetic.PLAIN})
    assert "no figure for fast.s0" in found.why
    (found,) = judge(plan, {"eval/docs/bpb": synthetic.figures([], [0.5, 0.51, 0.52])})
    assert (found.outcome, "0.510 bpb" in found.why) == ("confirmed", True)


# ── A larger run ─────────────────────────────────────────────────────────────────────────────


def larger(expect, arms, axis="tokens"):
    *smaller, largest = arms
    return told(expect, arm=largest, smaller=tuple(smaller), axis=axis)


def test_a_larger_run_is_judged_by_how_far_it_lies_off_the_forecast():
    arms = ladder(6)
    figures = along(arms, noise=0.0005)
    found = judged(larger("0 ± 0.02", arms), figures, arms)
    assert (found.outcome, found.n) == ("confirmed", 3)
    assert abs(found.estimate) < 0.01
    assert found.why.startswith("s6 over its forecast of 0.9")
    assert ", less 1: " in found.why
    off = figures | {("s6", seed): 1.2 + seed / 1000 for seed in range(3)}
    assert judged(larger("0 ± 0.02", arms), off, arms).outcome == "refuted"


def test_the_error_is_the_measured_mean_over_the_forecast_of_the_smaller_means():
    arms = ladder(6)
    figures = along(arms, noise=0.001)
    found = judged(larger("0 ± 0.02", arms), figures, arms)
    means = {arm: np.mean([figures[arm, seed] for seed in range(3)]) for arm in arms}
    measured = means.pop("s6")
    points = [(arms[arm].tokens, mean) for arm, mean in means.items()]
    forecast = scaling.forecast(points, arms["s6"].tokens)
    assert found.estimate == pytest.approx(measured / forecast.loss - 1, abs=1e-5)


def test_smaller_runs_that_show_no_law_leave_it_open_in_words():
    arms = ladder(6)
    rising = {key: 4 - value for key, value in along(arms).items()}
    found = judged(larger("0 ± 0.02", arms), rising, arms)
    assert found.outcome == "inconclusive"
    assert "the losses do not fall" in found.why


def test_three_smaller_sizes_forecast_with_a_stated_floor_and_say_so():
    arms = ladder(4)
    found = judged(larger("0 ± 0.5", arms), along(arms), arms)
    assert "the floor is taken as 0.6" in found.why
    assert found.outcome == "confirmed"


def test_one_seed_of_the_larger_run_has_no_interval():
    arms = ladder(6)
    found = judged(larger("0 ± 0.02", arms), along(arms, seeds=1), arms, seeds=1)
    assert (found.outcome, found.interval) == ("inconclusive", None)
    assert found.why.startswith("inconclusive: one seed; s6 over its forecast")


@pytest.mark.parametrize("make", [larger, exponent])
def test_a_missing_run_of_any_size_leaves_a_law_open(make):
    arms = ladder(5)
    figures = along(arms) | {("s2", 1): None}
    found = judged(make("0 ± 0.5", arms), figures, arms)
    assert found.why == "inconclusive: incomplete, 2 of 3 seeds; no figure for s2.s1"


@settings(deadline=None, max_examples=examples(10))
@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=True)), min_size=15, max_size=15))
def test_whatever_the_figures_each_form_can_be_written_down(values):
    arms = ladder(5)
    figures = {
        (name, n % 3): values[3 * (n // 3) + n % 3] for n in range(15) for name in [SIZES[n // 3]]
    }
    plan = synthetic.plan(
        arms=arms,
        predictions=[exponent("> 0", arms), larger("0 ± 1", arms), told("> 0", order=tuple(arms))],
    )
    for found in judge(plan, {"eval/bpb": figures}):
        assert type(found).model_validate_json(found.canonical()) == found
        assert found.interval is None or all(map(math.isfinite, found.interval))
