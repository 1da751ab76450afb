"""What studies came to, as tables, sentences and JSON."""

import math
from collections.abc import Mapping

import pytest

from runner.analysis import ablation, study_results
from runner.analysis.study_results import Shown
from runner.lib.canonical_json import to_json
from runner.schema.record import Plan, Run
from runner.schema.record.executions import Examined
from tests import synthetic

Figures = Mapping[tuple[str, int], float | None]


def runs(plan: Plan, figures: Figures, speeds: Mapping[str, float] | None = None) -> list[Run]:
    return [
        synthetic.run(plan, arm, seed, figures.get((arm, seed))).model_copy(
            update={"tokens_per_second": (speeds or {}).get(arm.partition("-")[0], 9e3)}
        )
        for arm, seed in plan.runs()
    ]


def shown(plan: Plan, figures: Figures, speeds: Mapping[str, float] | None = None) -> Shown:
    (found,) = study_results.of(plan, runs(plan, figures, speeds))
    to_json(found.data)  # it has no nan
    return found


def test_the_board_has_what_pays_first_and_ties_are_ties() -> None:
    found = shown(*synthetic.ablation())
    whole, by_size = found.tables
    (good, idle) = whole.rows
    assert good[:2] == ("good", "held out")
    assert idle[:2] == ("idle", "added")
    assert "tie" not in good[2]
    assert idle[2].endswith(", a tie")
    assert found.sentences[0].startswith("`good` pays in FLOPs (")
    assert [row[:2] for row in by_size.rows[:3]] == [("good", "s"), ("good", "m"), ("good", "l")]
    assert by_size.rows[0][2].startswith("−0.0")  # with the part, the loss is lower


def test_a_held_out_part_pays_what_the_others_arms_lack() -> None:
    plan, figures = synthetic.ablation(paying=0.05)
    board = ablation.board(plan, runs(plan, figures))
    assert board
    (one, _) = board.rows
    known = one.speedups["flops"]
    assert known
    exact = []
    for size in ("s", "m", "l"):
        law = 0.6 + 30 * float(plan.arms[f"baseline-{size}"].model_flops or 1) ** -0.1
        exact.append(math.log((law + 0.05 - 0.6) / (law - 0.6)) / 0.1)
    truth = math.exp(sum(exact) / 3)
    assert known.low is not None
    assert known.high is not None
    assert known.low <= truth <= known.high
    assert known.estimate == pytest.approx(truth, rel=0.1)


def test_where_the_axis_decides_it_is_said() -> None:
    plan, figures = synthetic.ablation(paying=0.05)
    found = shown(plan, figures, {"no": 18e3})  # twice as fast without the part
    assert "the axis decides" in found.sentences[0]
    assert found.tables[0].rows[0][5] == "0.5 ×"


@pytest.mark.parametrize(("at_small", "words"), [(0.01, "it grows with"), (0.2, "it falls with")])
def test_a_speed_up_that_depends_on_the_size_says_so(at_small: float, words: str) -> None:
    plan, figures = synthetic.ablation(paying=0.08)
    moved = {
        (arm, seed): loss - 0.08 + at_small if loss and arm == "no-good-s" else loss
        for (arm, seed), loss in figures.items()
    }
    first = shown(plan, moved).sentences[0]
    assert f"in FLOPs {words} the size (" in first
    assert " × at s, " in first
    assert "with the size" not in shown(plan, moved).sentences[1]


def test_what_is_missing_is_said() -> None:
    plan, figures = synthetic.ablation()
    gone = {key: value for key, value in figures.items() if key[0] != "no-good-l"}
    assert "no seed has a score of both `baseline-l` and `no-good-l`" in " ".join(
        shown(plan, gone).sentences
    )
    slow = [run.model_copy(update={"tokens_per_second": None}) for run in runs(plan, figures)]
    (found,) = study_results.of(plan, slow)
    assert "in seconds: the time of a run is not known" in found.sentences[0]
    assert study_results.of(plan, []) == []


def test_few_seeds_are_exploratory() -> None:
    assert any("Exploratory: 2 seeds" in words for words in shown(*synthetic.ablation(2)).sentences)
    assert "no interval" in shown(*synthetic.ablation(1)).tables[0].rows[0][2]


def test_an_isoflop_analysis_has_its_optima_and_what_each_size_needs() -> None:
    plan, figures = synthetic.isoflop()
    found = shown(plan, figures)
    optima, sizes = found.tables
    assert [row[0] for row in optima.rows] == ["1.00e12", "4.00e12", "1.00e15"]
    assert optima.rows[-1][-1] == "by the law"
    assert [row[0] for row in sizes.rows] == ["w32", "w64", "w96", "w128"]
    assert found.sentences[0].startswith("D*(C) = ")


def test_budgets_without_a_minimum_say_what_is_missing() -> None:
    plan, figures = synthetic.isoflop()
    falling = {key: 3 - int(key[0].partition("-")[0][1:]) / 1e3 for key in figures}
    (words,) = shown(plan, falling).sentences
    assert words.startswith("There is no optimum. 1e12 FLOPs: ")


def test_own_code_is_counted_by_its_trace_and_its_seconds_are_not_known() -> None:
    plan, figures = synthetic.ablation(paying=0.05)
    own = {
        name: arm.model_copy(update={"own": {"model": "m:M"}, "model_flops": None})
        for name, arm in plan.arms.items()
        if name.startswith("no-good")
    }
    plan = plan.model_copy(update={"arms": {**plan.arms, **own}})
    probed = [
        run.model_copy(
            update={
                "evaluated": run.evaluated.model_copy(
                    update={
                        "examined": Examined(
                            positions=1,
                            largest=0.0,
                            forward_flops_per_token=plan.arms["idle-s"].forward_flops_per_token,
                        )
                    }
                )
            }
        )
        if run.arm in own and run.evaluated
        else run
        for run in runs(synthetic.ablation()[0], figures)
    ]
    board = ablation.board(plan, probed)
    assert board
    good = next(row for row in board.rows if row.name == "good")
    assert good.flops_per_token == pytest.approx(1.0)
    assert good.speedups["flops"]
    assert good.speedups["seconds"] is None
    unknown = ablation.board(plan, runs(synthetic.ablation()[0], figures))
    assert unknown
    assert "the FLOPs of `no-good-s` are not known" in " ".join(row.why for row in unknown.rows)
