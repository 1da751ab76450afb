"""The board: which rows are compared, what a rank says, and what is told of each execution."""

import pytest

from bot.site.facts.lab import read_lab
from bot.site.facts.leaderboard import groups, ranked
from runner.store.store import Store
from tests import synthetic


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def rows_of(store):
    (group,) = read_lab(store).groups
    return group.rows


def arms(*figures_by_arm, seeds=3):
    """Rows of one execution whose arms have these figures."""
    names = [f"a{n}" for n in range(len(figures_by_arm))]
    plan = synthetic.plan(
        arms={name: synthetic.planned_arm() for name in names}, seeds=range(seeds)
    )
    return plan, {
        (name, seed): value
        for name, values in zip(names, figures_by_arm, strict=True)
        for seed, value in enumerate(values)
    }


def ranks(store, *figures_by_arm, seeds=3):
    plan, figures = arms(*figures_by_arm, seeds=seeds)
    synthetic.finish(store, synthetic.execution(plan), figures)
    return [(row.arm, row.rank, row.tied > 1) for row in rows_of(store)]


def test_the_best_row_comes_first(store):
    assert ranks(store, [3.0, 3.1, 3.2], [2.0, 2.1, 2.2], [1.0, 1.1, 1.2]) == [
        ("a2", 1, False),
        ("a1", 2, False),
        ("a0", 3, False),
    ]


def test_rows_within_each_others_spread_share_a_rank(store):
    assert ranks(store, [2.0, 2.1, 2.2], [2.05, 2.15, 2.25], [3.0, 3.1, 3.2]) == [
        ("a0", 1, True),
        ("a1", 1, True),
        ("a2", 3, False),
    ]


def test_a_rank_holds_what_is_not_worse_than_its_first_row_and_the_next_one_counts_on(store):
    # Bands [2.0, 2.2], [2.15, 2.35], [2.3, 2.5]: the third is beyond the first alone.
    found = ranks(store, [2.0, 2.1, 2.2], [2.15, 2.25, 2.35], [2.3, 2.4, 2.5])
    assert found == [("a0", 1, True), ("a1", 1, True), ("a2", 3, False)]


def test_one_seed_stands_on_the_board_without_a_rank(store):
    assert ranks(store, [2.0], [3.0], seeds=1) == [("a0", None, False), ("a1", None, False)]


def test_seeds_that_change_nothing_are_one_seed(store):
    found = ranks(store, [2.0, 2.0, 2.0], [3.0, 3.1, 3.2])
    assert found == [("a0", None, False), ("a1", 1, False)]


def test_an_arm_with_runs_missing_has_no_rank_and_takes_none(store):
    assert ranks(store, [1.0, 1.1, None], [2.0, 2.1, 2.2]) == [
        ("a0", None, False),
        ("a1", 1, False),
    ]


def test_an_arm_without_any_figure_is_no_row(store):
    assert ranks(store, [None] * 3, [2.0, 2.1, 2.2]) == [("a1", 1, False)]


def test_figures_on_different_text_or_length_are_never_compared(store):
    plans = [
        synthetic.plan(title="one"),
        synthetic.plan(title="two"),
        synthetic.plan(title="three", text="wiki"),
        synthetic.plan(title="four", eval_tokens=1024),
    ]
    for n, plan in enumerate(plans):
        synthetic.finish(store, synthetic.execution(plan, str(n)), synthetic.PLAIN)
    found = [
        (group.data.source, group.data.eval_tokens, len(group.rows))
        for group in read_lab(store).groups
    ]
    assert found[0] == ("stdlib", 16_384, 4)
    assert sorted(found[1:]) == [("stdlib", 1024, 2), ("wiki", 16_384, 2)]


def test_a_board_with_a_rank_comes_before_a_larger_one_without(store):
    lone = synthetic.plan(seeds=range(1))
    synthetic.finish(store, synthetic.execution(lone, "1"), {("fast", 0): 2.0, ("slow", 0): 3.0})
    sure = synthetic.plan(arms={"only": synthetic.planned_arm()}, text="wiki")
    figures = {("only", seed): 2.0 + seed / 100 for seed in sure.seeds}
    synthetic.finish(store, synthetic.execution(sure, "2"), figures)
    assert [group.data.source for group in read_lab(store).groups] == ["wiki", "stdlib"]


def test_a_cancelled_execution_is_told_but_not_ranked(store):
    entry = synthetic.execution(synthetic.plan())
    synthetic.finish(store, entry, {}, state="cancelled", why="cancelled by grace", runs=[])
    lab = read_lab(store)
    assert lab.groups == ()
    assert [entry.state for entry in lab.without_figures] == ["cancelled"]


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ((), "queued"),
        (("t1.claimed",), "queued"),
        (("t1.claimed", "t1.started"), "running"),
        (("t1.claimed", "t1.started", "t1.ended", "t2.claimed"), "running"),
    ],
)
def test_the_state_of_what_has_no_result_follows_from_its_records(store, events, state):
    synthetic.begin(store, synthetic.execution(synthetic.plan()), *events)
    (running,) = read_lab(store).running
    assert running.state == state


def test_a_sealed_question_stays_on_the_wishlist_until_something_runs_for_it(store):
    synthetic.preregister(store, 1)
    synthetic.preregister(store, 2, title="Another question")
    assert {seal.issue for seal in read_lab(store).wishlist} == {1, 2}
    synthetic.begin(store, synthetic.execution(synthetic.plan(preregistration=1)))
    assert [seal.issue for seal in read_lab(store).wishlist] == [2]


def test_edits_after_the_seal_are_counted(store):
    synthetic.preregister(store, 1, edits=2)
    synthetic.begin(store, synthetic.execution(synthetic.plan(preregistration=1)))
    (entry,) = read_lab(store).entries
    assert (entry.seal.issue, len(entry.edited)) == (1, 2)


def test_a_row_has_the_verdicts_that_are_about_its_arm(store):
    predictions = [synthetic.prediction(), synthetic.prediction("> 9", versus=None)]
    plan = synthetic.plan(predictions=predictions)
    synthetic.finish(store, synthetic.execution(plan), synthetic.PLAIN)
    found = {row.arm: [verdict.outcome for verdict in row.verdicts] for row in rows_of(store)}
    assert found == {"fast": ["confirmed", "refuted"], "slow": ["confirmed"]}


def test_the_receipt_is_the_last_training_attempts(store):
    synthetic.finish(store, synthetic.execution(synthetic.plan()), synthetic.PLAIN)
    (entry,) = read_lab(store).entries
    assert entry.receipt == {"jax": "0.10.2", "device": "cpu"}
    assert list(entry.ends) == ["t1", "e1"]


def test_an_empty_store_is_a_lab(store):
    assert read_lab(store).groups == groups([]) == ranked([]) == ()
