"""Preview images: what stands beside a link to the front page, a board or an experiment."""

import re
import struct
from html import unescape
from pathlib import Path

import pytest

from bot.site.pages import preview
from bot.site.pages.build import SiteError, SiteSummary, build
from runner.store.store import Store
from tests import synthetic

ADDRESS = "https://lab.example.org/runs"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    synthetic.preregister(store, 1)
    plan = synthetic.plan(preregistration=1, predictions=[synthetic.prediction()])
    synthetic.finish(store, synthetic.execution(plan), synthetic.PLAIN)
    return store


def pictures(of: SiteSummary) -> list[str]:
    return sorted(path for path in of.drawn if path.endswith(".png"))


def metadata(page: Path) -> dict[str, str]:
    found = re.findall(r'<meta (?:name|property)="([^"]+)" content="([^"]*)">', page.read_text())
    return {name: unescape(content) for name, content in found}


def test_front_boards_and_experiments_have_a_picture_and_no_other_page_has(
    store: Store, tmp_path: Path
) -> None:
    drawn = pictures(build(store, tmp_path / "site", address=ADDRESS))
    assert [path.split("/")[1] for path in drawn] == ["boards", "experiments", "index.png"]
    for path in drawn:
        data = (tmp_path / "site" / path).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", data[16:24]) == (1200, 630)
    pages = sorted(
        path.relative_to(tmp_path / "site").as_posix()
        for path in (tmp_path / "site").rglob("*.html")
        if "og:image" in metadata(path)
    )
    assert [path.split("/")[0] for path in pages] == [
        "boards",
        "experiments",
        "index.html",
        "leaderboards.html",
    ]
    for page in pages:
        told = metadata(tmp_path / "site" / page)
        picture = told["og:image"].removeprefix(f"{ADDRESS}/")
        assert (tmp_path / "site" / picture).is_file()
        assert told["twitter:card"] == "summary_large_image"
        assert told["og:title"]
        assert told["og:description"]


def test_without_an_address_no_picture_is_drawn_or_named(store: Store, tmp_path: Path) -> None:
    assert pictures(build(store, tmp_path / "site")) == []
    told = metadata(tmp_path / "site" / "index.html")
    assert "og:image" not in told
    assert (told["og:title"], told["twitter:card"]) == (
        "Small language models, trained in the open",
        "summary",
    )
    with pytest.raises(SiteError, match=r"'lab.example.org' is not a web address"):
        build(store, tmp_path / "site", address="lab.example.org")


def test_the_feed_links_to_where_the_site_is(store: Store, tmp_path: Path) -> None:
    build(store, tmp_path / "site", address=f"{ADDRESS}/")
    feed = (tmp_path / "site" / "feed.xml").read_text()
    assert f'href="{ADDRESS}/feed.xml"' in feed
    assert f'href="{ADDRESS}/executions/' in feed


def test_a_picture_is_drawn_again_only_when_what_it_says_has_changed(
    store: Store, tmp_path: Path
) -> None:
    first = pictures(build(store, tmp_path / "site", address=ADDRESS))
    assert pictures(build(store, tmp_path / "site", address=ADDRESS)) == []
    other = synthetic.plan(title="Another", text="wiki").model_copy(
        update={"experiment": "experiments/another"}
    )
    synthetic.finish(store, synthetic.execution(other, "2", pull=3), synthetic.PLAIN)
    again = pictures(build(store, tmp_path / "site", address=ADDRESS))
    assert set(again) & set(first) == {"previews/index.png"}  # it counts runs and names records
    assert len(again) == 3
    # The pages follow where the site moves to, and the pictures stay.
    assert pictures(build(store, tmp_path / "site", address="https://elsewhere.example.org")) == []


def test_a_page_tells_others_how_its_predictions_came_out(store: Store, tmp_path: Path) -> None:
    build(store, tmp_path / "site")
    (page,) = (tmp_path / "site" / "experiments").glob("*.html")
    assert metadata(page)["og:description"].endswith("is < -0.05: confirmed.")


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("Short", ["Short"]),
        ("aaaa bbbb cccc dddd", ["aaaa bbbb", "cccc dddd"]),
        ("aaaa bbbb cccc dddd eeee", ["aaaa bbbb", "cccc dddd…"]),
        ("aaaa bbbb cccc dddd-eeee", ["aaaa bbbb", "cccc dddd-…"]),
        ("a" * 50, ["aaaaaaaaa…"]),
        ("zero\0width\ud800", ["zero width"]),
        ("", []),
    ],
)
def test_a_title_is_broken_into_lines_and_cut_where_there_is_no_room(
    words: str, lines: list[str]
) -> None:
    assert preview.wrapped(words, 10, 65, 2) == lines


def test_strangers_text_stays_text_in_previews(store: Store, tmp_path: Path) -> None:
    evil = '</text><script>alert(1)</script>"\0 {{ 7 * 7 }} 漢字'
    synthetic.preregister(store, 9, title=evil)
    build(store, tmp_path / "site", lab=evil, address=ADDRESS)
    told = metadata(tmp_path / "site" / "experiments" / "7-9.html")
    assert told["og:title"] == evil
