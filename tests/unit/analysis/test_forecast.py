"""Which runs carry a law, and what is said of one run more."""

from pathlib import Path

import numpy as np
import pytest

from runner.analysis import forecast as forecasting
from runner.analysis import scaling
from runner.analysis.forecast import Forecast, Point, Refusal, forecast
from runner.planning import planner
from runner.schema.record import Evaluated, Execution, Plan, Run

SIZES = (16, 20, 24, 28, 32, 40)
LADDER = """
title: A ladder
data: {source: text.txt}
eval: {tokens: 256}
model: {num_layers: 2, num_heads: 2, seq_len: 16}
train: {train_batch_size: 2, learning_rate: 0.01, num_train_steps: 10, warmup: 0.1}
resources: {kind: cpu}
seeds: [0, 1]
arms:
  w8: {model: {hidden_dim: 8, intermediate_dim: 16}}
  w16: {model: {hidden_dim: 16, intermediate_dim: 32},
        train: {num_train_steps: 20, learning_rate: 0.007}}
"""


def point(size: int, seed: int = 0, loss: float = 0.0, **other: object) -> Point:
    compute = 1e6 * size**4
    known = {
        "run": f"x.w{size}.s{seed}",
        "arm": f"w{size}",
        "seed": seed,
        "loss": loss or 1 + 40 * compute**-0.2,
        "model_flops": compute,
        "tokens": 100.0 * size**2,
        "parameters": 5.0 * size**2,
        "text": "a text",
        "targets": 1024,
        "recipe": "a recipe",
        "config": f"w{size}",
    }
    return Point.model_validate(known | other)


def test_a_larger_run_is_forecast_from_smaller_ones() -> None:
    found = forecast([point(size) for size in SIZES], 1e6 * 120**4)
    assert isinstance(found, Forecast)
    assert found.loss == pytest.approx(1 + 40 * (1e6 * 120**4) ** -0.2, rel=1e-3)
    assert found.law.loss(found.at) == pytest.approx(found.loss)
    assert found.low <= found.loss <= found.high
    assert found.reach == pytest.approx(81)
    assert (found.rungs, found.runs) == (6, 6)


def test_seeds_are_one_point_and_tell_the_spread_of_a_single_run() -> None:
    random = np.random.default_rng(1)
    points = [
        point(size, seed, point(size).loss * (1 + 0.002 * random.standard_normal()))
        for size in SIZES
        for seed in range(20)
    ]
    found = forecast(points, 1e6 * 120**4)
    assert isinstance(found, Forecast)
    assert (found.rungs, found.runs, found.freedom) == (6, 120, 6 * 19)
    assert found.noise == pytest.approx(0.002, rel=0.2)
    low, high = found.of_the_law
    assert found.low < low < high < found.high


def test_rungs_that_lie_on_a_curve_by_luck_promise_no_more_than_their_seeds() -> None:
    off = (-0.01, 0.01)
    apart = [
        point(size, seed, point(size).loss * (1 + off[seed])) for size in SIZES for seed in (0, 1)
    ]
    found = forecast(apart, 1e6 * 120**4)
    assert isinstance(found, Forecast)
    low, high = found.of_the_law
    assert high - low > 0.02 * found.loss
    assert found.law.loss(found.at) == pytest.approx(point(120).loss, rel=1e-3)


def test_the_interval_of_a_run_holds_it_at_least_as_often_as_it_says() -> None:
    random, inside, forecasts = np.random.default_rng(2), 0, 0
    truth = 1 + 40 * (1e6 * 120**4) ** -0.2
    for _ in range(150):
        points = [
            point(size, seed, point(size).loss * (1 + 0.003 * random.standard_normal()))
            for size in SIZES
            for seed in range(3)
        ]
        found = forecast(points, 1e6 * 120**4)
        if isinstance(found, Forecast):
            forecasts += 1
            inside += found.low <= truth * (1 + 0.003 * random.standard_normal()) <= found.high
    assert forecasts > 120
    assert inside / forecasts >= 0.85  # the wider one of two intervals holds more


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"text": "another"}, "on different texts"),
        ({"targets": 512}, "different numbers of tokens"),
        ({"recipe": "another"}, "differ in more than a size"),
        ({"config": "another"}, "have the same size but differ in something else"),
        ({"model_flops": 2e20, "tokens": 1.0}, "fewer parameters or tokens"),
    ],
)
def test_runs_that_are_no_ladder_of_one_dial_are_refused_in_words(
    other: dict[str, object], words: str
) -> None:
    found = forecast([*(point(size) for size in SIZES), point(40, 7, **other)], 1e21)
    assert isinstance(found, Refusal)
    assert words in found.words


def test_an_unmeasured_quantity_is_no_axis() -> None:
    found = forecast([point(size) for size in SIZES], 1e21, axis="hardware_flops")
    assert isinstance(found, Refusal)
    assert "the hardware FLOPs of x.w16.s0" in found.words


def test_too_few_rungs_and_losses_that_do_not_fall_are_refused_in_words() -> None:
    few = forecast([point(16), point(16, 1), point(20)], 1e21)
    flat = forecast([point(size, loss=2.0 + size / 1000) for size in SIZES], 1e21)
    none = forecast([], 1e21)
    for found, words in (
        (few, "2 different C are too few"),
        (flat, "the losses do not fall"),
        (none, "the lab has none"),
    ):
        assert isinstance(found, Refusal)
        assert words in found.words


def test_a_stated_floor_is_said() -> None:
    found = forecast([point(size) for size in SIZES[:3]], 1e6 * 60**4)
    assert isinstance(found, Forecast)
    assert found.law.stated_floor
    assert found.law.c == scaling.FLOOR
    assert "the floor is stated as 0.6" in found.words[0]


def test_with_a_floor_that_is_stated_the_interval_holds_what_none_and_twice_as_much_say() -> None:
    straight = [
        point(size, seed, (40 + seed / 50) * (1e6 * size**4) ** -0.11)
        for size in SIZES
        for seed in (0, 1)
    ]
    there = 1e6 * 80**4
    free = forecast(straight, there)
    assert isinstance(free, Refusal)
    assert "the floor sits on its bound" in free.words
    found = forecast(straight, there, floor=0.3)
    assert isinstance(found, Forecast)
    assert found.law.c == 0.3
    assert found.law.stated_floor
    assert found.low < (40 * there**-0.11) < found.loss < found.high
    assert "the floor is stated as 0.3; the interval holds 0 to 0.6" in found.words


def plan_of(folder: Path, text: str = LADDER) -> Plan:
    (folder / "text.txt").write_text("".join(f"line {n}\n" for n in range(4000)))
    (folder / "experiment.yaml").write_text(text)
    return planner.plan_folder(folder)


def ladder(plan: Plan) -> tuple[str, int, str]:
    design = forecasting.design_of(plan, "w8")
    assert design
    return design.ladder


def run_of(plan: Plan, arm: str, seed: int, bpb: float | None) -> Run:
    score = Evaluated(bpb=bpb, loss=bpb, targets=256, params_sha256=f"{seed:064x}") if bpb else None
    return Run(
        execution="x1",
        arm=arm,
        seed=seed,
        state="finished",
        steps=1,
        tokens=plan.arms[arm].tokens,
        model_flops=plan.arms[arm].model_flops,
        evaluated=score,
        checkpoint_sha256=None,
        curve=(),
        tokens_per_second=None,
    )


def test_points_are_read_from_an_executions_runs(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    execution = Execution.model_validate(
        {"id": "x1", "at": "2026-01-01T00:00:00Z", "plan": plan, "origin": None}
    )
    runs = [run_of(plan, "w8", 0, 3.0), run_of(plan, "w8", 1, None), run_of(plan, "w16", 0, 2.0)]
    small, large = forecasting.points_of(execution, runs)
    assert (small.run, small.loss, small.targets) == ("x1.w8.s0", 3.0, 256)
    assert small.model_flops == plan.arms["w8"].model_flops
    assert small.ladder == large.ladder
    assert small.config != large.config
    assert forecasting.why_not([small, large]) is None


def test_a_forecast_rests_on_smaller_runs_of_its_ladder_each_counted_once() -> None:
    design = point(60)
    again = point(16).model_copy(update={"run": "y.w16.s0", "params_sha256": "same"})
    first = point(16).model_copy(update={"params_sha256": "same"})
    others = [point(20, text="another"), point(20, recipe="another"), point(80), point(60)]
    assert forecasting.ladder_of([first, again, *others, point(24)], design) == [first, point(24)]


def test_another_schedule_is_another_ladder(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    other = plan_of(tmp_path, LADDER.replace("warmup: 0.1", "warmup: 0.2"))
    longer = plan_of(tmp_path, LADDER.replace("num_train_steps: 10", "num_train_steps: 30"))
    first, second, third = map(ladder, (plan, other, longer))
    assert first != second
    assert first == third
