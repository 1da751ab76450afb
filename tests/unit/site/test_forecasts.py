"""Predictions beside their outcomes; running again changes no score."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from bot.site.facts import forecasts, people
from bot.site.facts.lab import read_lab
from bot.site.pages.build import build
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import Page


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def told(store: Store, command: str, issue: int = 1, **plan: object) -> None:
    """An execution of a sealed question has ended; its predictions came true, and did not."""
    predictions = [synthetic.prediction(), synthetic.prediction("2.0 ± 0.2", versus=None)]
    seal = synthetic.preregister(store, issue, predictions=predictions)
    found = synthetic.plan(preregistration=issue, predictions=predictions, **plan)
    found = found.model_copy(update={"seal": seal.seal})
    at = synthetic.START + timedelta(hours=int(command))
    synthetic.finish(store, synthetic.execution(found, command, at=at), synthetic.PLAIN)


def test_a_prediction_stands_with_its_author_its_confidence_and_its_outcome(
    store: Store, tmp_path: Path
) -> None:
    told(store, "1")
    build(store, tmp_path / "site")
    text = Page(tmp_path / "site" / "forecasts.html").text
    assert "eval/bpb of fast minus slow is below −0.05 80 % ✓ confirmed ada" in text
    assert "✗ refuted ada" in text
    assert "ada 0.340 2 0" in text, "((0.8 − 1)² + (0.8 − 0)²) / 2"
    assert "Everybody 0.340 2 0" in text
    assert "80 % to 90 % 80 % 50 %" in text
    twin = json.loads((tmp_path / "site" / "api" / "forecasts.json").read_bytes())
    assert [one["counts"] for one in twin] == [True, True]


def test_each_form_of_prediction_reads_as_a_sentence(store: Store, tmp_path: Path) -> None:
    forms = [{"order": ("fast", "slow")}, {"order": ("fast", "slow"), "expect": "> 0.1"}]
    told = [
        record.Prediction(metric="eval/bpb", confidence=0.7, **{"expect": "> 0", **keys})
        for keys in forms
    ]
    seal = synthetic.preregister(store, 1, predictions=told)
    plan = synthetic.plan(preregistration=1, predictions=told)
    execution = synthetic.execution(plan.model_copy(update={"seal": seal.seal}))
    synthetic.finish(store, execution, synthetic.PLAIN)
    build(store, tmp_path / "site")
    words = "by eval/bpb the order is fast, slow, best first"
    for page in ("forecasts.html", f"executions/{execution.id}/index.html"):
        text = Page(tmp_path / "site" / page).text.replace(" ,", ",")
        assert text.count(words) == 2
        assert f"{words}, and each step is above 0.1" in text
    assert "the least step, slow minus fast: 0.800 bpb" in text


def test_running_again_and_another_design_are_shown_and_score_nothing(store: Store) -> None:
    told(store, "1")
    told(store, "2")
    told(store, "3", seeds=(0, 1))
    found = forecasts.forecasts(read_lab(store))
    counted = [one for one in found if not one.not_counted]
    assert len(found) == 6
    assert len(counted) == 2
    first = min(read_lab(store).entries, key=lambda e: (e.execution.at, e.execution.id))
    assert {one.entry.execution.id for one in counted} == {first.execution.id}
    assert {one.not_counted for one in found} == {
        None,
        "it is a re-run",
        "exploratory: its design is not the sealed one",
    }
    assert [one.calibration.n for one in people.members(read_lab(store))] == [2]


def test_another_question_counts_for_itself(store: Store) -> None:
    told(store, "1")
    told(store, "2", issue=5)
    found = forecasts.forecasts(read_lab(store))
    assert not any(one.not_counted for one in found)
    assert forecasts.of_the_lab(found).n == 4


def test_a_lab_without_predictions_says_so(store: Store, tmp_path: Path) -> None:
    build(store, tmp_path / "site")
    text = Page(tmp_path / "site" / "forecasts.html").text
    assert "No predictions have been judged yet." in text


def foretold(store: Store, command: str, loss: float, title: str = "A") -> None:
    """An execution has ended of which the lab had foretold this of `fast`; it scored 2.58."""
    told = record.Foretold(
        axis="model_flops", at=1e12, loss=loss, low=loss - 0.1, high=loss + 0.1, level=0.9,
        law="L", rungs=5, runs=15, reach=4.0,
    )  # fmt: skip
    at = synthetic.START + timedelta(hours=int(command))
    execution = synthetic.execution(synthetic.plan(title=title), command, at=at)
    execution = execution.model_copy(update={"forecasts": {"fast": told}})
    synthetic.finish(store, execution, synthetic.PLAIN)


def test_the_lab_is_scored_as_a_forecaster_by_how_many_of_its_intervals_held(
    store: Store, tmp_path: Path
) -> None:
    foretold(store, "1", 2.6, "A")
    foretold(store, "2", 2.3, "B")
    foretold(store, "3", 2.6, "A")
    told = forecasts.foretold(read_lab(store))
    assert [one.not_counted for one in told] == ["it is a re-run", None, None]
    (found,) = forecasts.coverage(told)
    assert (found.level, found.n, found.inside) == (0.9, 2, 1)
    build(store, tmp_path / "site")
    text = Page(tmp_path / "site" / "forecasts.html").text
    assert "1 of 2 measured scores are inside the 90 % interval" in text
    assert "fast 2.3000 2.2000 to 2.4000 2.5800 +12.17 % outside" in text
    twin = json.loads((tmp_path / "site" / "api" / "foretold.json").read_bytes())
    assert [(one["inside"], one["counts"]) for one in twin] == [
        (True, False), (False, True), (True, True),
    ]  # fmt: skip


def test_the_page_of_an_experiment_shows_what_was_foretold_and_how_its_gate_came_out(
    store: Store, tmp_path: Path
) -> None:
    told = record.Foretold(
        axis="model_flops", at=1e12, loss=2.6, low=2.5, high=2.7, level=0.9, law="L", rungs=5,
        runs=15, reach=4.0,
    )  # fmt: skip
    rung = record.PlannedRung(n=1, of=2, baseline="slow", variant="fast", floor=0.6, exponent=0.1)
    plan = synthetic.plan().model_copy(update={"rung": rung})
    execution = synthetic.execution(plan).model_copy(update={"forecasts": {"fast": told}})
    synthetic.finish(store, execution, synthetic.PLAIN)
    build(store, tmp_path / "site")
    text = Page(tmp_path / "site" / f"executions/{execution.id}/index.html").text
    assert "Gate of rung 1 of 2: passed. To reach the loss of fast, slow would need" in text
    assert "fast : predicted 2.6000 (90 % interval 2.5000 to 2.7000), measured 2.5800" in text


def test_an_agent_has_its_proposals_its_spending_and_its_calibration(
    store: Store, tmp_path: Path
) -> None:
    agent = record.Agent(login="robo[bot]", id=21, sponsor="grace")
    predictions = [synthetic.prediction()]
    seal = synthetic.preregister(store, 1, predictions=predictions)
    mine = seal.model_copy(update={"author": record.Person(login=agent.login, id=agent.id)})
    path = store.root / f"records/preregistrations/{synthetic.REPOSITORY}/1/1.json"
    path.chmod(0o644)
    path.write_bytes(mine.canonical())
    plan = synthetic.plan(preregistration=1, predictions=predictions)
    for n, by in ((1, record.policy_at("f" * 40)), (2, synthetic.GRACE)):
        of = synthetic.execution(
            plan.model_copy(update={"seal": mine.seal}),
            str(n),
            at=synthetic.START + timedelta(hours=n),
        )
        assert of.origin
        origin = of.origin.model_copy(update={"agent": agent, "approved_by": by})
        synthetic.finish(store, of.model_copy(update={"origin": origin}), synthetic.PLAIN)
    why = "The plan asks for `h100`, and <b>the policy</b> gives this agent `cpu`."
    refused = record.Approval(
        repository=synthetic.REPOSITORY,
        pull=9,
        command="p9-1",
        by=record.policy_at("f" * 40),
        role=record.POLICY,
        at=synthetic.START,
        approved=False,
        why=why,
        plan=1,
        heard=record.POLICY,
        agent=agent,
    )
    record.write(store, f"approvals/{synthetic.REPOSITORY}/9/p9-1", refused)
    build(store, tmp_path / "site")
    text = Page(tmp_path / "site" / "people/21.html").text
    assert "As an agent It is a program that may propose experiments" in text
    assert "robo[bot] agent of grace" in Page(tmp_path / "site" / "people.html").text
    assert "Answers for it grace Executions 2: the policy approved 1, people" in text
    assert "<b>the policy</b> gives this agent" in text, "what was said is no markup"
    rate = text.partition("Confirmed predictions ")[2]
    assert rate.startswith("1 of 1 (95 % interval of the share: 20.7 % to 100 %; it expected 80 %)")
    (found,) = json.loads((tmp_path / "site" / "api" / "agents.json").read_bytes())
    assert found["refused"] == [{"pull": 9, "plan": 1, "why": why}]
    assert (found["decided"], found["confirmed"], found["brier"]) == (1, 1, pytest.approx(0.04))
