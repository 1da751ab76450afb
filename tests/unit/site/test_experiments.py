"""The page of an experiment: from the question to the discussion, whichever way it went."""

import pytest

from bot.site.pages.build import build
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import HOST, Page

ORDER = ["Question", "Hypothesis", "Sealed predictions", "Design", "Arms", "Verdict", "Discussion"]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def asked(store, expect, *, issue=1, name="1"):
    """An issue that was sealed with one prediction, and the execution that answered it."""
    predictions = [synthetic.prediction(expect)]
    seal = synthetic.preregister(store, issue, edits=1, predictions=predictions)
    plan = synthetic.plan(preregistration=issue, predictions=predictions)
    plan = plan.model_copy(update={"seal": seal.seal})
    synthetic.finish(store, synthetic.execution(plan, name), synthetic.PLAIN)
    return seal


def page_of(site, name):
    return Page(site / "experiments" / f"{name}.html")


def test_an_experiment_is_read_from_its_question_to_its_discussion(store, tmp_path):
    seal = asked(store, "< -0.05")
    build(store, tmp_path / "site", repository_url=HOST)
    page = page_of(tmp_path / "site", "7-1")
    positions = [page.text.index(heading) for heading in ORDER]
    assert positions == sorted(positions)
    assert "Ten times the rate learns more" in page.text
    assert seal.seal in page.text
    assert "✓ confirmed fast beats slow by 0.800 bits per byte" in page.text
    assert "the issue was edited once after it was sealed" in page.text.lower()
    assert "2.620 ± 0.040" in page.text
    execution = synthetic.record.execution_id("1")
    assert f"../executions/{execution}/index.html" in page.links
    assert f"../runs/{execution}.fast.s0.html" in page.links
    assert f"{HOST}/regatta/lab/issues/1" in page.links
    assert f"{HOST}/regatta/lab/pull/2" in page.links


def test_a_refuted_prediction_is_shown_like_a_confirmed_one(store, tmp_path):
    asked(store, "< -0.05", issue=1, name="1")
    asked(store, "> 0.05", issue=2, name="2")
    build(store, tmp_path / "site")
    good, bad = (page_of(tmp_path / "site", name) for name in ("7-1", "7-2"))
    assert "confirmed" in good.text
    assert "refuted" in bad.text
    plain = ([tag for tag in page.tags if tag != "code"] for page in (good, bad))  # arms' names
    assert next(plain) == next(plain)
    assert good.ids == bad.ids


def test_a_sealed_question_that_nobody_took_up_has_a_page_and_no_verdict(store, tmp_path):
    synthetic.preregister(store, 3, title="Does weight decay matter?")
    build(store, tmp_path / "site")
    text = page_of(tmp_path / "site", "7-3").text
    assert "Does weight decay matter?" in text
    assert "None yet: the experiment waits for a pull request." in text
    front = Page(tmp_path / "site" / "index.html")
    assert "experiments/7-3.html" in front.links


def test_a_title_from_the_old_issue_form_loses_its_prefix(store, tmp_path):
    synthetic.preregister(store, 3, title="Experiment: does weight decay matter?")
    build(store, tmp_path / "site")
    (person,) = (tmp_path / "site" / "people").glob("*.html")
    for path in ("experiments/7-3.html", "experiments.html", "index.html", person):
        text = Page(tmp_path / "site" / path).text
        assert "Does weight decay matter?" in text, path
        assert "Experiment: " not in text, path


@pytest.mark.parametrize(
    ("title", "called"),
    [
        ("Experiment: is it better?", "Is it better?"),
        ("Is it better?", "Is it better?"),
        ("experiment with rates", "experiment with rates"),
        ("Experiment: ", "Experiment: "),
    ],
)
def test_a_seal_is_called_by_its_title_and_keeps_it(store, title, called):
    seal = synthetic.preregister(store, 3, title=title)
    assert (seal.called, seal.title) == (called, title)


def test_a_run_that_is_not_the_sealed_design_is_listed_and_decides_nothing(store, tmp_path):
    asked(store, "< -0.05")
    plan = synthetic.plan(
        preregistration=1, predictions=[synthetic.prediction("< -0.05")], seeds=(0, 1)
    )
    later = synthetic.START.replace(hour=18)
    other = synthetic.execution(plan, "2", pull=5, at=later)
    synthetic.finish(store, other, synthetic.figures([2.0, 2.0], [3.0, 3.1]))
    build(store, tmp_path / "site")
    text = page_of(tmp_path / "site", "7-1").text
    assert "exploratory: its design is not the sealed one" in text
    assert "Execution " + synthetic.record.execution_id("1") in text
    verdict = text[text.index("Verdict") : text.index("Discussion")]
    assert "confirmed" in verdict
    assert "refuted" not in verdict


def test_without_a_preregistration_an_experiment_is_its_folder(store, tmp_path):
    for name in ("1", "2"):
        plan = synthetic.plan(title=f"Warm rate {name}")
        synthetic.finish(store, synthetic.execution(plan, name), synthetic.PLAIN)
    build(store, tmp_path / "site")
    (path,) = (tmp_path / "site" / "experiments").iterdir()
    text = Page(path).text
    assert "not preregistered" in text
    assert "2 executions" in text
    assert "there are scores but no verdict" in text


def test_a_page_of_an_experiment_is_drawn_again_only_when_something_happened_in_it(store, tmp_path):
    asked(store, "< -0.05", issue=1, name="1")
    asked(store, "< -0.05", issue=2, name="2")
    build(store, tmp_path / "site")
    plan = synthetic.plan(preregistration=2, predictions=[synthetic.prediction("< -0.05")])
    synthetic.begin(store, synthetic.execution(plan, "3", pull=9))
    drawn = build(store, tmp_path / "site").drawn
    assert [path for path in drawn if path.startswith("experiments/")] == ["experiments/7-2.html"]
