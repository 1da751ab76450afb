"""What people do to a thread or a repository meanwhile: docs/situations.md, row by row."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from bot.fake_github.world.errors import Refused
from bot.fake_github.world.state import Clock
from runner.publish import charts
from tests.scenarios import lab as labs
from tests.scenarios.lab import READING, ROOT, Lab, a_lab
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_approval import from_a_fork, line
from tests.system.scenarios.test_recovery import answers, results, turn
from tests.system.scenarios.test_story import PIXEL, begun, finish, tell

TABLE = ROOT / "docs" / "situations.md"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab whose trainer takes steps only when it is told to."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        yield lab


def states(lab: Lab) -> list[str]:
    return [result["state"] for result in results(lab)]


def test_each_row_of_the_table_names_a_test_that_is_there() -> None:
    lines = [row for row in TABLE.read_text().splitlines() if row.startswith("| ")]
    rows = [row for row in lines if not row.startswith(("| what ", "| --- "))]
    assert len(rows) >= 20
    for row in rows:
        named = re.search(r"\| `(tests/\S+\.py)::(test_\w+)` \|$", row)
        assert named, row
        assert re.search(rf"^def {named[2]}\(", (ROOT / named[1]).read_text(), re.MULTILINE), row


# ── Pull requests ────────────────────────────────────────────────────────────────────────────


def test_a_removed_fork_changes_nothing_for_an_approved_commit(lab: Lab) -> None:
    lab.preregister()
    pull = from_a_fork(lab)
    lab.sandbox.remove_fork("ada")
    lab.sandbox.comment("grace", pull, "/run")
    lab.look()
    assert "needs the code of the plan" in lab.last(pull)
    tell(lab, "grace", pull, line(lab, pull))
    finish(lab)
    assert states(lab) == ["done"]


def test_a_draft_is_planned_and_not_run(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.sandbox.set_draft("ada", pull, True)
    lab.say("grace", pull, line(lab, pull))
    assert "is a draft" in lab.last(pull)
    assert lab.trainer.submissions == []
    lab.sandbox.set_draft("ada", pull, False)
    tell(lab, "grace", pull, line(lab, pull))
    finish(lab)
    assert states(lab) == ["done"]


def test_a_draft_before_the_launch_voids_the_approval(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.trainer.reachable = False
    tell(lab, "grace", pull, "/run")
    lab.sandbox.set_draft("ada", pull, True)
    lab.trainer.reachable = True
    lab.settle()
    assert states(lab) == ["voided"]
    assert "is a draft" in lab.last(pull)


def test_a_merge_while_it_runs_stops_nothing(lab: Lab) -> None:
    pull = begun(lab)
    lab.sandbox.merge("grace", pull)
    finish(lab)
    assert states(lab) == ["done"]
    assert answers(lab, "<summary>Receipt</summary>") == 1


def test_nothing_starts_on_a_merged_pull_request(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.sandbox.merge("grace", pull)
    lab.say("grace", pull, f"{line(lab, pull)}\n/plan\n/status")
    said = "".join(lab.comments(pull))
    assert "The pull request is closed" in said
    assert "This pull request is closed. Reopen it" in said
    assert "Nothing has run here yet" in said
    assert lab.trainer.submissions == []


def test_a_reopened_pull_request_can_be_run(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    for state in ("closed", "open"):
        lab.sandbox.edit_issue("ada", pull, state=state)
        lab.settle()
    lab.clock.advance(READING)
    tell(lab, "grace", pull, "/run")
    finish(lab)
    assert states(lab) == ["done"]
    assert len(lab.records("plans")) == 1


# ── Comments ─────────────────────────────────────────────────────────────────────────────────


def test_a_deleted_command_is_still_answered(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    for body in ("/run", "/help"):
        lab.clock.advance(READING)
        said = lab.sandbox.comment("grace", pull, body)
        lab.sandbox.delete_comment("grace", said.id)
    lab.look(10)
    assert answers(lab, "approved by grace") == 1
    assert answers(lab, "what it does") == 1
    finish(lab)
    assert states(lab) == ["done"]


def test_an_edited_command_counts_as_it_was_first_written(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.clock.advance(READING)
    said = lab.sandbox.comment("grace", pull, "/status")
    lab.sandbox.edit_comment("grace", said.id, "/run")
    lab.settle()
    assert "Nothing has run here yet" in lab.last(pull)
    assert lab.records("approvals") == {}


def test_a_deleted_status_comment_is_not_posted_again(lab: Lab) -> None:
    pull = begun(lab)
    issue = lab.sandbox.issue(pull)
    (status,) = [c for c in issue.comments if "regatta: status." in c.body]
    lab.sandbox.delete_comment("grace", status.id)
    turn(lab, 120)
    finish(lab)
    assert states(lab) == ["done"]
    assert answers(lab, "regatta: status.") == 0
    assert answers(lab, "<summary>Receipt</summary>") == 1


def test_a_locked_thread_stops_no_run(lab: Lab) -> None:
    pull = begun(lab)
    lab.sandbox.lock("grace", pull)
    with pytest.raises(Refused):
        lab.sandbox.comment("sam", pull, "/cancel")
    finish(lab)
    assert states(lab) == ["done"]
    runs = [run for run in lab.sandbox.world.checks.values() if run.name.startswith("regatta / x")]
    assert [run.conclusion for run in runs] == ["success"]
    (told,) = [fact for path, fact in lab.records("said").items() if "result.x" in path
               and path.endswith("done.json")]  # fmt: skip
    assert "issue is locked" in told["note"]


# ── Issues and repositories ──────────────────────────────────────────────────────────────────


def test_a_transferred_issue_keeps_its_seal(lab: Lab) -> None:
    issue = lab.preregister()
    pull = lab.propose()
    seals = lab.records("preregistrations")
    lab.sandbox.transfer_issue(issue)
    lab.settle()
    lab.clock.advance(READING)
    tell(lab, "grace", pull, "/run")
    finish(lab)
    assert lab.records("preregistrations") == seals
    assert states(lab) == ["done"]
    assert answers(lab, "<summary>Receipt</summary>") == 1


def test_a_renamed_repository_is_followed(lab: Lab) -> None:
    pull = begun(lab)
    lab.sandbox.rename("regatta")
    tell(lab, "grace", pull, "/status")
    assert "| execution | state |" in lab.last(pull)
    finish(lab)
    assert states(lab) == ["done"]
    assert answers(lab, "<summary>Receipt</summary>") == 1


def test_a_newly_private_repository_is_served(lab: Lab) -> None:
    pull = begun(lab)
    lab.sandbox.set_private(True)
    tell(lab, "grace", pull, "/status")
    assert "| execution | state |" in lab.last(pull)
    finish(lab)
    assert states(lab) == ["done"]


def test_a_suspended_installation_is_told_everything_later(lab: Lab) -> None:
    begun(lab)
    lab.sandbox.suspend(True)
    lab.trainer.pace = None
    turn(lab, 120)
    assert states(lab) == ["done"]
    assert answers(lab, "<summary>Receipt</summary>") == 0
    lab.sandbox.suspend(False)
    lab.settle()
    assert answers(lab, "<summary>Receipt</summary>") == 1


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_clock_ten_minutes_off_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    began = (datetime.now(UTC) + timedelta(minutes=minutes)).replace(microsecond=0)
    monkeypatch.setattr(labs, "Clock", partial(Clock, began))
    with a_lab(tmp_path) as lab:
        lab.preregister()
        lab.say("grace", lab.propose(), "/run")
        assert states(lab) == ["done"]
        for folder in ("preregistrations", "plans", "approvals", "executions"):
            for path, fact in lab.records(folder).items():
                at = datetime.fromisoformat(fact["at"])
                assert began <= at <= lab.clock.now() + timedelta(seconds=1), path
