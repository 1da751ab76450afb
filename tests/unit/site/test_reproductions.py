"""Who is credited with a row, and what a re-run says about it: it is no second row."""

from datetime import timedelta

import pytest

from bot.site.facts.entries import UNKNOWN
from bot.site.facts.lab import read_lab
from bot.site.facts.leaderboard import Row
from bot.site.facts.reproductions import Again
from bot.site.pages.build import build
from runner.schema import record
from runner.schema.metrics import Score
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import Page


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def again(store, name, figures=synthetic.PLAIN, of="1", state="done"):
    """A re-run of the execution `of`."""
    at = synthetic.START + timedelta(hours=int(name))
    execution = synthetic.execution(synthetic.plan(), name, at=at)
    told = execution.model_copy(update={"reproduces": record.execution_id(of)})
    synthetic.finish(store, told, figures, state=state)


def rows(store):
    (group,) = read_lab(store).groups
    return group.rows


def test_a_re_run_adds_no_row_and_is_counted_for_the_row_that_it_reproduces(store, tmp_path):
    plan = synthetic.plan(predictions=[synthetic.prediction()])
    synthetic.finish(store, synthetic.execution(plan), synthetic.PLAIN)
    again(store, "2")
    again(store, "3", of="2")
    assert [(row.arm, row.again) for row in rows(store)] == [
        ("fast", Again(same=2)),
        ("slow", Again(same=2)),
    ]
    build(store, tmp_path / "site")
    assert Page(tmp_path / "site" / "leaderboards.html").text.count("reproduced ×2") == 2
    assert len(read_lab(store).counted) == 1


def test_a_re_run_with_other_scores_is_said_on_the_row(store, tmp_path):
    synthetic.finish(store, synthetic.execution(synthetic.plan()), synthetic.PLAIN)
    again(store, "2", synthetic.figures([3.41, 3.47, 3.38], [2.58, 2.66, 2.8]))
    assert [row.again for row in rows(store)] == [Again(differ=1), Again(same=1)]
    build(store, tmp_path / "site")
    text = Page(tmp_path / "site" / "leaderboards.html").text
    assert "not reproduced" in text
    assert "reproduced ×1" in text


def test_a_re_run_of_what_has_no_scores_is_a_row_of_its_own(store):
    nothing = synthetic.figures([None] * 3, [None] * 3)
    synthetic.finish(store, synthetic.execution(synthetic.plan()), nothing, state="failed")
    again(store, "2")
    assert {row.entry.execution.id for row in rows(store)} == {record.execution_id("2")}


def test_equal_bits_are_counted(store):
    plan = synthetic.plan()
    of = synthetic.execution(plan)
    runs = synthetic.finish(store, of, synthetic.PLAIN)
    at = synthetic.START + timedelta(hours=1)
    second = synthetic.execution(plan, "2", at=at).model_copy(update={"reproduces": of.id})
    same = [run.model_copy(update={"execution": second.id}) for run in runs]
    synthetic.finish(store, second, synthetic.PLAIN, runs=same)
    assert [row.again for row in rows(store)] == [Again(same=1, exact=1)] * 2


def test_a_row_is_by_the_author_of_the_pull_request_and_never_by_who_approved_it(store):
    bo = record.Person(login="bo", id=15)
    synthetic.preregister(store, 1)
    asked = synthetic.plan(preregistration=1)
    for name, plan, author in (("1", asked, bo), ("2", asked, None), ("3", synthetic.plan(), None)):
        synthetic.finish(store, synthetic.execution(plan, name, author=author), synthetic.PLAIN)
    found = {entry.execution.id: entry.author for entry in read_lab(store).entries}
    wanted = {"1": "bo", "2": "ada", "3": UNKNOWN}
    assert found == {record.execution_id(name): who for name, who in wanted.items()}


# ── Boards of other metrics ──────────────────────────────────────────────────────────────────


def measured(store, name, values, metric="task/cloze/accuracy"):
    """An execution whose arms have these scores by a benchmark."""
    plan = synthetic.plan()
    models = plan.steps["evaluate"].inputs["models"]
    step = synthetic.step("benchmark", 9, {"tasks": ["cloze"]}, {"models": models})
    plan = plan.model_copy(update={"steps": plan.steps | {"benchmark": step}})
    of = synthetic.execution(plan, name)
    runs = [
        synthetic.run(plan, arm, seed, synthetic.PLAIN[arm, seed], execution=of.id).model_copy(
            update={"scores": {metric: Score(value=values[arm] + seed / 1000)}}
        )
        for arm, seed in plan.runs()
    ]
    synthetic.finish(store, of, synthetic.PLAIN, runs=runs)


def test_any_metric_with_a_direction_has_a_board_and_higher_may_be_better(
    store, tmp_path, monkeypatch
):
    identity = {"task/cloze/accuracy": "a" * 64}
    monkeypatch.setattr("bot.site.facts.leaderboard.measured_on", lambda _: identity)
    measured(store, "1", {"slow": 0.3, "fast": 0.5})
    first, second = read_lab(store).groups
    assert [first.metric, second.metric] == ["eval/bpb", "task/cloze/accuracy"]
    found: list[Row] = [*second.rows]
    assert [(row.arm, row.rank) for row in found] == [("fast", 1), ("slow", 2)]
    build(store, tmp_path / "site")
    page = Page(tmp_path / "site" / "boards" / f"{'a' * 12}-task-cloze-accuracy.html")
    assert "task/cloze/accuracy on stdlib" in page.text
    assert "Higher is better" in page.text
    assert "1 more" in Page(tmp_path / "site" / "leaderboards.html").text


def test_a_disqualified_score_is_named_with_its_reason_below_the_board(store, tmp_path):
    plan = synthetic.plan()
    of = synthetic.execution(plan)
    runs = [
        synthetic.run(plan, arm, seed, value, execution=of.id)
        for (arm, seed), value in synthetic.PLAIN.items()
    ]
    seen = record.Examined(positions=9, largest=0.5, void="it looked ahead")
    runs[0] = runs[0].model_copy(
        update={"evaluated": runs[0].evaluated.model_copy(update={"examined": seen})}
    )
    synthetic.finish(store, of, synthetic.PLAIN, runs=runs)
    build(store, tmp_path / "site")
    text = Page(tmp_path / "site" / "leaderboards.html").text
    assert "disqualified slow Does a warmer learning rate pay off in 16 steps? seed 0: it" in text
