"""The list of experiments: what each found, its tags, the search, and pages without a script."""

import json

import pytest

from bot.site.facts import tags
from bot.site.pages import experiment_index
from bot.site.pages.build import build
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import Page


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(Store, "create", synthetic.create_at_once)
    return Store(tmp_path / "store")


def listed(site):
    """The rows of the list's scripts, as a search sees them."""
    found = []
    for path in sorted((site / "list").glob("*.js")):
        body = json.loads(path.read_text().partition(",")[2].removesuffix(");\n"))
        found += [dict(zip(["html", *body["keys"]], row, strict=True)) for row in body["rows"]]
    return found


def test_an_experiment_is_found_by_its_words_its_tags_its_author_and_its_result(store, tmp_path):
    synthetic.board(store, 3, asked=True)
    synthetic.preregister(store, 7, title="Who knows?")
    build(store, tmp_path / "site")
    found = listed(tmp_path / "site")
    assert len(found) == 4
    one = next(row for row in found if "Question 1" in row["html"])
    assert {"weight", "bo", "#1001", "learning_rate", "q1"} <= set(one["text"].split())
    assert one["tag"] == ["learning_rate", "stdlib", "cpu"]
    assert (one["author"], one["outcome"]) == ("bo", "confirmed")
    assert "</code> by <strong>" in one["html"], "the finding, not the claim"
    assert next(row for row in found if "Who knows?" in row["html"])["outcome"] == "open question"


def test_without_a_script_every_experiment_is_on_a_page_and_one_more_changes_the_last(
    store, tmp_path, monkeypatch
):
    monkeypatch.setattr(experiment_index, "PAGE", 2)
    synthetic.board(store, 5)
    site = tmp_path / "site"
    build(store, site)
    newest = Page(site / "list" / "page-3.html")
    assert "Question 4" in newest.text
    assert "page-2.html" in newest.links
    texts = " ".join(Page(path).text for path in (site / "list").glob("*.html"))
    assert all(f"Question {n}:" in texts for n in range(5))
    assert "list/page-3.html" not in Page(site / "experiments.html").links, "all are on this page"
    plan = synthetic.plan(title="One more", experiment="experiments/more")
    later = synthetic.START.replace(year=2027)
    synthetic.finish(store, synthetic.execution(plan, "more", at=later), synthetic.PLAIN)
    drawn = build(store, site).drawn
    changed = [path for path in drawn if path.startswith("list/")]
    assert changed == ["list/experiments.0.js", "list/page-3.html"]


def test_tags_follow_from_the_plan():
    plan = synthetic.plan()
    assert tags.tags(plan) == ("learning_rate", "stdlib", "cpu")
    ablation, _ = synthetic.ablation()
    assert "ablation" in tags.tags(ablation)
    arm = synthetic.planned_arm().model_copy(update={"own": {"loss": "mine:loss"}})
    own = synthetic.plan(arms={"plain": synthetic.planned_arm(), "mine": arm})
    assert {"own code", "own loss"} <= set(tags.tags(own))


def test_an_empty_lab_says_how_to_take_part(store, tmp_path):
    build(store, tmp_path / "site")
    for name in ("experiments", "people"):
        page = Page(tmp_path / "site" / f"{name}.html")
        assert "index.html#take-part" in page.links
        assert "table" not in page.tags
