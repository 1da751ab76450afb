"""A site of a small lab in a real browser, from http:// below a sub-path and from file://.

A page that writes an error to the console, throws, or asks another host for anything fails the test
that looked at it.
"""

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from bot.site.pages.build import build
from runner.store.store import Store
from tests import synthetic
from tests.unit.analysis.test_speedrun import CLEAN
from tests.unit.site.test_entered import merge

BELOW = "labs/ours"  # a site need not lie at the root of its host
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@dataclass
class Visit:
    """A page of the site in a browser, and what went wrong on it."""

    page: Page
    root: str
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", self._asked)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.root, "data:", "blob:")):
            self.wrong.append(f"it asked for {request.url}")

    def go(self, path: str) -> Page:
        """Open a page by its path in the site, which may have a query and a fragment."""
        self.page.goto(f"{self.root}{path}")
        return self.page


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a lab with finished, failed, running and wished-for experiments."""
    folder = tmp_path_factory.mktemp("lab")
    store = Store(folder / "store")
    synthetic.preregister(store, 1, edits=1)
    synthetic.board(store, 60, asked=True)
    running = synthetic.execution(synthetic.plan(title="A longer run"), "running", pull=99)
    # cdevroe/signboard#54, panther-labs/panther#1817, codetree/feedback#96, influxdata/ui#3860,
    # metamaps/metamaps#349: a title without a space
    endless = synthetic.execution(
        synthetic.plan(title="W" * 200), "endless", pull=97, at=synthetic.START + timedelta(days=60)
    )
    synthetic.finish(store, endless, synthetic.figures([2.1, 2.2, 2.3], [2.0, 2.1, 2.2]))
    synthetic.begin(store, running, "t1.claimed", "t1.started")
    synthetic.finish(
        store,
        synthetic.execution(synthetic.plan(title="What broke"), "broken", pull=98),
        synthetic.figures([None, None, None], [None, None, None]),
        state="failed",
        why="three attempts were lost",
    )
    synthetic.speedruns(store)
    for n in range(6):
        told = {
            "author": CLEAN["author"] | {"name": ("Ada", "Bo")[n % 2]},
            "eval/paloma/c4_en/bpb": 1.2 + 0.01 * n,
            "wandb_run_link": None,
        } | ({"training_time": -1.0} if n == 4 else {})
        merge(store, CLEAN | told, pull=600 + n, path=f"experiments/e{n}/speedrun_results.json")
    out = folder / "www" / BELOW
    build(store, out, lab="Test lab", repository_url="https://github.com")
    return out


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="session")
def served(site: Path) -> Iterator[str]:
    """Its address on loopback."""
    top = site.parents[BELOW.count("/")]
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Quiet, directory=str(top))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/{BELOW}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    path = shutil.which("chromium")
    assert path, "there is no Chromium here; `make test-browser` installs it, or says how"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=["http", "file"])
def visit(
    request: pytest.FixtureRequest, chromium: Browser, site: Path, served: str
) -> Iterator[Visit]:
    """A visitor of the site at a desk, by each of the two ways."""
    root = served if request.param == "http" else f"{site.as_uri()}/"
    yield from visiting(chromium, root, viewport=DESKTOP)


def visiting(chromium: Browser, root: str, **how: Any) -> Iterator[Visit]:
    """A visitor who has never been here; what went wrong on the way is said at the end."""
    context = chromium.new_context(**how)
    context.set_default_timeout(20_000)
    try:
        found = Visit(context.new_page(), root)
        yield found
        assert found.wrong == []
    finally:
        context.close()
