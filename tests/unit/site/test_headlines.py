"""What an execution found, in one sentence: the same on the site as in the thread."""

from datetime import timedelta
from pathlib import Path

import pytest

from bot.site.facts.entries import Entry
from bot.site.facts.lab import read_lab
from bot.site.pages import front
from bot.site.pages.build import build
from bot.site.pages.headlines import headline
from runner.analysis import answer
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import Page


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def entry(store: Store) -> Entry:
    (one,) = read_lab(store).entries
    return one


def test_a_headline_is_the_sentence_of_the_thread(store: Store) -> None:
    synthetic.finish(store, synthetic.execution(synthetic.plan(), "1"), synthetic.PLAIN)
    one = entry(store)
    assert one.result
    said = headline(one)
    assert said
    assert said.parts == tuple(answer.of(one.plan, one.runs, one.result))
    assert ("", " beats ") in said.parts


def test_without_scores_and_without_a_verdict_there_is_no_headline(store: Store) -> None:
    synthetic.finish(store, synthetic.execution(synthetic.plan(), "1"), {})
    assert headline(entry(store)) is None


def test_the_page_of_an_execution_without_predictions_begins_with_what_it_found(
    store: Store, tmp_path: Path
) -> None:
    synthetic.finish(store, synthetic.execution(synthetic.plan(), "1"), synthetic.PLAIN)
    build(store, tmp_path / "site")
    text = Page(tmp_path / f"site/executions/{record.execution_id('1')}/index.html").text
    assert text.index(" beats ") < text.index("Nobody predicted the result") < text.index("Arms")


def test_each_question_has_its_newest_finding_once(store: Store) -> None:
    for n in (1, 2):
        at = synthetic.START + timedelta(hours=n)
        of = synthetic.execution(synthetic.plan(title=f"Rate {n}"), str(n), at=at)
        synthetic.finish(store, of, synthetic.PLAIN)
    other = synthetic.plan(title="Widths").model_copy(update={"experiment": "experiments/widths"})
    synthetic.finish(store, synthetic.execution(other, "3", at=synthetic.START), synthetic.PLAIN)
    assert [one.title for one in front.found(read_lab(store), [])] == ["Rate 2", "Widths"]
