"""The table of all scores: by metric and arm, with intervals by seeds and by items."""

import pytest

from runner.analysis import score_table
from runner.schema.metrics import Score
from runner.schema.record import Examined, Run
from tests import synthetic

PLAN = synthetic.plan()
ACCURACY = "task/lexical/accuracy"


def scored(arm: str, values: list[float], bpb: float | None = 2.0, **keys: float) -> list[Run]:
    return [
        synthetic.run(PLAN, arm, seed, bpb).model_copy(
            update={"scores": {ACCURACY: Score(value=value, **keys)}}
        )
        for seed, value in enumerate(values)
    ]


def row(arm: str, *runs: Run) -> score_table.Row:
    return next(
        one for one in score_table.rows(PLAN, runs) if (one.metric, one.arm) == (ACCURACY, arm)
    )


def test_a_row_has_both_intervals_and_says_which_is_which() -> None:
    found = row("fast", *scored("fast", [0.5, 0.6, 0.7], items=100, standard_error=0.05))
    assert found.by_items == pytest.approx((0.6 - 0.098, 0.6 + 0.098), abs=1e-4)
    assert found.by_seeds == pytest.approx((0.6 - 0.2484, 0.6 + 0.2484), abs=1e-4)
    cells = dict(zip(score_table.HEAD, found.cells, strict=True))
    assert cells["items"] == "100"
    assert cells["95 % by items"] == "0.502 to 0.698"
    assert cells["95 % by seeds"] == "0.352 to 0.848"


def test_seeds_that_are_scored_on_the_same_items_do_not_narrow_the_interval_by_items() -> None:
    one = row("fast", *scored("fast", [0.6], items=100, standard_error=0.05))
    three = row("fast", *scored("fast", [0.6, 0.6, 0.6], items=100, standard_error=0.05))
    assert one.by_items == pytest.approx(three.by_items)
    assert one.by_seeds is None
    assert three.by_seeds is None, "seeds that change nothing count as one run"


@pytest.mark.parametrize(
    ("values", "error", "by_seeds", "by_items"),
    [
        ([0.30, 0.31, 0.29], 0.05, False, True),
        ([0.10, 0.40, 0.60], 0.001, True, False),
        ([0.10, 0.30, 0.40], 0.05, True, True),
        ([0.50, 0.51, 0.52], 0.05, False, False),
    ],
)
def test_a_score_says_which_of_its_intervals_includes_chance(
    values: list[float], error: float, by_seeds: bool, by_items: bool
) -> None:
    found = row("fast", *scored("fast", values, items=9, standard_error=error, chance=0.25))
    said = [cell.endswith(", includes chance (0.250)") for cell in found.cells[-2:]]
    assert said == [by_seeds, by_items]


def test_a_model_that_failed_the_look_ahead_probe_has_no_score_by_any_metric() -> None:
    (run,) = scored("fast", [0.9])
    assert run.evaluated
    void = Examined(positions=9, largest=1.0, void="it looks ahead")
    evaluated = run.evaluated.model_copy(update={"examined": void})
    assert score_table.rows(PLAN, [run.model_copy(update={"evaluated": evaluated})]) == []


def test_only_bits_per_byte_need_no_table_of_their_own() -> None:
    runs = [synthetic.run(PLAN, "fast", seed, 2.0) for seed in range(3)]
    assert score_table.worth_showing(PLAN, runs) == []
    assert score_table.worth_showing(PLAN, scored("fast", [0.5]))


def test_a_model_without_bits_per_byte_still_has_its_other_scores() -> None:
    found = score_table.worth_showing(PLAN, scored("fast", [0.5, 0.6], bpb=None))
    assert [one.metric for one in found] == [ACCURACY]
    assert found[0].summary.of == 3
    assert found[0].summary.n == 2
