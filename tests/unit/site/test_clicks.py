"""What people ask of a site is at most two clicks away, along links that are there."""

import re
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from runner.schema import record
from tests.unit.site.test_words import FORM, REPOSITORY
from tests.unit.site.test_words import site as site  # a fixture

RAN, ROWS = record.execution_id("9"), "leaderboards.html"  # an execution of steps
MAX_CLICKS = 2


class Links(HTMLParser):
    """Where the links of a page lead, and those of the leaderboard's first row."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.all: list[str] = []
        self.first_row: list[str] = []
        self.rows, self.board = 0, False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.board |= given.get("id") == "board"
        self.rows += tag == "tr" and self.board
        if tag == "a" and given.get("href"):
            self.all.append(str(given["href"]))
            if self.rows == 2:  # after that of the headings
                self.first_row.append(str(given["href"]))


def followed(page: str, links: Iterable[str]) -> set[str]:
    """Links of a page as places: addresses elsewhere, or paths in the site with their fragment."""
    found = set()
    for link in links:
        parts = urlsplit(link)
        if parts.scheme:
            found.add(link)
        else:
            at = (Path("/") / page).parent / unquote(parts.path) if parts.path else Path("/") / page
            path = at.resolve().as_posix()[1:]
            found.add(f"{path}#{parts.fragment}" if parts.fragment else path)
    return found


def clicks(site: Path, begin: Iterable[str], wanted: str) -> int:
    """How many clicks lead to a place that `wanted` matches, where `begin` is one click away."""
    front, seen = set(begin), set[str]()
    for n in range(1, MAX_CLICKS + 3):
        if any(re.fullmatch(wanted, place) for place in front):
            return n
        seen |= front
        pages = {place.partition("#")[0] for place in front}
        pages = {page for page in pages if page.endswith(".html") and (site / page).is_file()}
        front = {to for page in pages for to in followed(page, Links(site / page).all)} - seen
    return 99


def from_page(site: Path, page: str) -> set[str]:
    return followed(page, Links(site / page).all)


def from_row(site: Path) -> set[str]:
    return followed(ROWS, Links(site / ROWS).first_row)


HOST = re.escape(REPOSITORY)
RUN = r"runs/.*\.html"


@pytest.mark.parametrize(
    ("question", "begin", "wanted"),
    [
        ("from a result's comment to a run", f"executions/{RAN}/index.html", RUN),
        ("from a row to its pull request", ROWS, rf"{HOST}/pull/\d+"),
        ("from a row to its commit", ROWS, rf"{HOST}/commit/\w+"),
        ("from a row to its run", ROWS, RUN),
        ("from a row to its experiment", ROWS, r"experiments/.*\.html"),
        ("from a run to its pull request", f"runs/{record.execution_id('1')}.fast.s0.html",
         rf"{HOST}/pull/2"),
        ("from a run to its data", f"runs/{RAN}.fast.s0.html", r"data/.*\.html"),
        ("from the front to the issue form", "index.html", re.escape(FORM)),
        ("from the front to the repository", "index.html", HOST),
        ("from any page to the search", f"runs/{RAN}.fast.s0.html", "experiments.html"),
        ("from the front to a person", "index.html", r"people/\d+\.html"),
    ],
)  # fmt: skip
def test_it_is_two_clicks_away(site: Path, question: str, begin: str, wanted: str) -> None:
    start = from_row(site) if begin == ROWS else from_page(site, begin)
    assert clicks(site, start, wanted) <= MAX_CLICKS, question


def test_from_a_row_it_is_two_clicks_to_how_to_reproduce_it(site: Path) -> None:
    runs = [place for place in from_row(site) if place.startswith("executions/")]
    (page,) = {place.partition("#")[0] for place in runs}
    pages = [place for place in from_page(site, page) if re.fullmatch(RUN, place)]
    assert pages
    for place in pages:
        assert '<h2 id="again">How to reproduce it</h2>' in (site / place).read_text()


def test_every_box_of_a_drawn_provenance_leads_to_its_output(site: Path) -> None:
    html = (site / f"runs/{RAN}.fast.s0.html").read_text()
    drawing = html[html.index('<svg class="graph"') : html.index("Provenance as a list")]
    assert re.search(r'<a href="\.\./data/\w+\.html" tabindex="-1">', drawing)
