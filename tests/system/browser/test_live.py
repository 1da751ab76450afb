"""The live page of what trains now, in a real browser: it moves while a step trains."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, expect
from starlette.staticfiles import StaticFiles

from bot.service import live
from bot.site.pages.build import build
from bot.site.pages.templating import look
from runner.store.store import Store
from tests import synthetic
from tests.system.browser.conftest import DESKTOP, visiting
from tests.unit.site.test_live import NAME, report

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A lab in which an execution of arms and seeds has begun to train."""
    store = Store(tmp_path / "store")
    synthetic.begin(store, synthetic.execution(synthetic.plan()), "t1.claimed", "t1.started")
    return store


@pytest.fixture
def served(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of its pages, which ask again every second."""
    monkeypatch.setattr(live, "SECONDS", 1)
    build(store, tmp_path / "site")
    app = FastAPI()
    app.include_router(live.routes(live.Live(store, look("Lab", live=True))))
    app.mount("/", StaticFiles(directory=tmp_path / "site", html=True))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("path", [f"live/{NAME}", f"live/{NAME}/fast.s1"], ids=["all", "one run"])
def test_a_steps_live_page_moves_while_it_trains(
    store: Store, served: str, chromium: Browser, path: str
) -> None:
    for visit in visiting(chromium, served, viewport=DESKTOP):
        page = visit.go(path)
        row = page.locator("#reported tbody tr", has_text="fast.s1")
        expect(row.locator("td").first).to_have_text("0")
        assert page.locator("figure[data-chart]").count() == 0
        report(store, "fast.s1", 1, 2, 3)
        expect(row.locator("td").first).to_have_text("3")
        drawn = page.locator("figure[data-chart] .mark-line path").first
        before = drawn.get_attribute("d")
        report(store, "fast.s1", 4, 5, 6, 7)
        expect(row.locator("td").first).to_have_text("7")
        expect(row.locator("td").nth(2)).to_have_text("4.3")
        expect(page.locator("[data-fact=tokens]")).to_contain_text("28.7k of")
        expect(drawn).not_to_have_attribute("d", str(before))
