"""Entered results stand on a page of their own, with their tier and what was found in them."""

import json
from pathlib import Path
from typing import Any

import pytest

from bot.site.facts.lab import read_lab
from bot.site.pages import entered
from bot.site.pages.build import build
from runner.history import results_entries
from runner.history.results_entries import EntryRecord, Merged
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.unit.analysis.test_speedrun import CLEAN
from tests.unit.site.test_pages import Page

EVIL = "<script>alert(1)</script> {{ 7 * 7 }} \ud800"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def merge(store: Store, *runs: Any, pull: int = 2, path: str = "a/speedrun_results.json") -> str:
    """A merged pull request with these runs; returns the commit of its head."""
    content = json.dumps({"runs": [{"run_info": run} for run in runs]}).encode()
    file = results_entries.examined(path, content, {})
    commit = f"{pull:040x}"
    folder = f"entries/{synthetic.REPOSITORY}/{pull}"
    entry = EntryRecord(
        repository=synthetic.REPOSITORY,
        pull=pull,
        n=1,
        commit=commit,
        at=synthetic.START,
        files=(file,),
    )
    record.write(store, f"{folder}/1", entry)
    record.write(store, f"{folder}/merged", Merged(at=synthetic.START, n=1))
    return commit


def ran(store: Store, commit: str, mean: float, pull: int = 2) -> str:
    """The lab's own execution of a pull request's experiment at a commit; returns its id."""
    plan = synthetic.plan(arms={"fast": synthetic.planned_arm()})
    execution = synthetic.execution(plan, "x" + "1" * 16)
    assert execution.origin
    origin = execution.origin.model_copy(update={"commit": commit, "pull": pull})
    execution = execution.model_copy(update={"origin": origin})
    synthetic.begin(store, execution)
    synthetic.finish(store, execution, {("fast", seed): mean for seed in plan.seeds})
    return execution.id


def test_a_row_is_shown_as_self_reported_and_has_no_rank(store: Store, tmp_path: Path) -> None:
    merge(store, CLEAN | {"description": EVIL, "author": CLEAN["author"] | {"name": EVIL}})
    build(store, tmp_path / "site")
    page = Page(tmp_path / "site" / "entries.html")
    assert "self-reported" in page.text
    assert "<script>alert(1)</script> {{ 7 * 7 }} ?" in page.text
    assert "<script>alert" not in page.path.read_text()
    (row,) = json.loads((tmp_path / "site" / "api" / "entries.json").read_bytes())
    assert (row["tier"], row["eval/paloma/c4_en/bpb"]) == ("self-reported", 1.17)
    assert "rank" not in row
    assert "1.1700" not in Page(tmp_path / "site" / "speedrun.html").text


def test_the_same_wandb_run_merged_twice_is_found_on_both_rows(store: Store) -> None:
    merge(store, CLEAN)
    merge(store, CLEAN, pull=3, path="b/speedrun_results.json")
    rows = entered.rows(results_entries.merged(store), [])
    assert [[finding.rule for finding in row.findings] for row in rows] == [["twice"], ["twice"]]


SIZE, TOKENS = synthetic.planned_arm().parameters, synthetic.planned_arm().tokens


@pytest.mark.parametrize(
    ("size", "tokens", "mean", "elsewhere", "tier"),
    [
        (SIZE, TOKENS, 1.171, False, "reproduced"),
        (SIZE, TOKENS, 1.30, False, "self-reported"),
        (SIZE + 1, TOKENS, 1.171, False, "self-reported"),
        (SIZE, TOKENS // 2, 1.171, False, "self-reported"),
        (SIZE, TOKENS, 1.171, True, "self-reported"),
    ],
)
def test_the_labs_own_run_of_its_experiment_reproduces_a_row(
    store: Store, size: int, tokens: int, mean: float, elsewhere: bool, tier: str
) -> None:
    commit = merge(store, CLEAN | {"model_size": size, "total_tokens": tokens})
    (row,) = entered.rows(results_entries.merged(store), read_lab(store).entries)
    assert row.tier == "self-reported"
    ran(store, "f" * 40 if elsewhere else commit, mean)
    (row,) = entered.rows(results_entries.merged(store), read_lab(store).entries)
    assert row.tier == tier
    assert bool(row.ours) == (not elsewhere)


def test_a_figure_that_its_track_does_not_believe_reproduces_no_row(store: Store) -> None:
    commit = merge(store, CLEAN | {"model_size": SIZE, "total_tokens": TOKENS})
    caught = record.Examined(positions=9, largest=2.0, void="it looks ahead")
    score = synthetic.run(synthetic.plan(), "fast", 0, 1.17).evaluated
    assert score
    competed = record.EnteredRun(
        arm="fast",
        seed=0,
        own=True,
        own_model=True,
        isolated=True,
        evaluated=score.model_copy(update={"examined": caught}),
        resources=record.Resources(kind="cpu"),
        tokens=TOKENS,
        parameters=SIZE,
        model_flops=None,
        seconds=1.0,
        hardware_flops=1.0,
    )
    plan = synthetic.plan(arms={"fast": synthetic.planned_arm()})
    execution = synthetic.execution(plan)
    assert execution.origin
    origin = execution.origin.model_copy(update={"commit": commit})
    execution = execution.model_copy(update={"origin": origin})
    synthetic.begin(store, execution)
    result = record.Result(at=synthetic.START, state="done", entered=(competed,))
    record.write(store, f"executions/{execution.id}/result", result)
    (row,) = entered.rows(results_entries.merged(store), read_lab(store).entries)
    assert (row.tier, row.ours) == ("self-reported", ())


def test_without_entries_the_page_says_how_to_enter(store: Store, tmp_path: Path) -> None:
    build(store, tmp_path / "site")
    assert "No entries yet" in Page(tmp_path / "site" / "entries.html").text


def test_a_merged_impossible_entry_breaks_no_page(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_entries, "_beyond", lambda _: "")  # as an older lab took it
    values = (0.0, -1.0, 1e-300, 1e300)
    keys = ("training_time", "model_flops", "training_hardware_flops", "eval/paloma/c4_en/bpb")
    odd = [CLEAN | {key: value} for key in keys for value in values]
    odd += [
        CLEAN | {"model_size": -1},
        CLEAN | {"total_tokens": 0},
        CLEAN | {"total_tokens": 10**30},
    ]
    merge(store, *odd)
    build(store, tmp_path / "site")
    text = Page(tmp_path / "site" / "entries.html").text
    assert text.count("self-reported") >= len(odd)
    assert "Impossible: training_time is -1.0" in text


def test_the_audit_tells_what_was_checked_on_each_pull_request_and_found(
    store: Store, tmp_path: Path
) -> None:
    build(store, tmp_path / "site")
    page = tmp_path / "site" / "entries.html"
    assert "Checks of pull requests None yet." in Page(page).text
    merge(store, CLEAN)
    faulty = results_entries.examined(
        results_entries.plain(f"{EVIL}.json"), results(CLEAN | {"training_time": 100.0}), {}
    )
    broken = results_entries.examined("c/speedrun_results.json", b"{", {})
    for n, files in enumerate([(faulty, broken), ()], 3):
        entry = EntryRecord(
            repository=synthetic.REPOSITORY,
            pull=n,
            n=1,
            commit=f"{n:040x}",
            at=synthetic.START,
            files=files,
        )
        record.write(store, f"entries/{synthetic.REPOSITORY}/{n}/1", entry)
    build(store, tmp_path / "site")
    said = Page(page).text
    assert "the newest check of 2 pull requests" in said
    assert "#2 2026-03-01 1 none merged, self-reported" in said
    assert "run 1: the FLOPs that its chips can compute in its time are 7.344e+17" in said
    assert "c/speedrun_results.json is rejected" in said
    assert "#4" not in said, "it was taken back"
    assert "<script>alert" not in page.read_text()


def results(*runs: Any) -> bytes:
    return json.dumps({"runs": [{"run_info": run} for run in runs]}).encode()
