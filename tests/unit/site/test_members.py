"""People's pages: what each asked and predicted, how well their confidence fits, their rows."""

import pytest

from bot.site.facts.lab import read_lab
from bot.site.facts.people import members
from bot.site.pages.build import build
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import Page


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(Store, "create", synthetic.create_at_once)
    return Store(tmp_path / "store")


def test_a_page_has_questions_predictions_calibration_and_rows(store, tmp_path):
    synthetic.board(store, 8, asked=True)
    build(store, tmp_path / "site")
    page = Page(tmp_path / "site" / "people" / "20.html")
    assert "2 questions asked" in page.text
    assert "of 4 decided predictions confirmed" in page.text
    assert "4 rows on leaderboards" in page.text
    for heading in ("Questions asked", "Predictions", "Calibration", "Rows on leaderboards"):
        assert heading in page.text
    assert "../experiments/7-1000.html" in page.links
    listed = Page(tmp_path / "site" / "people.html")
    assert {f"people/{20 + n}.html" for n in range(7)} <= set(listed.links)
    assert "grace" not in listed.text, "who approves has asked nothing"


def test_a_renamed_person_is_one_person_with_the_newest_name(store):
    for n, login in enumerate(("ada", "ada-l")):
        person = record.Person(login=login, id=11)
        at = synthetic.START.replace(hour=n)
        synthetic.preregister(store, n + 1, title=f"Question {n}", author=person, at=at)
    (one,) = members(read_lab(store))
    assert (one.login, len(one.questions)) == ("ada-l", 2)


def test_who_asked_is_credited_with_the_prediction_and_who_declared_with_the_row(store):
    bo = record.Person(login="bo", id=15)
    seal = synthetic.preregister(store, 1)
    plan = synthetic.plan(preregistration=1, predictions=seal.predictions)
    plan = plan.model_copy(update={"seal": seal.seal})
    synthetic.finish(store, synthetic.execution(plan, author=bo), synthetic.PLAIN)
    found = {one.login: (len(one.forecasts), len(one.rows)) for one in members(read_lab(store))}
    assert found == {"ada": (1, 0), "bo": (0, 2)}


def test_only_pages_of_whom_something_new_is_known_are_drawn_again(store, tmp_path):
    synthetic.board(store, 3, asked=True)
    site = tmp_path / "site"
    build(store, site)
    synthetic.preregister(store, 5, title="Another", author=record.Person(login="ada", id=20))
    drawn = build(store, site).drawn
    assert [path for path in drawn if path.startswith("people/")] == ["people/20.html"]
