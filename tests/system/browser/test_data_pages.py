"""The page of an output in a real browser: records, tokens and a stranger's words, wide and narrow,
light and dark, from file://, for everybody."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from bot.site.pages.build import build
from engine.data.token_store import TokenStore
from runner.store.store import Store
from tests import synthetic
from tests.system.browser.conftest import DESKTOP, PHONE, visiting
from tests.unit.site.test_data import PAGE, execute, lines, made
from tests.unit.site.test_pages import EVIL

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
TOKENS = synthetic.sha("tokens")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with the output of a step that made a text and of one that made tokens of it."""
    folder = tmp_path_factory.mktemp("data")
    store = Store(folder / "store")

    def tokens(out: Path) -> None:
        TokenStore.build(out / "train", ["words to be decoded, " * 50])

    texts = [EVIL, "a line\n" * 9, "w" * 900, "\u202etxt"]
    ends = {
        "text": made(store, lines(*texts)),
        "tokens": made(store, tokens, TOKENS, "texts.tokenize"),
    }
    execute(store, ends)
    build(store, folder / "site")
    return folder / "site"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["wide", "narrow"])
def test_records_and_tokens_are_read_by_everybody(
    lab: Path, chromium: Browser, size: dict[str, int], theme: str
) -> None:
    for visit in visiting(chromium, f"{lab.as_uri()}/", viewport=size, color_scheme=theme):
        page = visit.go(PAGE)
        expect(page.locator(".records li").first.locator("pre")).to_have_text(EVIL)
        expect(page.locator(".records li").last).to_contain_text("\\u202etxt")
        for path in (PAGE, f"data/{TOKENS[:16]}.html"):
            page = visit.go(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            # It would ask for the style sheet, which no script may do from file://.
            found = Axe().run(page, options={"preload": False}).response["violations"]
            assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        expect(page.locator(".tokens")).to_contain_text("words to be decoded, words")
        page.get_by_text("Token ids").click()
        expect(page.get_by_role("region", name="Ids of train")).to_contain_text("119 111 114 100")
        page.get_by_role("link", name="text", exact=True).click()
        expect(page.locator("h1")).to_have_text("text")
