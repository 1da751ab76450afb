"""The leaderboards: frontier, ties, records, and rows that are loaded when asked for."""

import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.site.base import rows
from bot.site.facts import frontier
from bot.site.facts.lab import read_lab
from bot.site.facts.spent import Spent
from bot.site.pages import boards
from bot.site.pages.build import build
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.synthetic import PLAIN


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def finish(store, name, figures, *, steps=16, hours=0, title="A question"):
    """An execution of one arm with these figures, one a seed."""
    of = synthetic.plan(
        arms={name: synthetic.planned_arm(steps=steps)}, seeds=range(len(figures)), title=title
    )
    at = synthetic.START + timedelta(hours=hours)
    execution = synthetic.execution(of, name, at=at)
    synthetic.finish(store, execution, {(name, n): value for n, value in enumerate(figures)})
    return execution


def board_of(store):
    facts = read_lab(store)
    return boards.Board(facts.groups[0], facts)


def fronts(store):
    return {line.row.arm: line.point.fronts["flops"] for line in board_of(store).lines}


def test_the_frontier_is_who_is_best_of_all_that_cost_as_little(store):
    finish(store, "small", [3.00, 3.01], steps=16)
    finish(store, "worse", [3.50, 3.51], steps=32)
    finish(store, "large", [2.00, 2.01], steps=64)
    finish(store, "wasteful", [2.50, 2.51], steps=128)
    assert fronts(store) == {"small": "on", "large": "on", "worse": "", "wasteful": ""}


def test_a_row_not_significantly_off_the_frontier_is_tied(store):
    finish(store, "best", [2.00, 2.10], steps=16)
    finish(store, "near", [2.04, 2.14], steps=16)
    finish(store, "dear", [2.02, 2.12], steps=32)
    assert fronts(store) == {"best": "on", "near": "tied", "dear": "tied"}


def test_one_lucky_seed_is_on_no_frontier_and_breaks_no_record(store):
    finish(store, "sure", [2.00, 2.10], hours=0)
    finish(store, "lucky", [1.00], hours=1)
    finish(store, "broken", [1.00, None], hours=2)
    assert fronts(store) == {"sure": "on", "lucky": "", "broken": ""}
    assert [one.row.arm for one in board_of(store).broken] == ["sure"]


def test_a_record_is_broken_by_who_is_better_beyond_both_spreads(store):
    finish(store, "first", [3.00, 3.02], hours=0)
    finish(store, "tie", [2.98, 3.00], hours=1)
    finish(store, "second", [2.50, 2.52], hours=2)
    finish(store, "late", [2.90, 2.92], hours=3)
    found = board_of(store).broken
    assert [(one.row.arm, one.before and one.before.arm) for one in found] == [
        ("second", "first"),
        ("first", None),
    ]


def test_a_row_without_a_cost_is_left_out_of_that_frontier(store):
    finish(store, "one", [2.0, 2.1])
    found = read_lab(store).groups[0].rows
    free = replace(boards.point(found[0]), costs={"seconds": None})
    assert [one.fronts for one in frontier.placed([free])] == [{"seconds": ""}]


def test_all_rows_are_in_scripts_as_they_stand_on_the_page(store, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "CHUNK", 2)
    evil = "<script>alert(1)</script>"
    for n in range(5):
        finish(store, f"arm{n}", [2.0 + n, 2.1 + n], title=evil)
    build(store, tmp_path / "site")
    page = (tmp_path / "site" / board_of(store).path).read_text()
    (listed,) = re.findall(r'data-chunks="([^"]+)"', page)
    found = []
    for path in listed.split():
        text = (tmp_path / "site" / path).read_text()
        head, _, body = text.partition(",")
        assert head == f'regatta.take("{path}"'
        taken = json.loads(body.removesuffix(");\n"))
        found += [dict(zip(["html", *taken["keys"]], row, strict=True)) for row in taken["rows"]]
    assert [row["place"] for row in found] == [1, 2, 3, 4, 5]
    assert [row["mean"] for row in found] == pytest.approx([2.05, 3.05, 4.05, 5.05, 6.05])
    for row in found:
        assert evil not in row["html"]
        assert row["html"].replace("{root}", "../").strip() in page
        assert (row["tier"], row["author"]) == ("run by the lab", "ada")
        assert f"arm{row['place'] - 1}" in row["text"]


def test_a_column_that_is_alike_in_all_rows_is_said_once(store, tmp_path):
    finish(store, "one", [2.0, 2.1], steps=16)
    finish(store, "two", [1.5, 1.6], steps=64)
    assert board_of(store).same == {
        "author": "ada",
        "seeds": "2 seeds",
        "parameters": f"{board_of(store).lines[0].row.parameters:,} parameters",
        "status": "run by the lab",
    }
    build(store, tmp_path / "site")
    page = (tmp_path / "site" / "leaderboards.html").read_text()
    heads = page[page.index('id="board"') :].partition("</thead>")[0]
    assert ">Tokens</th>" in heads
    for left_out in ("Author", "Seeds", "Params", "Who ran it"):
        assert f">{left_out}</th>" not in heads


def test_boards_of_one_name_say_what_differs(store):
    for n, more in enumerate(({}, {"eval_tokens": 1024}, {"text": "wiki"})):
        synthetic.finish(store, synthetic.execution(synthetic.plan(**more), str(n)), PLAIN)
    facts = read_lab(store)
    found = {boards.Board(group, facts).name for group in facts.groups}
    assert found == {"stdlib, 16,384 tokens", "stdlib, 1,024 tokens", "wiki"}


def test_a_board_with_many_rows_is_a_small_page(store, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "SHOWN", 3)
    for n in range(8):
        finish(store, f"arm{n}", [2.0 + n, 2.1 + n])
    build(store, tmp_path / "site")
    page = (tmp_path / "site" / "leaderboards.html").read_text()
    assert page.count('class="pick"') == 3
    assert 'data-rows="8"' in page


def test_another_axis_of_cost_may_have_another_frontier(store):
    finish(store, "few", [2.5, 2.52], steps=16)
    finish(store, "many", [2.0, 2.02], steps=64)
    lines = {line.row.arm: line for line in board_of(store).lines}
    # Both have as many parameters, so that along these only the better one is on the frontier.
    assert lines["few"].point.fronts["flops"] == "on"
    assert lines["few"].point.fronts["parameters"] == ""
    assert lines["many"].point.fronts["parameters"] == "on"


def test_the_chart_of_costs_has_its_table_and_marks_the_frontier(store):
    finish(store, "one", [2.0, 2.02], steps=16)
    finish(store, "two", [1.5, 1.52], steps=64)
    chart = board_of(store).chart
    assert chart.length == 2
    one, two = (line.row.planned.model_flops for line in board_of(store).lines[::-1])
    assert chart.data["frontier"]["mean"] == pytest.approx([1.51, 2.01, 1.51])
    assert chart.data["frontier"]["flops"] == pytest.approx([two, one, two], rel=1e-5)
    assert "On the Pareto frontier: one 2.010" in chart.words


def test_a_board_on_which_every_row_has_one_seed_has_no_frontier(store, tmp_path):
    finish(store, "only", [2.0])
    build(store, tmp_path / "site")
    page = (tmp_path / "site" / "leaderboards.html").read_text()
    assert "no row, because none has two seeds" in page
    assert "The record is" not in page
    assert 'title="not ranked: one seed, or missing runs">–</span>' in page


def entered(row, *hardware_flops):
    """A row whose runs competed, with what was measured of them from outside."""
    result = row.entry.result.model_copy(
        update={
            "entered": tuple(
                record.EnteredRun(
                    arm=row.arm,
                    seed=seed,
                    own=False,
                    own_model=False,
                    isolated=True,
                    evaluated=None,
                    resources=record.Resources(kind="cpu"),
                    tokens=1,
                    parameters=1,
                    model_flops=1,
                    seconds=1.0,
                    hardware_flops=value,
                )
                for seed, value in enumerate(hardware_flops)
            )
        }
    )
    return replace(row, entry=row.entry.model_copy(update={"result": result}))


def test_hardware_flops_are_the_measured_ones_then_the_reported_then_a_range(store, tmp_path):
    finish(store, "one", [2.0, 2.02])
    (row,) = board_of(store).group.rows
    assert row.spent.how == "reported"  # by the lab's own training code
    measured = entered(row, 3e13, 5e13)
    assert measured.spent == Spent(4e13, 4e13, "measured")
    assert entered(row, 3e13, None).spent.how == "reported"
    silent = tuple(run.model_copy(update={"tokens_per_second": None}) for run in row.entry.runs)
    guessed = replace(row, entry=row.entry.model_copy(update={"runs": silent}))
    flops = row.planned.model_flops
    assert guessed.spent == Spent(flops / 0.5, flops / 0.2, "estimated")
    # What is only estimated is on no frontier.
    assert (measured.hardware_flops, guessed.hardware_flops) == (4e13, None)
    build(store, tmp_path / "site")
    assert "computed from the speed that the training code reported" in (
        tmp_path / "site" / "leaderboards.html"
    ).read_text(encoding="utf-8")
    told = json.loads((tmp_path / "site" / "api" / "leaderboard.json").read_bytes())
    assert told["groups"][0]["rows"][0]["hardware_flops"]["how"] == "reported"
