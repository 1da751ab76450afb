"""GitHub's own buttons, pull requests that the lab has no part in, and links."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.controller.reconciler import Reconciler
from bot.fake_github.world import shapes_code
from bot.model.site import Site
from tests.reports.github.github_lab import (
    Changed,
    begin,
    checks,
    count,
    is_complete,
    open_issue,
    open_pull,
    plans,
    say,
    turn,
)
from tests.scenarios.lab import Lab

DOCS = {"docs/words.md": b"Words.\n"}
ROOT = Path(__file__).parents[3]


def rerun_all(lab: Lab, who: str, *, app: str = "", head: str = "", action: str = "") -> int:
    """Somebody presses *Re-run all checks* at the newest check. Returns how many plans there are
    then."""
    world = lab.sandbox.world
    suite: dict[str, Any] = shapes_code.check_suite(world, list(world.checks.values())[-1])
    suite["app"] |= {"slug": app} if app else {}
    suite |= {"head_sha": head} if head else {}
    lab.clock.advance(30)
    with lab.sandbox.changing():
        told = {"action": action or "rerequested", "check_suite": suite}
        lab.sandbox.emit("check_suite", lab.sandbox.user(who), **told)
    lab.settle()
    return len(plans(lab))


@pytest.fixture
def planned(lab: Lab) -> Lab:
    """A pull request with a plan."""
    open_issue(lab)
    lab.settle()
    open_pull(lab)
    lab.settle()
    return lab


def test_mergewatch_558_rerun_all_checks_reads_the_branch_again_at_each_press(planned: Lab) -> None:
    """Also rocq-prover/bot#259, google/github-owners-bot#53, packit/packit-service#1307."""
    assert rerun_all(planned, "grace") == 2
    assert rerun_all(planned, "grace") == 3
    assert checks(planned) == [("regatta / plan", "success")] * 3
    assert count(planned, "**Not done:**") == 0


@pytest.mark.parametrize(
    "pressed",
    [
        {"app": "another-app"},  # mergewatch/mergewatch.ai#562
        {"head": "c" * 40},
        {"action": "requested"},  # tektoncd/pipelines-as-code#549: after each push
        {"action": "completed"},
    ],
)
def test_pipelines_as_code_549_what_is_no_press_or_of_others_is_none_of_the_labs_business(
    planned: Lab, pressed: dict[str, str]
) -> None:
    assert rerun_all(planned, "grace", **pressed) == 1
    assert count(planned, "**Not done:**") == 0


def test_agentconnect_113_who_may_not_plan_is_told_so(planned: Lab) -> None:
    assert rerun_all(planned, "sam") == 1
    assert count(planned, "**Not done:** `/plan` by sam.") == 1


@pytest.mark.parametrize(
    "action",
    [
        "checks_requested",  # linear-b/gitstream#209, claritychallenge/clarity#287
        "destroyed",  # agentnameservice/ans#110: the queue gave up; JiRaska/open-bank-oss#6513
    ],
)
def test_dcoapp_303_a_merge_queue_gets_no_check_and_the_manual_says_not_to_require_one(
    planned: Lab, action: str
) -> None:
    before = checks(planned)
    with planned.sandbox.changing():
        group = {"head_sha": "c" * 40, "head_ref": "refs/heads/gh-readonly-queue/main/pr-2"}
        told = {"action": action, "merge_group": group}
        planned.sandbox.emit("merge_group", planned.sandbox.user("grace"), **told)
    planned.settle()
    assert checks(planned) == before
    assert planned.answers[-1] == 200
    said = " ".join((ROOT / "docs/run-a-lab.md").read_text().split())
    assert "Do not require the check of a plan where a queue merges" in said


def test_topo_processor_1472_the_manual_says_that_github_switches_schedules_off() -> None:
    """cdepillabout/nix-haskell-updates-status#2, opentofu/registry-ui#259,
    linz/linz-data-importer#182: after 60 days, and nobody is told."""
    said = " ".join((ROOT / "docs/run-a-lab.md").read_text().split())
    assert "GitHub stops scheduled workflows of a public repository after 60 days" in said
    assert "switch the workflow on again under *Actions*" in said


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/run", "There is no plan here; one comes when the branch changes an experiment"),
        ("/run k3f2-abcd-efgh-ijkl-mnop", "There is no plan here; one comes when the branch"),
        ("/status", "There is no plan here: one comes when the branch changes an experiment"),
        ("/plan", "changes no experiment (a folder in `experiments/`)"),
    ],
)
def test_what_is_said_on_a_pull_request_without_an_experiment_says_what_gets_a_plan(
    lab: Lab, command: str, words: str
) -> None:
    open_issue(lab)
    lab.sandbox.commit("ada", "warm", DOCS, "Words")
    lab.sandbox.open_pull("ada", "Words", "", "warm")
    lab.settle()
    say(lab, "grace", command)
    lab.settle()
    assert words in lab.last(2)
    assert "newest plan" not in lab.last(2)
    assert checks(lab) == []


def test_a_page_is_there_before_a_comment_links_to_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(lab)
    assert isinstance(lab.bot, Reconciler)
    seen = replace(lab.bot._observer, site=Site("https://lab.example"))
    monkeypatch.setattr(lab.bot, "_observer", seen)
    drawn, posts = [0], list[int]()

    def draw() -> None:
        drawn.append(sum(path.endswith("/result.json") for path in lab.records("executions")))

    def at_this_moment(method: str, path: str) -> None:
        if (method, path.rpartition("/")[2]) == ("POST", "comments"):
            posts.append(drawn[-1])

    monkeypatch.setattr(lab.bot, "_on_records", draw)
    lab.sandbox.faults = Changed(at_this_moment)
    lab.trainer.pace = None
    turn(lab, 420, 5)
    assert is_complete(lab)
    assert "https://lab.example/executions/" in lab.last(2)
    assert posts[-1] == 1, "the site is drawn with the result before the result is posted"
