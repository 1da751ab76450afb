"""Every page of a lab that has something of everything: plain words, one name for each part of a
page, one target for each download, headings over all columns."""

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.staticfiles import StaticFiles

from bot.site.pages.build import build
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.unit.analysis.test_speedrun import CLEAN
from tests.unit.site.test_data import execute, lines, made
from tests.unit.site.test_entered import merge

HOST = "https://git.example"
REPOSITORY = f"{HOST}/{synthetic.REPOSITORY_NAME}"
FORM = f"{REPOSITORY}/issues/new?template=experiment.yml"

# Words that a reader has to translate, and what to write instead.
RIDDLES = {
    r"foretold|foretell": "predicted, forecast",
    r"told apart": "tied",
    r"\bstands\b|\bstood\b": "is, was",
    r"\blies\b|\blay\b": "is, was",
    r"by the clock": "wall time",
    r"came out|came true|come out": "measured, confirmed",
    r"\bheld it\b|intervals? held": "inside the interval",
    r"the same as json": "Download JSON (of what)",
    r"told\b": "said, reported",
    r"beyond (both|the) spreads?": "by more than the sum of the spreads",
    r"\ba (token|second)\b": "per token, per second",
    r"nobody trained on": "held-out",
    r"in the words of": "comment",
    r"\bword\b": "report",
    r"not believed": "rejected",
    r"reckon|hopeful|whatever it says": "say it plainly",
}
ROOMY = ("script", "style", "pre", "dd")  # people's own words are in the last two
NAMED = ("section", "nav", "form", "div", "pre")


class Told(HTMLParser):
    """What a page says: its sentences and tooltips, and the names of its parts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.by_id: dict[str, str] = {}
        self.parts: list[str] = []  # ids, as `#id`, or names
        self.headings: list[str] = []
        self.downloads: list[tuple[str, str]] = []
        self.folded: set[str] = set()  # terms within <details>
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.words += [given[key] for key in ("title", "aria-label", "placeholder") if key in given]
        if tag in NAMED and (tag in ("section", "nav") or given.get("role") == "region"):
            at = given.get("aria-labelledby")
            self.parts.append(f"#{at}" if at else given.get("aria-label", ""))
        if tag not in ("meta", "link", "br", "input", "img", "hr"):
            self.open.append((tag, given | {"text": ""}))

    def handle_endtag(self, tag: str) -> None:
        _, given = self.open.pop()
        text = " ".join(given["text"].split())
        if self.open:
            self.open[-1][1]["text"] += f" {text} "
        if "id" in given:
            self.by_id[given["id"]] = text
        if tag == "th":
            self.headings.append(text)
        if tag == "a" and given["href"].endswith(".json"):
            self.downloads.append((text, given["href"]))
        if tag == "dt" and any(one == "details" for one, _ in self.open):
            self.folded.add(text)

    def handle_data(self, data: str) -> None:
        if self.open:
            self.open[-1][1]["text"] += data
        if not any(tag in ROOMY for tag, _ in self.open):
            self.words.append(data)

    @property
    def names(self) -> list[str]:
        """What its sections and regions are called."""
        return [self.by_id[one[1:]] if one.startswith("#") else one for one in self.parts]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("words")
    store = Store(place / "store")
    predictions = [synthetic.prediction(), synthetic.prediction("2.0 ± 0.2", versus=None)]
    seal = synthetic.preregister(store, 1, edits=1, predictions=predictions)
    plan = synthetic.plan(preregistration=1, predictions=predictions)
    plan = plan.model_copy(update={"seal": seal.seal})
    for name in ("1", "2"):  # the second one runs again
        ended = synthetic.execution(plan, name)
        synthetic.finish(store, ended, synthetic.PLAIN, refused=["eval.json: too large"])
    synthetic.begin(
        store, synthetic.execution(synthetic.plan(title="A longer run"), "3"), "t1.started"
    )
    synthetic.preregister(store, 3, title="Does weight decay matter?")
    synthetic.finish(
        store,
        synthetic.execution(synthetic.plan(title="What broke"), "4"),
        synthetic.figures([None] * 3, [None] * 3),
        state="failed",
        why="three attempts were lost",
    )
    synthetic.finish(store, synthetic.execution(synthetic.plan(), "8", pull=None), synthetic.PLAIN)
    synthetic.board(store, 3)
    synthetic.speedruns(store)
    execute(store, {"text": made(store, lines("a text"))}, "9")
    merge(store, CLEAN | {"training_time": -1.0})
    build(store, place / "site", repository_url=HOST)
    return place / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Told]:
    return {path.relative_to(site).as_posix(): Told(path) for path in site.rglob("*.html")}


def test_no_page_speaks_in_riddles(pages: dict[str, Told]) -> None:
    found = {
        f"{path}: “{hit}”, write {better!r}: {' '.join(words.split())[:90]}"
        for path, page in pages.items()
        for riddle, better in RIDDLES.items()
        for words in page.words
        for hit in [m.group() for m in re.finditer(riddle, words, re.IGNORECASE)]
    }
    assert found == set()


def test_each_part_of_a_page_has_a_name_of_its_own(pages: dict[str, Told]) -> None:
    for path, page in pages.items():
        twice = [name for name, n in Counter(page.names).items() if n > 1 or not name]
        assert twice == [], path


def test_each_column_has_a_heading(pages: dict[str, Told]) -> None:
    for path, page in pages.items():
        assert "" not in page.headings, path


def test_each_download_says_what_it_holds(pages: dict[str, Told]) -> None:
    for path, page in pages.items():
        texts, targets = zip(*set(page.downloads), strict=True)
        assert len(texts) == len(set(texts)) == len(set(targets)), path
    assert ("Download JSON (speedrun)", "api/speedrun.json") in pages["speedrun.html"].downloads


def test_the_front_page_says_what_the_lab_is_and_links_to_where_one_takes_part(
    site: Path, pages: dict[str, Told]
) -> None:
    said = " ".join(" ".join(pages["index.html"].words).split())
    assert "Regatta trains small language models in the open" in said
    assert "Anybody asks a question and predicts the answer" in said
    assert "lower is better" in said
    assert re.search(r"\d+ questions \d+ predictions: \d+ confirmed, \d+ refuted", said)
    assert "1 running now" in said
    html = (site / "index.html").read_text()
    assert f'<a href="{FORM}">Ask a question</a> <a href="{REPOSITORY}">Repository</a>' in html


def test_every_page_links_to_the_repository_where_its_address_is_known(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert f'<a href="{REPOSITORY}">Repository</a>' in path.read_text(), path


def test_an_empty_lab_shows_no_empty_lists_and_names_no_repository(tmp_path: Path) -> None:
    build(Store(tmp_path / "store"), tmp_path / "site", repository_url=HOST)
    said = (tmp_path / "site" / "index.html").read_text()
    assert "How to take part" in said
    assert not re.search("Running now|Open questions|Latest verdicts|New records|0 questions", said)
    assert HOST not in said


def test_what_a_job_ran_on_is_folded(pages: dict[str, Told]) -> None:
    id = record.execution_id("1")
    for path in (f"executions/{id}/index.html", f"runs/{id}.fast.s0.html"):
        assert {"device", "jax"} <= pages[path].folded


def test_a_question_is_not_its_hypothesis(pages: dict[str, Told]) -> None:
    page = pages["experiments/7-1.html"]
    assert page.by_id["question"] == "Question"
    said = " ".join(" ".join(page.words).split())
    assert "Question Does a warmer learning rate pay off in 16 steps?" in said
    assert "Hypothesis Ten times the rate learns more" in said


@pytest.mark.parametrize(
    ("how", "front"),
    [({"address": "https://lab.example/x"}, "https://lab.example/x/"), ({"live": True}, "/")],
)
def test_an_address_without_a_page_is_answered_by_one_whose_links_work(
    tmp_path: Path, how: dict[str, object], front: str
) -> None:
    build(Store(tmp_path / "store"), tmp_path / "site", **how)
    app = Starlette()
    app.mount("/", StaticFiles(directory=tmp_path / "site", html=True))
    answer = TestClient(app).get("/runs/no/such/page.html")
    assert answer.status_code == 404
    assert "Page not found" in answer.text
    assert f'href="{front}index.html"' in answer.text
    assert f'href="{front}style.css"' in answer.text
