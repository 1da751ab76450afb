"""Charts: honest where points are left out, whole without scripts, and files a page can load."""

import json
import time

import numpy as np
import pytest

from bot.site.base import chart
from bot.site.base.drawn import Axis, Drawing, Mark
from bot.site.charts import curves
from bot.site.facts.entries import read_entry
from runner.lib.downsample import kept
from runner.store.store import Store
from tests import synthetic


def curve_of(n, spikes):
    y = 2.0 + np.exp(-np.arange(n) / n * 5)
    y[list(spikes)] = [9.0 + i for i in range(len(spikes))]
    return y


def test_a_million_points_are_thinned_and_each_spike_stays():
    spikes = [1, 77_777, 500_000, 999_998]
    y = curve_of(1_000_000, spikes)
    begin = time.monotonic()
    stay = kept(y, 4_000)
    assert time.monotonic() - begin < 1
    assert set(spikes) <= set(stay.tolist())
    assert (stay[0], stay[-1]) == (0, 999_999)
    assert len(stay) <= 4_000
    assert np.all(np.diff(stay) > 0)


@pytest.mark.parametrize("n", [0, 1, 4, 5, 11, 97, 1000])
def test_the_least_and_the_greatest_of_each_stretch_stay(n):
    y = np.random.default_rng(n).normal(size=n)
    stay = kept(y, 10)
    assert len(stay) <= max(10, 4)
    if n:
        assert {int(y.argmin()), int(y.argmax()), 0, n - 1} <= set(stay.tolist())
    if n <= 10:
        assert stay.tolist() == list(range(n))


@pytest.fixture
def entry(tmp_path):
    store = Store(tmp_path / "store")
    execution = synthetic.execution(synthetic.plan())
    synthetic.finish(store, execution, synthetic.PLAIN)
    return read_entry(store, execution.id)


def body_of(one):
    head, _, rest = one.source().partition(",")
    assert head == f'regatta.take("{one.script}"'
    return json.loads(rest.removesuffix(");\n"))


def test_a_charts_figures_are_a_script_that_names_its_own_path(entry):
    one = curves.of_execution(entry)
    body = body_of(one)
    assert one.script == f"executions/{entry.execution.id}/loss.js"
    assert {spec["data"]["name"] for spec in body["spec"]["layer"]} <= set(body["data"])
    assert "datasets" not in body["spec"]
    # The script fills in the rows that the page has not, below the headings that it has.
    assert list(body["columns"]) == list(one.columns)
    assert set(body["data"]["means"]["arm"]) == {"slow", "fast"}


def test_the_curve_of_a_run_is_drawn_along_tokens_steps_and_flops(entry):
    run = entry.runs[0]
    one = curves.of_run(entry, run)
    arm = entry.plan.arms[run.arm]
    assert list(one.choices["x"]) == ["tokens", "step", "flops"]
    assert one.derived["tokens"] == ("step", arm.tokens_until(1))
    of, times = one.derived["flops"]
    assert of == "step"
    assert times * arm.train.num_train_steps == pytest.approx(arm.model_flops)
    assert one.rows[-1] == [16, arm.tokens, pytest.approx(run.curve[-1][1], abs=1e-5)]


def test_a_thinned_curve_says_so_and_keeps_its_spike(entry):
    long = [(step, 9.0 if step == 12_345 else 2.0 + step % 7 / 100) for step in range(1, 50_001)]
    plan, run = entry.plan, entry.runs[0].model_copy(update={"curve": tuple(long)})
    assert plan.arms[run.arm].tokens  # the plan's own length does not matter here
    one = curves.of_run(entry, run)
    assert max(one.data["curve"]["loss"]) == 9.0
    assert "of 50,000 points" in one.note
    assert one.length <= curves.MAX_POINTS


def test_a_drawing_shows_every_mark_without_a_script_and_no_word_as_code():
    marks = [
        Mark([(1, 2.0), (10, 1.0)], name="<b>"),
        Mark([(1, 2.0), (10, 1.0)], "steps", 1),
        Mark([(1, 1.9, 2.1), (10, 0.9, 1.1)], "band", 1),
        Mark([(1, 1.9, 2.1)], "whiskers"),
        Mark([(5, 1.5)], "dots", 8),
    ]
    svg = Drawing(Axis("C", log=True), Axis("Loss & more"), marks).svg
    for look in ("line c0", "line c1", "band c1", "line thin c0", "dots c1"):
        assert f'class="{look}"' in svg
    assert "&lt;b&gt;" in svg
    assert "Loss &amp; more" in svg
    assert "nan" not in svg
    assert Drawing(Axis("x"), Axis("y"), []).svg == ""


@pytest.mark.parametrize(
    ("log", "low", "high"),
    [(False, 0, 65_536), (False, 2.1, 2.1), (False, -1, 1), (True, 1e15, 3e21), (True, 3, 5)],
)
def test_an_axis_has_a_handful_of_round_figures(log, low, high):
    from bot.site.base.drawn import _Scale

    ticks = _Scale(Axis("x", log), [low, high], 0).ticks()
    assert 2 <= len(ticks) <= 12
    assert ticks == sorted(ticks)


def test_vega_is_one_script_that_asks_nobody():
    bundle = chart.vega()
    assert "vegaEmbed" in bundle
    assert len(bundle) < 1_000_000
    assert "import " not in bundle[:200]
