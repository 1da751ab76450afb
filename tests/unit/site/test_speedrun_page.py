"""The speedrun's page: ties, intervals, what has no rank, and the frontier of cost and quality."""

import json
import re
from pathlib import Path

import pytest

from bot.site.facts.lab import read_lab
from bot.site.pages import tracks as page
from bot.site.pages.build import build
from runner.analysis import speedrun_position
from runner.schema import lab_config, tracks
from runner.store.store import Store
from tests import synthetic

TRACKS = lab_config.defaults().tracks
COST, BUDGET = TRACKS["small-cost"], TRACKS["small-budget"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def lines(store: Store, track: tracks.Track = COST) -> dict[str, page.Line]:
    found = page.competitions(read_lab(store).competing, TRACKS)
    return {
        line.row.title.partition(": ")[2]: line
        for one in found
        if one.track == track
        for line in one.lines
    }


def test_the_frontier_is_of_measured_cost_and_quality(store: Store) -> None:
    synthetic.compete(store, COST, "cheap", [2.09, 2.08], hardware_flops=1e13)
    synthetic.compete(store, COST, "dear", [2.01, 2.00], hardware_flops=4e13)
    synthetic.compete(store, COST, "wasteful", [2.05, 2.04], hardware_flops=9e13)
    fronts = {name: line.point.fronts["hardware_flops"] for name, line in lines(store).items()}
    assert fronts == {"cheap": "on", "dear": "on", "wasteful": ""}


def test_claimed_model_flops_of_own_code_give_no_place(store: Store) -> None:
    """It is shown, and neither sorts, nor ranks, nor stands on the frontier of model FLOPs."""
    synthetic.compete(store, COST, "plain", [2.05, 2.06], hardware_flops=4e13)
    synthetic.compete(store, COST, "mine", [2.03, 2.04], own=True, tokens=1, hardware_flops=9e13)
    mine = lines(store)["mine"]
    assert mine.row.model_flops[0] < lines(store)["plain"].row.model_flops[0]
    assert page.keys(mine)["flops"] is None
    assert (mine.ranked.rank, mine.point.fronts["flops"]) == (2, "")
    assert mine.point.fronts["hardware_flops"] == "on"
    assert speedrun_position.value(COST, mine.ranked).startswith("9.04e13 ± ")
    assert speedrun_position.value(COST, mine.ranked).endswith(" hardware")


def test_a_track_says_whether_the_other_kind_of_flops_would_change_who_leads(store: Store) -> None:
    synthetic.compete(store, COST, "short", [2.05, 2.06], tokens=10**5, hardware_flops=9e13)
    synthetic.compete(store, COST, "quick", [2.05, 2.06], tokens=10**6, hardware_flops=1e13)
    first = page.competitions(read_lab(store).competing, TRACKS)[0]
    assert first.ranked[0].row.title.endswith(": short")
    assert first.otherwise.endswith(f"hardware FLOPs, A run for {COST.name}: quick would lead.")
    synthetic.compete(store, COST, "both", [2.05, 2.06], tokens=10**4, hardware_flops=1e12)
    first = page.competitions(read_lab(store).competing, TRACKS)[0]
    assert first.otherwise == "If the track counted hardware FLOPs, the same row would lead."


def test_a_row_that_is_void_is_on_no_frontier_and_sorts_behind(store: Store) -> None:
    synthetic.compete(store, BUDGET, "honest", [2.05, 2.06])
    synthetic.compete(store, BUDGET, "seer", [0.9, 0.9], own=True, void="it looked ahead")
    seer = lines(store, BUDGET)["seer"]
    assert (seer.summary, seer.point.fronts, page.keys(seer)["mean"]) == (None, {}, None)
    assert seer.ranked.why == "seed 0: it looked ahead"


def test_one_seed_is_ranked_and_is_on_no_frontier(store: Store) -> None:
    synthetic.compete(store, BUDGET, "sure", [2.05, 2.06])
    synthetic.compete(store, BUDGET, "lucky", [1.9])
    lucky = lines(store, BUDGET)["lucky"]
    assert (lucky.ranked.rank, lucky.point.fronts["hardware_flops"]) == (1, "")


def test_a_rank_by_one_seed_says_that_its_spread_is_stated(store: Store, tmp_path: Path) -> None:
    track = next(one for one in TRACKS.values() if one.kind == "budget" and one.seeds is None)
    synthetic.compete(store, track, "sure", [2.05, 2.06])
    synthetic.compete(store, track, "lucky", [1.9])
    assert {name: line.stated for name, line in lines(store, track).items()} == {
        "sure": None,
        "lucky": track.spread,
    }
    build(store, tmp_path / "site")
    html = (tmp_path / "site" / "speedrun.html").read_text(encoding="utf-8")
    assert html.count(">stated spread</span>") == 1


def test_ties_are_written_as_ties_and_every_chart_has_its_table(
    store: Store, tmp_path: Path
) -> None:
    synthetic.speedruns(store)
    build(store, tmp_path / "site")
    html = (tmp_path / "site" / "speedrun.html").read_text(encoding="utf-8")
    assert html.count('title="tied with 1 other row">1<span class="hidden"> tied</span>') == 1 + 1
    assert "2.080 ± 0.010" in html
    charts = re.findall(r'<figure class="chart" id="([^"]+)"', html)
    tracks = ("small-cost", "small-budget")
    assert charts == [f"{track}-{what}" for track in tracks for what in ("records", "cost")]
    for name in charts:
        figure = html[html.index(f'id="{name}"') :]
        assert "<tbody>\n<tr><td>" in figure[: figure.index("</figure>")]
    script = (tmp_path / "site" / "speedrun" / "small-budget.0.js").read_text(encoding="utf-8")
    told = json.loads(re.fullmatch(r'regatta\.take\("[^"]+",(.*)\);\n', script, re.DOTALL)[1])
    assert len(told["rows"]) == 60
    assert html.count(">A run for small-budget: try-") < 60 * 2  # on the page, its first rows
    twin = json.loads((tmp_path / "site" / "api" / "speedrun.json").read_bytes())
    fronts = {row["title"]: row["front"] for row in twin["small-cost"]["rows"]}
    assert "hardware_flops" in fronts["A run for small-cost: quick"]
    assert fronts["A run for small-cost: seer"] == []
