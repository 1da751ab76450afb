"""The studies that the repository keeps: their issues were sealed as they stand here, before
anything ran, and today's code judges the kept runs as the lab did."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.model.thread import Issue
from bot.rules import sealing
from runner.analysis import search_statistics, verdicts
from runner.analysis.which_runs_count import Outcome
from runner.isolation import limited
from runner.planning import planner
from runner.schema import record
from runner.schema.record import (
    Execution,
    Person,
    Preregistration,
    Result,
    Run,
    SearchEnd,
    SearchTerms,
    SearchTrial,
)
from runner.store.store import Store

KEPT = sorted(path.parent for path in Path(__file__).parents[2].glob("experiments/*/records"))
SEARCHES = [path for path in KEPT if (path / "records/records/searches").is_dir()]
STUDIES = [path for path in KEPT if path not in SEARCHES]
each = pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name)


@pytest.fixture(autouse=True)
def ours_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates of these studies are read here, in no child."""

    def call(function: Callable[..., Any], *given: Any, **_: Any) -> Any:
        return function(*given)

    monkeypatch.setattr(limited, "call", call)


def kept(study: Path) -> tuple[Store, Execution, Result, Preregistration | None]:
    """What was kept of a study. One that ran without a thread has no seal but its commit."""
    store = Store(study / "records", make=False)
    [name] = record.names(store, "executions")
    execution = record.require(store, f"executions/{name}/execution", Execution)
    sealed = None
    if execution.origin:
        asked = f"{execution.origin.repository}/{execution.plan.preregistration}"
        sealed = record.require(store, f"preregistrations/{asked}/1", Preregistration)
    return (
        store,
        execution,
        record.require(store, f"executions/{name}/result", Result),
        sealed,
    )


def test_there_are_studies() -> None:
    assert len(STUDIES) >= 5


@each
def test_the_issue_beside_a_declaration_was_sealed_before_anything_ran(study: Path) -> None:
    _, execution, result, seal = kept(study)
    title, _, body = (study / "issue.md").read_text().partition("\n")
    if seal is None:
        pytest.skip("it ran without a thread: its seal is the commit")
    digests = {
        sealing._digest(Issue(title.removeprefix("# "), text, Person(id=1, login="ada"), open=True))
        for text in (body.strip(), body.strip() + "\n")  # as it was posted
    }
    assert seal.text_sha256 in digests
    assert seal.at < execution.at < result.at
    assert execution.plan.predictions == seal.predictions
    assert execution.plan.seal == seal.digest()


@each
def test_the_declaration_is_the_one_that_ran(study: Path) -> None:
    _, execution, _, _ = kept(study)
    now = planner.plan_folder(study)
    assert now.arms == execution.plan.arms
    assert now.steps.keys() == execution.plan.steps.keys()
    for name, step in now.steps.items():
        assert _asked(step.config) == _asked(execution.plan.steps[name].config)
    assert now.code_sha256 == execution.plan.code_sha256


def _asked(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without the text's digest, which is that of the Python that ran it, and without how `extract`
    reads pages, which it once did by the lab's own rules."""
    gone = ("sha256", "boilerplate", "extractor")
    return {key: value for key, value in config.items() if key not in gone}


@each
def test_todays_code_gives_the_kept_verdicts(study: Path) -> None:
    store, execution, result, _ = kept(study)
    runs = [
        record.require(store, f"runs/{execution.id}.{record.run_name(*run)}", Run)
        for run in execution.plan.runs()
    ]
    scores = verdicts.scores_of(runs)
    diverged = [run for run in runs if run.state == "failed"]
    assert all("Diverged" in run.why for run in diverged)
    assert Outcome(execution, result, scores).complete == (not diverged)
    assert verdicts.judge(execution.plan, scores, execution.climbed) == result.verdicts
    of_diverged = {run.arm for run in diverged}
    assert all(
        verdict.n >= 2
        for prediction, verdict in zip(execution.plan.predictions, result.verdicts, strict=True)
        if prediction.arm not in of_diverged
    )


@pytest.mark.parametrize("search", SEARCHES, ids=lambda path: path.name)
def test_a_kept_search_is_what_its_runs_say(search: Path) -> None:
    """Its scores are those of its executions' runs, and today's code finds the same in them."""
    store = Store(search / "records", make=False)
    (name,) = record.names(store, "searches")
    terms = record.require(store, f"searches/{name}/terms", SearchTerms)
    trials = record.numbered(store, f"searches/{name}", SearchTrial)
    end = record.require(store, f"searches/{name}/end", SearchEnd)
    assert terms.id == name
    assert terms.declaration == (search / "experiment.yaml").read_text()
    assert end.compared is not None

    def scores(execution: str) -> tuple[float | None, ...]:
        of = record.require(store, f"executions/{execution}/execution", Execution)
        paths = (f"runs/{execution}.{record.run_name(*run)}" for run in of.plan.runs())
        figures = verdicts.figures_of(record.require(store, path, Run) for path in paths)
        return tuple(figures[run] for run in of.plan.runs())

    for trial in trials:
        assert trial.refused or trial.scores == scores(trial.execution)
    base, best = end.compared.executions
    assert (end.compared.baseline, end.compared.trial) == (scores(base), scores(best))
    assert search_statistics.weigh(trials) == end.weighed
    assert search_statistics.over(terms, trials) == end.why
    again = search_statistics.compare(end.compared.n, (base, best), scores(base), scores(best))
    assert again == end.compared
