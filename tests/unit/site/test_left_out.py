"""What cannot be read or drawn is left out, this is said, and all the rest of the site is built."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from bot.site.facts import spent
from bot.site.facts.memory import Memory
from bot.site.pages import boards, experiments, front, runs
from bot.site.pages.build import SiteSummary, build
from runner.schema import record
from runner.store.store import Store
from tests import synthetic

FAULT = "integer division result too large for a float"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    synthetic.board(store, 4)
    synthetic.speedruns(store)
    return store


def built(store: Store, site: Path) -> SiteSummary:
    """What a new process builds."""
    return build(Store(store.root), site, remembered=Memory(site))


def number(n: int) -> str:
    return record.execution_id(str(n))


def changed(store: Store, path: str, change: Any) -> bytes:
    """A record as an older lab has written it; the bytes that it had."""
    file = store.local(f"records/{path}.json")
    before = file.read_bytes()
    told = json.loads(before)
    change(told)
    file.write_text(json.dumps(told))
    return before


def html(site: Path) -> set[str]:
    return {path.relative_to(site).as_posix() for path in site.rglob("*.html")}


def boarded(site: Path) -> str:
    return "".join(page.read_text() for page in sorted((site / "boards").glob("*.html")))


def absurd(run: dict[str, Any]) -> None:
    """What a job said of its model, as the lab believed it until it bounded what it reads."""
    examined = {"positions": 64, "largest": 0.0, "forward_flops_per_token": 10**320}
    run["evaluated"] |= {"examined": examined, "parameters": 10**320}


def of_result(result: dict[str, Any]) -> None:
    for run in result["entered"]:
        run["model_flops"] = 3 * 10**325
        absurd(run)


def test_a_number_beyond_all_bounds_in_an_old_record_leaves_out_its_execution_only(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    competed = record.execution_id("small-cost mine")
    changed(store, f"runs/{number(1)}.fast.s0", absurd)
    before = changed(store, f"executions/{competed}/result", of_result)
    site = tmp_path / "site"
    with caplog.at_level(logging.WARNING):
        left = built(store, site).left_out
    assert set(left) == {number(1), competed}
    assert all(id in caplog.text for id in left)
    pages = html(site)
    assert f"executions/{number(2)}/index.html" in pages
    assert f"executions/{number(1)}/index.html" not in pages
    for page in ("index.html", "leaderboards.html", "speedrun.html", "forecasts.html"):
        said = (site / page).read_text()
        assert number(1) in said, page
        assert competed in said, page
    assert built(store, site).drawn == (), "and nothing is drawn twice for it"
    store.local(f"records/executions/{competed}/result.json").write_bytes(before)
    assert set(built(store, site).left_out) == {number(1)}
    assert f"executions/{competed}/index.html" in html(site)


def test_a_page_that_cannot_be_drawn_says_so_in_its_place_and_the_rest_is_built(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    built(store, tmp_path / "whole")
    drawn = runs._page

    def breaks(whole: Any, at: int, *rest: Any) -> str:
        if whole().execution.id == number(1) and at == 2:
            raise OverflowError(f"{FAULT} \x1b[2J <b>")
        return drawn(whole, at, *rest)

    site = tmp_path / "site"
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(runs, "_page", breaks)
        left = built(store, site).left_out
        (path,) = left
        assert path.startswith(f"runs/{number(1)}.")
        assert html(site) == html(tmp_path / "whole")
        said = (site / path).read_text()
        assert FAULT in said
        assert "<b>" not in said
        assert "\x1b" not in said + caplog.text
        assert path in caplog.text
        assert built(store, site).drawn == (path,), "it is tried again, and nothing else is"
    assert built(store, site).drawn == (path,)
    assert (site / path).read_bytes() == (tmp_path / "whole" / path).read_bytes()
    assert built(store, site).drawn == ()


def test_an_execution_on_which_a_board_breaks_is_found_and_the_board_is_drawn_without_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = spent.spent

    def breaks(plan: record.Plan, *rest: Any) -> Any:
        if plan.title.startswith("Question 2:"):
            raise OverflowError(FAULT)
        return counted(plan, *rest)

    site = tmp_path / "site"
    built(store, site)
    with monkeypatch.context() as patched:
        patched.setattr("bot.site.facts.leaderboard.spent", breaks)
        (site / "leaderboards.html").unlink()
        synthetic.finish(store, synthetic.execution(synthetic.plan(), "new"), synthetic.PLAIN)
        left = built(store, site).left_out
        assert left.keys() == {number(2)}
        assert FAULT in left[number(2)]
        said = boarded(site)
        assert "Question 3:" in said
        assert "Question 2:" not in said
        assert number(2) in (site / "leaderboards.html").read_text()
        assert set(built(store, site).left_out) == {number(2)}, "and the next build knows it still"
    assert built(store, site).left_out == {}
    assert "Question 2:" in boarded(site)


@pytest.mark.parametrize("where", [boards, experiments, front])
def test_a_kind_of_pages_that_cannot_even_be_listed_takes_no_other_down(
    where: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> Any:
        raise ValueError(FAULT)
        yield

    site = tmp_path / "site"
    monkeypatch.setattr(where, "files", breaks)
    left = built(store, site).left_out
    assert any(FAULT in why for why in left.values())
    assert {"people.html", "speedrun.html", f"executions/{number(3)}/index.html"} <= html(site)


def test_a_store_that_cannot_be_reached_is_no_fault_of_a_page(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    built(store, site)
    before = (site / "index.html").read_bytes()
    synthetic.finish(store, synthetic.execution(synthetic.plan(), "new"), synthetic.PLAIN)

    def away(*_: Any, **__: Any) -> Any:
        raise ConnectionError("the bucket does not answer")

    monkeypatch.setattr(runs, "_page", away)
    with pytest.raises(ConnectionError):
        built(store, site)
    assert (site / "index.html").read_bytes() == before
