"""A curve of a million points: what is left of it, and how long drawing that takes in a browser.
The time is printed (`pytest -s`); only one that nobody would wait for fails."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from bot.site.charts.curves import MAX_POINTS
from bot.site.pages.build import build
from runner.store.store import Store
from tests import synthetic
from tests.system.browser.conftest import DESKTOP, visiting

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(240)]

POINTS, AT, SPIKE = 1_000_000, 654_321, 19.5
PATIENCE = 10_000.0  # milliseconds

DRAWING = """async () => {
  const plot = document.querySelector('#loss .plot');
  plot.scrollIntoView();
  const begin = performance.now();
  while (!plot.querySelector('canvas, svg.marks')) {
    await new Promise((go) => requestAnimationFrame(go));
    if (performance.now() - begin > 60000) throw new Error('no chart came');
  }
  await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
  return performance.now();
}"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A site with one run of a million points, one of which is a spike; and the run's name."""
    folder = tmp_path_factory.mktemp("million")
    store = Store(folder / "store")
    plan = synthetic.plan(arms={"fast": synthetic.planned_arm(steps=POINTS)}, seeds=[0])
    curve = [(step, 5.0 - 3.0 * step / POINTS) for step in range(1, POINTS + 1)]
    curve[AT - 1] = (AT, SPIKE)
    of = synthetic.execution(plan)
    run = synthetic.run(plan, "fast", 0, 2.9, execution=of.id, curve=curve)
    synthetic.finish(store, of, {("fast", 0): 2.9}, runs=[run])
    build(store, folder / "site")
    return folder / "site", f"{of.id}.fast.s0"


def test_a_thinned_curve_of_a_million_points_keeps_its_spike(
    lab: tuple[Path, str],
) -> None:
    site, name = lab
    script = (site / "runs" / f"{name}.js").read_text()
    _, body = json.loads("[" + script.removeprefix("regatta.take(").removesuffix(");\n") + "]")
    points = dict(zip(*body["data"]["curve"].values(), strict=True))
    assert points[AT] == SPIKE
    assert len(points) <= MAX_POINTS
    assert {1, POINTS} <= points.keys()
    page = (site / "runs" / f"{name}.html").read_text()
    assert f"The chart shows {len(points):,} of 1,000,000 points" in page
    assert len(page) + len(script) < 300_000


def test_a_million_points_are_drawn(
    lab: tuple[Path, str], chromium: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    site, name = lab
    for visit in visiting(chromium, f"{site.as_uri()}/", viewport=DESKTOP):
        page = visit.go(f"runs/{name}.html")
        took = page.evaluate(DRAWING)
        with capsys.disabled():
            print(f"\na million points: drawn {took:.0f} ms after the page was asked for")
        assert took < PATIENCE
