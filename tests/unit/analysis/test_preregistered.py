"""What counts under a preregistration does not change in silence, and what differs is shown."""

import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.analysis import designs, which_runs_count
from runner.analysis.text_diff import MAX_LINES, text_diff
from runner.analysis.which_runs_count import (
    EXPLORATORY,
    RUN_AGAIN,
    Outcome,
    Registration,
    review,
)
from runner.lib.lab_code import LAB_CODE
from runner.schema import record
from runner.schema.plan_fingerprint import fingerprint
from tests import synthetic
from tests.examples import examples
from tests.synthetic import PLAIN, START, planned_arm

TEXT = "Warmer is better\n### Hypothesis\n\nIt learns more.\n"
SEAL = record.Preregistration(
    repository=7,
    issue=1,
    title="Warmer is better",
    hypothesis="It learns more.",
    predictions=(synthetic.prediction(),),
    author=synthetic.ADA,
    at=START - timedelta(hours=1),
    text_sha256=synthetic.sha(TEXT),
    text=TEXT,
)
DESIGN: dict[str, Any] = {"preregistration": 1, "predictions": SEAL.predictions}
OTHER = {"slow": planned_arm(rate=3e-4), "fast": planned_arm(rate=1e-2)}


def ran(
    hours: int,
    *,
    state: str = "done",
    figures: Any = PLAIN,
    pull: int = 2,
    took: int = 1,
    **design: Any,
) -> Outcome:
    """An execution approved after so many hours, that took so many minutes; `design` is what its
    plan has otherwise."""
    plan = synthetic.plan(**{**DESIGN, **design}).model_copy(update={"seal": SEAL.seal})
    plan = plan.model_copy(update={"fingerprint": fingerprint(plan)})
    of = synthetic.execution(plan, str(hours), at=START + timedelta(hours=hours), pull=pull)
    result = None
    if state != "running":
        result = record.Result(at=of.at + timedelta(minutes=took), state=state)
    return Outcome(of, result, {"eval/bpb": figures} if result else {})


def reviewed(*outcomes: Outcome, edits: tuple[record.Edit, ...] = ()) -> which_runs_count.Review:
    return review(Registration(SEAL, edits, outcomes))


def whys(*outcomes: Outcome) -> list[str | None]:
    return [one.why_not for one in reviewed(*outcomes).weighed]


def edit(text: str | None, hours: int = 1) -> record.Edit:
    digest = synthetic.sha(text or "unknown")
    return record.Edit(at=START + timedelta(hours=hours), text_sha256=digest, text=text)


# ── What counts ──────────────────────────────────────────────────────────────────────────────


def test_the_first_complete_execution_of_the_first_approved_design_counts() -> None:
    later = [ran(2), ran(3, arms=OTHER), ran(4, seeds=(7, 8, 9)), ran(5, arms=OTHER)]
    later[2] = Outcome(
        later[2].execution,
        later[2].result,
        {"eval/bpb": dict.fromkeys(later[2].execution.plan.runs(), 2.0)},
    )
    found = reviewed(*later, ran(1))
    assert found.counted is found.weighed[0]
    assert found.weighed[0].outcome.execution.at == START + timedelta(hours=1)
    assert [one.why_not for one in found.weighed] == [
        None, RUN_AGAIN, EXPLORATORY, EXPLORATORY, f"{EXPLORATORY}, {RUN_AGAIN}",
    ]  # fmt: skip


@pytest.mark.parametrize("state", ["failed", "cancelled", "running"])
def test_an_execution_that_came_to_nothing_seals_its_design_and_the_next_of_it_counts(
    state: str,
) -> None:
    found = [ran(1, state=state), ran(2, arms=OTHER), ran(3)]
    said = {"failed": "it failed", "cancelled": "it was cancelled", "running": "it has not ended"}
    assert whys(*found) == [said[state], EXPLORATORY, None]


def test_another_design_decides_nothing_even_where_the_sealed_one_never_came_to_its_end() -> None:
    assert reviewed(ran(1, state="cancelled"), ran(2, arms=OTHER)).counted is None


def test_an_approval_that_did_not_hold_until_the_launch_seals_nothing() -> None:
    assert whys(ran(1, state="voided", arms=OTHER), ran(2)) == [
        f"{EXPLORATORY}, it did not start",
        None,
    ]


def test_a_missing_run_makes_an_execution_incomplete_and_it_is_named() -> None:
    left = {run: bpb for run, bpb in PLAIN.items() if run != ("fast", 2)}
    found = reviewed(ran(1, figures=left), ran(2))
    assert [one.why_not for one in found.weighed] == ["it is incomplete", None]
    first, second = (found.deviations(one.outcome.execution.id) for one in found.weighed)
    assert [one.what for one in first] == ["1 of 6 runs have no score: `fast.s2`."]
    assert second == ()


def test_a_run_that_the_plan_does_not_score_leaves_nothing_open() -> None:
    """Such as a pretraining, of which only what was tuned from it is scored."""
    whole = ran(1)
    plan = whole.execution.plan
    scoring = plan.steps["evaluate"]
    models = {name: of for name, of in scoring.inputs["models"].items() if "slow" not in name}
    fewer = scoring.model_copy(update={"inputs": {**scoring.inputs, "models": models}})
    plan = plan.model_copy(update={"steps": {**plan.steps, "evaluate": fewer}})
    of = whole.execution.model_copy(update={"plan": plan})
    figures = {run: bpb for run, bpb in PLAIN.items() if run[0] == "fast"}
    assert Outcome(of, whole.result, {"eval/bpb": figures}).complete
    del figures["fast", 1]
    assert Outcome(of, whole.result, {"eval/bpb": figures}).missing == ["fast.s1"]


def test_approvals_of_one_moment_stand_in_the_order_of_their_commands() -> None:
    def approved(command: str, **design: Any) -> Outcome:
        one = ran(1, **design)
        origin = one.execution.origin
        assert origin
        origin = origin.model_copy(update={"approval": f"7/{command}"})
        id = record.execution_id(command)
        changed = one.execution.model_copy(update={"origin": origin, "id": id})
        return replace(one, execution=changed)

    for first, second in (("100-0", "100-1"), ("99-0", "100-0"), ("r9-1", "r10-0")):
        found = reviewed(approved(second, arms=OTHER), approved(first))
        assert found.counted
        assert found.counted.outcome.execution.id == record.execution_id(first)


DESIGNS = st.sampled_from([{}, {"arms": OTHER}, {"seeds": (0, 1)}])
STATES = st.sampled_from(["done", "failed", "cancelled", "voided"])


STORIES = st.lists(st.tuples(DESIGNS, STATES, st.booleans(), st.integers(1, 240)), max_size=6)


def at(moment: datetime, outcomes: list[Outcome]) -> which_runs_count.Review:
    """What was known then: of executions that had been approved, results that there were."""
    return reviewed(
        *(
            replace(one, result=None, scores={}) if one.result and one.result.at > moment else one
            for one in outcomes
            if one.execution.at <= moment
        )
    )


@given(STORIES)
@settings(max_examples=examples(30), deadline=None)
def test_a_counted_execution_keeps_counting_whatever_runs_later(
    story: list[tuple[dict[str, Any], str, bool, int]],
) -> None:
    outcomes = [
        ran(n, state=state, figures=PLAIN if whole else {}, took=took, **design)
        for n, (design, state, whole, took) in enumerate(story)
    ]
    ends = [one.result.at for one in outcomes if one.result]
    moments = sorted([*ends, *(one.execution.at for one in outcomes)])
    counted = [at(moment, outcomes).counted for moment in moments]
    ids = [one and one.outcome.execution.id for one in counted]
    first = next((n for n, id in enumerate(ids) if id), len(ids))
    assert set(ids[first:]) in (set(), {ids[first]} if first < len(ids) else set())


def test_no_design_is_chosen_by_voiding_the_first_after_a_look_at_the_second() -> None:
    queued, tried = ran(1, state="voided", took=180), ran(2, arms=OTHER)
    assert whys(queued, tried) == ["it did not start", EXPLORATORY]


def test_voiding_after_a_verdict_does_not_change_the_sealed_design() -> None:
    queued, waiting = ran(0, state="voided", took=180), ran(3, state="voided", arms=OTHER, took=62)
    answered = ran(4)
    assert whys(queued, replace(waiting, result=None), answered)[-1] is None
    assert whys(queued, waiting, answered)[-1] is None


# ── Designs ──────────────────────────────────────────────────────────────────────────────────


def test_one_design_is_one_whatever_lab_has_computed_its_fingerprint() -> None:
    plan = synthetic.plan(**DESIGN)
    upgraded = plan.model_copy(update={"fingerprint": "1" * 64, "title": "Put otherwise"})
    assert designs.same_design(plan, upgraded)
    other = synthetic.plan(**DESIGN, eval_tokens=8192)
    assert not designs.same_design(upgraded, other)


def with_code(plan: record.Plan, **code: str) -> record.Plan:
    """The plan, of which all that trains reaches this code."""
    sha256 = {f"{name}.py": synthetic.sha(words) for name, words in code.items() if name != "lab"}
    lab = {LAB_CODE: synthetic.sha(code.get("lab", ""))}
    steps = {
        name: step.model_copy(
            update={"code": lab | sha256, "fingerprint": synthetic.sha(f"{name} {code}")}
        )
        for name, step in plan.steps.items()
    }
    arms = {
        name: arm.model_copy(update={"own": {"loss": "loss:of"} if sha256 else {}})
        for name, arm in plan.arms.items()
    }
    fingerprint = synthetic.sha(f"{plan.fingerprint} {code}")
    return plan.model_copy(update={"steps": steps, "arms": arms, "fingerprint": fingerprint})


def test_a_design_in_arms_is_told_by_its_own_code_and_not_by_the_labs() -> None:
    plan = synthetic.plan(**DESIGN)
    before, upgraded = (with_code(plan, lab=words, loss="1") for words in ("then", "now"))
    assert designs.same_design(before, upgraded)
    edited = with_code(plan, lab="then", loss="2")
    assert not designs.same_design(before, edited)
    lines = designs.design_diff(before, edited)
    assert sorted({line.partition(".loss")[0] for line in lines}) == [
        f"{sign} arms.{arm}.code" for sign in "+-" for arm in ("fast", "slow")
    ]
    assert designs.same_run(before) == designs.same_run(upgraded)
    runs = designs.same_run(before), designs.same_run(edited)
    assert not set(runs[0].values()) & set(runs[1].values())


def with_steps(plan: record.Plan, more: dict[str, Any], **train: Any) -> record.Plan:
    """The plan with this in the configurations of its training, and with these steps."""
    steps = {
        name: step.model_copy(update={"config": step.config | train})
        if step.do == "train"
        else step
        for name, step in plan.steps.items()
    }
    fingerprint = synthetic.sha(f"{plan.fingerprint} {more} {train}")
    return plan.model_copy(update={"steps": steps | more, "fingerprint": fingerprint})


def test_another_benchmark_is_another_design() -> None:
    def asked(items: int) -> record.Plan:
        plan = synthetic.plan(**DESIGN)
        config = {"tasks": ["cloze"], "items": items, "files": {}, "lm_eval": [], "suite": None}
        step = synthetic.step("benchmark", 9, config, plan.steps["evaluate"].inputs)
        return with_steps(plan, {"benchmarks": step})

    assert designs.same_design(asked(500), asked(500))
    assert designs.design_diff(asked(500), asked(10)) == [
        "- measured.benchmarks.items: 500",
        "+ measured.benchmarks.items: 10",
    ]
    assert not designs.same_design(asked(500), synthetic.plan(**DESIGN))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"loss_on": ["final"]}, {"loss_on": ["assistant"]}),
        ({"init": {"schedule": "new"}}, {"init": {"schedule": "continue"}}),
    ],
)
def test_how_a_model_is_continued_makes_another_run(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    plans = [with_steps(synthetic.plan(**DESIGN), {}, **of) for of in (one, other)]
    assert not designs.same_design(*plans)
    runs, others = (set(designs.same_run(plan).values()) for plan in plans)
    assert not runs & others


def test_another_design_is_shown_with_what_differs() -> None:
    arms = {"fast": planned_arm(rate=1e-2, steps=32), "medium": planned_arm()}
    found = reviewed(ran(1), ran(2, arms=arms, seeds=(4, 5), text="wiki"))
    (said, *_) = found.deviations(found.weighed[1].outcome.execution.id)
    assert said.what == f"the design is not that of `{record.execution_id('1')}`."
    for line in (
        "- arms.fast.train.num_train_steps: 16",
        "+ arms.fast.train.num_train_steps: 32",
        "- arms.fast.train.learning_rate: 0.003",
        "+ arms.fast.train.learning_rate: 0.01",
        "- arms.slow",
        "+ arms.medium",
        "- seeds: 0, 1, 2",
        "+ seeds: 4, 5",
        "- data.source: stdlib",
        "+ data.source: wiki",
    ):
        assert line in said.diff
    assert not any("hidden_dim" in line for line in said.diff)
    assert found.deviations(found.weighed[0].outcome.execution.id) == ()


def test_a_review_lists_what_the_approval_left_out() -> None:
    one = ran(1)
    words = "It leaves out 1 of 3 seeds: 2."
    narrowed = one.execution.model_copy(update={"deviations": (words,)})
    found = reviewed(Outcome(narrowed, one.result, one.scores))
    assert [x.what for x in found.deviations(narrowed.id)] == [words]


def test_other_predictions_than_the_sealed_ones_are_shown_and_decide_nothing() -> None:
    found = reviewed(ran(1, predictions=[synthetic.prediction("< 0")]), ran(2))
    assert [one.why_not for one in found.weighed] == [which_runs_count.OTHERWISE_JUDGED, None]
    (said,) = found.deviations(record.execution_id("1"))
    assert said.what.startswith("the predictions of the plan are not the sealed ones")
    assert "-eval/bpb of fast minus slow is < -0.05, 80 % sure" in said.diff
    assert "+eval/bpb of fast minus slow is < 0, 80 % sure" in said.diff


# ── Edits ────────────────────────────────────────────────────────────────────────────────────


def deviation(*edits: record.Edit) -> which_runs_count.Deviation:
    (found,) = reviewed(ran(1), edits=edits).deviations(record.execution_id("1"))
    return found


def test_an_edit_is_shown_with_its_difference_from_what_was_sealed() -> None:
    found = deviation(edit(TEXT.replace("more", "less")))
    assert found.what == (
        "the issue was edited once after it was sealed (last edit: 2026-03-01 13:00:00 UTC). "
        "The verdict uses the sealed text."
    )
    assert "-It learns more." in found.diff
    assert "+It learns less." in found.diff


def test_an_edit_that_was_taken_back_is_said_and_has_no_difference() -> None:
    found = deviation(edit("Something else"), edit(TEXT, 2))
    assert "edited 2 times" in found.what
    assert "Its text is again the sealed one" in found.what
    assert "There were other versions in between" in found.what
    assert found.diff == ()


def test_an_edit_from_before_texts_were_kept_is_said_without_a_difference() -> None:
    found = deviation(edit(None))
    assert "have only the digest" in found.what
    assert found.diff == ()


def test_an_edit_far_to_the_right_of_a_long_line_is_seen() -> None:
    before = "word " * 2000
    found = text_diff(f"{before}more", f"{before}less")
    assert [line for line in found if line[0] in "+-"] == ["-more", "+less"]


def test_a_line_that_looks_like_the_head_of_a_difference_is_shown() -> None:
    found = text_diff("a\n-- \nb", "a\n++ \nb")
    assert [line for line in found if line[0] in "+-"] == ["--- ", "+++ "]


def test_a_difference_is_never_more_than_a_page_and_takes_no_time() -> None:
    began = time.process_time()
    many = "\n".join(str(n % 7) for n in range(900))
    for before, after in (
        ("\n" * 65_000, "x\n" * 65_000),
        (many, many[::-1]),
        ("\n".join(map(str, range(990))), "\n".join(map(str, range(990, 0, -1)))),
        ("a" * 65_000, "b" * 65_000),
    ):
        found = text_diff(before, after)
        assert 0 < len(found) <= MAX_LINES + 1
        assert all(len(line) <= 202 for line in found)
    assert time.process_time() - began < 30, "minutes would hold up every thread"


# ── Begun before the seal ────────────────────────────────────────────────────────────────────


def after(earlier: Outcome, *outcomes: Outcome) -> which_runs_count.Review:
    """What counts where the lab had begun `earlier`, under whatever plan, before the seal."""
    begun = dict.fromkeys(
        designs.same_run(earlier.execution.plan).values(),
        (SEAL.at - timedelta(hours=1), earlier.execution.id),
    )
    plans = [one.execution.plan for one in outcomes]
    known = which_runs_count.begun_before(SEAL, plans, begun)
    return review(Registration(SEAL, (), outcomes, known))


def test_a_run_from_before_the_seal_does_not_test_a_prediction() -> None:
    looked = ran(-9, preregistration=None, predictions=())
    found = after(looked, ran(1))
    assert found.counted is None
    assert found.weighed[0].why_not == which_runs_count.KNOWN
    (said,) = found.deviations(record.execution_id("1"))
    assert said.what == (
        f"6 of 6 runs began before the seal, in `{looked.execution.id}`. So the result of "
        "prediction 1 may have been known; it does not count."
    )


def test_a_known_baseline_is_said_and_what_is_new_is_judged() -> None:
    found = after(ran(-9, arms={"baseline": planned_arm(rate=3e-4)}), ran(1))
    assert found.counted
    assert found.counted.known == frozenset()
    (said,) = found.deviations(record.execution_id("1"))
    assert said.what.startswith("3 of 6 runs began before the seal")
    assert (
        after(ran(-9, arms=OTHER, seeds=(7, 8)), ran(1)).deviations(record.execution_id("1")) == ()
    )


def test_the_checkpoint_interval_does_not_change_a_runs_identity() -> None:
    arms = {"a": planned_arm(rate=3e-4), "b": planned_arm()}
    saved = {
        name: arm.model_copy(update={"train": arm.train.model_copy(update={"checkpoint_every": 3})})
        for name, arm in arms.items()
    }
    assert after(ran(-9, arms=saved, predictions=()), ran(1)).counted is None
    assert after(ran(-9, text="wiki", predictions=()), ran(1)).counted


def test_only_what_was_begun_before_the_seal_was_known() -> None:
    runs = designs.same_run(ran(1).execution.plan)
    begun = dict.fromkeys(runs.values(), (SEAL.at, "x1"))
    assert which_runs_count.begun_before(SEAL, [ran(1).execution.plan], begun) == {}
