"""A pull request that brings a results file: each head is checked once, and a merge brings rows."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.controller import catch_up
from bot.fake_github.world.faults import Fault
from bot.site.facts.lab import read_lab
from bot.site.pages import entered
from runner.history import results_entries
from runner.store.store import Store
from tests.scenarios.lab import EXPERIMENT, TEXT, Lab, a_lab
from tests.stub_trainer import StubRay
from tests.unit.analysis.test_speedrun import CLEAN

PATH = "experiments/speedrun/ada_130m/speedrun_results.json"
EVIL = CLEAN | {
    "training_time": 100.0,
    "run_completion_timestamp": "@everyone <img src=x> | `a` ![x](http://e)\ud800",
}


MARKUP = ("<img", "@everyone", "@grace")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with a_lab(tmp_path, StubRay(pace=48)) as lab:
        yield lab


def results(*runs: Any) -> bytes:
    return json.dumps({"runs": [{"run_info": run} for run in runs]}).encode()


def enter(lab: Lab, content: bytes, path: str = PATH, *, branch: str = "entry") -> int:
    lab.sandbox.commit("ada", branch, {path: content}, "My speedrun")
    pull = lab.sandbox.open_pull("ada", "My speedrun", "It is fast.", branch).number
    lab.settle()
    return pull


def push(lab: Lab, content: bytes, path: str = PATH, *, branch: str = "entry") -> None:
    lab.clock.advance(5)
    lab.sandbox.commit("ada", branch, {path: content}, "Another try")
    lab.settle()


def checks(lab: Lab) -> list[tuple[str, str | None]]:
    return [
        (check.head_sha, check.conclusion)
        for check in lab.sandbox.world.checks.values()
        if check.name == "regatta / entry"
    ]


def rows(lab: Lab) -> list[str]:
    return [row.path for row in results_entries.merged(Store(lab.root / "store"))]


def test_a_clean_file_gets_a_green_check_and_a_corrected_one_is_checked_anew(lab: Lab) -> None:
    pull = enter(lab, results(CLEAN | {"training_time": 100.0}))
    head = lab.sandbox.world.git.resolve("entry")
    assert checks(lab) == [(head, "failure")]
    (said,) = lab.comments(pull)
    assert f"| `{PATH}` | 1 | `training_hardware_flops` |" in said
    assert "its chips can compute in its time are 7.344e\\+17" in said
    lab.say("sam", pull, "Hm.")
    assert len(checks(lab)) == len(lab.comments(pull)) == 1
    push(lab, results(CLEAN))
    assert [conclusion for _, conclusion in checks(lab)] == ["failure", "success"]
    assert checks(lab)[1][0] == lab.sandbox.world.git.resolve("entry") != head
    assert "nothing impossible" in lab.last(pull)
    assert lab.comments(pull)[0].startswith("<details>")
    assert lab.records("plans") == {}, "a results file alone declares no experiment"


def test_a_file_that_cannot_be_read_is_told_and_strangers_words_are_no_markup(lab: Lab) -> None:
    pull = enter(lab, b'{"runs": [{"run_info": {"<img src=x>@grace": 1}}]}')
    assert "cannot be read" in lab.last(pull)
    push(lab, results(EVIL))
    push(lab, b" " * (results_entries.MAX_BYTES + 1))
    assert "is larger than 1,000,000 bytes" in lab.last(pull)
    said = "".join(lab.comments(pull))
    assert [word for word in MARKUP if word in said] == []
    assert [conclusion for _, conclusion in checks(lab)] == ["failure"] * 3


def test_results_that_are_taken_back_end_with_a_neutral_check_that_says_so(lab: Lab) -> None:
    pull = enter(lab, results(CLEAN | {"training_time": 100.0}))
    lab.clock.advance(5)
    lab.sandbox.commit("ada", "entry", {PATH: None, "notes.md": b"Later."}, "Not yet")
    lab.settle()
    head = lab.sandbox.world.git.resolve("entry")
    assert [conclusion for _, conclusion in checks(lab)] == ["failure", "neutral"]
    assert checks(lab)[1][0] == head
    first, last = lab.comments(pull)
    assert first.startswith("<details>")
    assert f"Commit `{head[:12]}` removes the results file" in last
    lab.clock.advance(5)
    lab.sandbox.commit("ada", "entry", {"notes.md": b"Still later."}, "Notes")
    lab.settle()
    assert len(checks(lab)) == len(lab.comments(pull)) == 2, "said once"
    push(lab, results(CLEAN))
    assert [conclusion for _, conclusion in checks(lab)][-1] == "success"
    lab.sandbox.commit("ada", "entry", {PATH: None}, "Never")
    lab.settle()
    lab.sandbox.merge("grace", pull)
    lab.settle()
    assert rows(lab) == []


def test_a_commit_whose_tree_github_does_not_show_yet_lacks_no_results_file(lab: Lab) -> None:
    """fullsend-ai/fullsend#5774: a tree that was just written is a 404 at first."""
    head = lab.sandbox.commit("ada", "entry", {PATH.rpartition("/")[2]: results(CLEAN)}, "Mine")
    path, words = rf"/git/trees/{head}", '{"message": "Not Found"}'
    lab.sandbox.faults.add(Fault("status_before", "GET", path, times=2, status=404, body=words))
    pull = lab.sandbox.open_pull("ada", "My speedrun", "It is fast.", "entry").number
    lab.settle()
    assert len(lab.comments(pull)) == 1
    assert [conclusion for _, conclusion in checks(lab)] == ["success"]


def test_a_merge_brings_rows_and_a_wandb_run_on_the_board_is_not_entered_again(lab: Lab) -> None:
    pull = enter(lab, results(CLEAN))
    other = enter(lab, results(CLEAN), "speedrun_results.json", branch="copy")
    assert rows(lab) == []
    lab.sandbox.merge("grace", pull)
    lab.settle()
    assert rows(lab) == [PATH]
    push(lab, results(CLEAN) + b"\n", "speedrun_results.json", branch="copy")
    assert f"its W&amp;B run is already entered as {PATH}".replace("_", "\\_") in lab.last(other)
    assert [conclusion for _, conclusion in checks(lab)] == ["success", "success", "failure"]


def test_replacing_ones_own_results_file_enters_nothing_twice(lab: Lab) -> None:
    lab.sandbox.merge("grace", enter(lab, results(CLEAN)))
    lab.settle()
    again = results(CLEAN | {"description": "described better"})
    lab.sandbox.merge("grace", enter(lab, again, branch="again"))
    lab.settle()
    assert [conclusion for _, conclusion in checks(lab)] == ["success"] * 2
    (row,) = results_entries.merged(Store(lab.root / "store"))
    assert row.run.description == "described better"


def test_a_closed_or_elsewhere_merged_pull_request_adds_no_rows(lab: Lab) -> None:
    pull = enter(lab, results(CLEAN))
    lab.sandbox.edit_issue("ada", pull, state="closed")
    lab.settle()
    lab.sandbox.commit("ada", "side", {"README.md": b"x"}, "A side branch")
    lab.sandbox.commit("ada", "aside", {PATH: results(CLEAN)}, "Aside")
    aside = lab.sandbox.open_pull("ada", "Aside", "", "aside", base="side").number
    lab.settle()
    lab.sandbox.merge("grace", aside)
    lab.settle()
    assert rows(lab) == []


def test_a_merge_that_no_delivery_told_of_is_found_by_a_sweep(lab: Lab) -> None:
    pull = enter(lab, results(CLEAN))
    lab.sweep_every = catch_up.EVERY
    lab.die()
    lab.sandbox.merge("grace", pull)
    lab.clock.advance(timedelta(hours=2).total_seconds())
    lab.undelivered.clear()
    lab.settle()
    assert rows(lab) == [PATH]


def test_an_experiment_with_its_results_has_a_plan_and_a_check(lab: Lab) -> None:
    lab.preregister()
    files = {
        "experiments/warm/experiment.yaml": EXPERIMENT.encode(),
        "experiments/warm/text.txt": TEXT.encode(),
        "experiments/warm/speedrun_results.json": results(CLEAN),
    }
    lab.sandbox.commit("ada", "warm", files, "Experiment and results")
    lab.sandbox.open_pull("ada", "Warm", "", "warm")
    lab.settle()
    assert next(iter(lab.records("plans").values()))["plan"]
    assert [conclusion for _, conclusion in checks(lab)] == ["success"]


def test_reproduce_begins_the_labs_own_run_of_the_experiment_that_came_along(lab: Lab) -> None:
    lab.preregister()
    files = {
        "experiments/warm/experiment.yaml": EXPERIMENT.encode(),
        "experiments/warm/text.txt": TEXT.encode(),
        "experiments/warm/speedrun_results.json": results(CLEAN),
    }
    lab.sandbox.commit("ada", "warm", files, "Experiment and results")
    pull = lab.sandbox.open_pull("ada", "Warm", "", "warm").number
    lab.settle()
    lab.say("sam", pull, "/reproduce")
    assert lab.trainer.submissions == []
    lab.say("grace", pull, "/reproduce")
    assert len(lab.trainer.submissions) > 0
    lab.sandbox.merge("grace", pull)
    lab.settle()
    store = Store(lab.root / "store")
    (row,) = entered.rows(results_entries.merged(store), read_lab(store).entries)
    assert {ours.arm for ours in row.ours} == {"slow", "fast"}
    assert row.tier == "self-reported", "its figure is not what the lab got"
