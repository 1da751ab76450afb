"""The page of searches: what a program tried, what it found; its words are data."""

import json
from pathlib import Path

import pytest

from bot.site.facts import searches as facts
from bot.site.pages.build import build
from runner.analysis import search_statistics
from runner.history import kept_records
from runner.schema import record
from runner.store.store import Store, StoreError
from tests import synthetic
from tests.unit.analysis.test_search_statistics import AT, BASE, TERMS
from tests.unit.site.test_pages import Page

DECLARED = "title: X\ntrain: {learning_rate: 0.002}\n"
OTHER = "title: X\ntrain: {learning_rate: 0.004}\n"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with a search that has ended, and its executions."""
    store = Store(tmp_path / "store")
    names = []
    for n in range(4):
        of = synthetic.execution(synthetic.plan(), f"s{n}", pull=None)
        synthetic.finish(store, of, synthetic.PLAIN)
        names.append(of.id)
    terms = TERMS.model_copy(update={"declaration": DECLARED})
    trials = [
        BASE.model_copy(update={"declaration": DECLARED, "execution": names[0]}),
        record.SearchTrial(n=1, at=AT, declaration=OTHER, execution=names[1], scores=(1.9, 1.91)),
        record.SearchTrial(n=2, at=AT, declaration="<b>: [", refused="it is `not` <b>YAML</b>"),
    ]
    compared = search_statistics.compare(
        1, (names[2], names[3]), (2.0, 2.02, 2.01), (1.9, 1.91, 1.92)
    )
    end = record.SearchEnd(
        at=AT,
        why="the budget of 3 trials is spent",
        noise=0.01,
        weighed=search_statistics.weigh(trials[:2]),
        compared=compared,
    )
    record.write(store, f"searches/{terms.id}/terms", terms)
    for trial in trials:
        record.write(store, f"searches/{terms.id}/{trial.n}", trial)
    record.write(store, f"searches/{terms.id}/end", end)
    return store


def test_a_search_has_its_trials_and_its_finding(store: Store, tmp_path: Path) -> None:
    build(store, tmp_path / "site")
    page = Page(tmp_path / "site/searches.html")
    assert "trial 1 beats the baseline by 0.100 bits per byte (95 % CI " in page.text
    assert "train.learning_rate: 0.004 1.9050 −0.1000" in page.text
    assert "refused: it is not <b>YAML</b>" in page.text, "the program's words are no markup"
    assert "the budget of 3 trials is spent" in page.text
    (twin,) = json.loads((tmp_path / "site/api/searches.json").read_bytes())
    assert [trial["n"] for trial in twin["trials"]] == [0, 1, 2]
    assert twin["finding"].startswith("Found: trial 1 beats")


def test_a_search_in_progress_is_shown_without_a_finding(store: Store) -> None:
    (found,) = facts.searches(store)
    assert found.finding is not None
    assert [one.differs for one in found.tried] == [
        {},
        {"train.learning_rate": "0.004"},
        {"title": "–", "train.learning_rate": "–"},
    ]
    (store.root / f"records/searches/{found.terms.id}/end.json").unlink()
    (running,) = facts.searches(Store(store.root))
    assert (running.end, running.finding) == (None, None)


def test_a_search_is_kept_with_all_of_its_executions(store: Store, tmp_path: Path) -> None:
    (found,) = facts.searches(store)
    kept_records.copy_search(store, found.terms.id, tmp_path / "kept")
    to = Store(tmp_path / "kept")
    assert facts.searches(to) == [found]
    assert record.names(to, "executions") == record.names(store, "executions")
    kept_records.copy_search(store, found.terms.id, tmp_path / "kept")
    path = tmp_path / f"kept/records/searches/{found.terms.id}/1.json"
    path.chmod(0o644)
    path.write_text("{}")
    with pytest.raises(StoreError, match="other bytes"):
        kept_records.copy_search(store, found.terms.id, tmp_path / "kept")


def test_the_front_page_tells_what_a_search_found_in_place_of_its_trials(
    store: Store, tmp_path: Path
) -> None:
    build(store, tmp_path / "site")
    page = Page(tmp_path / "site/index.html")
    assert "Found last 2026-01-01 Trial 1 beats the baseline by 0.100 bits per byte" in page.text
    (found,) = facts.searches(store)
    assert f"searches.html#{found.terms.id}" in page.links
    assert "Before that" not in page.text


def test_a_search_that_cannot_be_read_keeps_the_front_page(store: Store, tmp_path: Path) -> None:
    (found,) = facts.searches(store)
    path = store.root / f"records/searches/{found.terms.id}/1.json"
    path.chmod(0o644)
    path.write_text("{}")
    built = build(Store(store.root), tmp_path / "site")
    assert set(built.left_out) == {"searches.html"}
    assert "Found last" in Page(tmp_path / "site/index.html").text
