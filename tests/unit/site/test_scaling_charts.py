"""Other labs’ groups along each axis: projections, intervals, and whom the axis favours."""

import pytest

from bot.site.charts import scaling_charts
from bot.site.pages.build import build
from runner.store.store import Store
from tests.unit.site.test_pages import Page


@pytest.fixture(scope="module")
def sides():
    return [scaling_charts.side(axis) for axis in scaling_charts.AT]


def test_each_projection_carries_its_interval_and_what_one_size_changes(sides):
    for along in sides:
        assert len(along.groups) + len(along.refused) == 18
        for one in along.groups:
            assert one.forecast.low <= one.forecast.loss <= one.forecast.high
            assert one.left_out[0] <= one.left_out[1]
            assert one.forecast.low >= along.floor


def test_a_group_that_cannot_be_told_apart_from_the_best_shares_its_place(sides):
    along = sides[0]
    best = along.groups[0]
    for one in along.groups:
        better = sum(other.forecast.high < one.forecast.low for other in along.groups)
        assert one.rank == better + 1
        if one.forecast.low <= best.forecast.high:
            assert one.rank == 1
    assert best.tied > 1  # on these rows a plain order would claim more than is known


def test_the_axis_changes_who_leads(sides):
    leaders = {along.groups[0].group for along in sides}
    assert len(leaders) > 1
    first, *_ = scaling_charts.changed(sides)
    ranks = [place.rank for place in first[1] if place]
    assert max(ranks) > min(ranks)


def test_a_chart_of_an_axis_has_bands_where_it_has_colours(sides):
    chart = scaling_charts.chart(sides[0], "Model FLOPs")
    law = chart.data["law"]
    banded = {group for group, low in zip(law["group"], law["low"], strict=True) if low is not None}
    assert len(banded) == scaling_charts.COLOURED
    assert max(law["c"]) == 1e22
    assert chart.length == 18


def test_the_scaling_page_has_a_chart_and_a_table_for_each_axis(tmp_path):
    build(Store(tmp_path / "store"), tmp_path / "site")
    page = Page(tmp_path / "site" / "scaling.html")
    assert {"model_flops", "training_hardware_flops", "model_size"} <= set(page.ids)
    assert "Ranks by axis" in page.text
    for axis in scaling_charts.AT:
        assert (tmp_path / "site" / f"scaling.{axis}.js").is_file()
