"""Records of what has ended are on a branch of the repository: once, in order, whatever happens."""

import json
import logging
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot import witness
from bot.cli import app
from bot.github import GitHub
from bot.pace import Pace
from bot.reconcile import Reconciler
from bot.sandbox.faults import Fault
from runner import charts, faults, redact, signing
from runner.signing import Key
from tests.scenarios.lab import Lab, Mode, a_lab
from tests.scenarios.test_faults import PIXEL, Dies

REF = f"refs/heads/{witness.BRANCH}"
NOT_PERMITTED = '{"message": "Resource not accessible by integration"}'
RULES = '{"message": "Repository rule violations found"}'


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of one pixel: to draw a real one takes a second."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab in which one execution has ended, and nothing was copied: the bot that did it was told
    not to."""
    with a_lab(tmp_path) as lab:
        lab.preregister()
        lab.say("grace", lab.propose(), "/run")
        lab.die()
        lab.records_branch = True
        yield lab


def commits(lab: Lab) -> list[str]:
    """The messages of the branch's commits, oldest first."""
    git, found = lab.sandbox.world.git, []
    sha = git.ref(REF)
    while sha:
        commit = git.commit(sha)
        found.append(commit.message.strip())
        (sha,) = commit.parents or (None,)
    return found[::-1]


def files(lab: Lab) -> dict[str, bytes]:
    """{path: content} of the branch."""
    git = lab.sandbox.world.git
    tip = git.ref(REF)
    assert tip is not None
    entries = git.tree(tip, recursive=True)
    return {entry.path: git.blob(entry.sha) for entry in entries if entry.type == "blob"}


def ended(lab: Lab) -> list[str]:
    """The executions that have ended, in the order of their ends."""
    found = lab.records("executions")
    ends = {path[:17]: one["at"] for path, one in found.items() if path.endswith("/result.json")}
    return sorted(ends, key=ends.__getitem__)


def a_witness(lab: Lab, key: Key | None = None) -> witness.Witness:
    """What copies, without the rest of a bot."""
    github = GitHub(
        "regatta-lab/lab",
        lab.credentials,
        api=f"{lab.sandbox.url}/api/v3",
        seconds_between_writes=0,
        monotonic=lab.monotonic,
        sleep=lab.sleep,
    )
    return witness.Witness(lab.store, github, Pace(), key)


def work(lab: Lab, copies: witness.Witness, most: int = 50) -> None:
    """Copy until nothing is due."""
    for _ in range(most):
        wait = copies.work(lab.monotonic())
        if wait is None:
            return
        lab.sleep(wait)
    raise AssertionError("the witness does not come to rest")


@pytest.mark.parametrize("mode", ["server", "actions"])
def test_an_execution_that_ends_is_one_commit_with_its_records(tmp_path: Path, mode: Mode) -> None:
    with a_lab(tmp_path, mode=mode) as lab:
        lab.die()
        lab.records_branch = True
        lab.preregister()
        lab.say("sam", (pull := lab.propose()), "/run")
        lab.say("grace", pull, "/run")
        (id,) = ended(lab)
        assert commits(lab) == ["Records of finished executions", f"{id}: done"]
        there = files(lab)
        assert there.pop("README.md") == witness.README.encode()
        store = tmp_path / "store"
        assert all((store / path).read_bytes() == content for path, content in there.items())
        kinds = {path.split("/")[1] for path in there}
        assert kinds == {"executions", "plans", "approvals", "preregistrations", "runs"}
        own = {f"records/executions/{id}/{path}" for path in lab.records(f"executions/{id}")}
        assert own <= there.keys()
        assert len([path for path in there if "/runs/" in path]) == 6
        approvals = [json.loads(there[path]) for path in there if "/approvals/" in path]
        assert [one["by"]["login"] for one in approvals] == ["grace"]  # sam's was none
        lab.clock.advance(3600)
        lab.settle()
        assert len(commits(lab)) == 2
        log = lab.sandbox.world.git.commit(lab.sandbox.world.git.ref(REF) or "")
        assert log.author.name == lab.sandbox.world.bot.name


def test_two_executions_are_two_commits_in_the_order_of_their_ends(lab: Lab) -> None:
    lab.settle()
    lab.say("grace", 2, "/retry")
    lab.say("grace", 2, "/reproduce")
    first, *more = ended(lab)
    assert more
    assert commits(lab)[1:] == [f"{id}: done" for id in (first, *more)]


def test_a_lab_of_many_executions_catches_up_oldest_first_and_leaves_room_for_answers(
    lab: Lab,
) -> None:
    lab.start()
    copies = a_witness(lab)
    (id,) = ended(lab)
    folder = lab.root / "store/records/executions"
    for n in range(20):
        there = folder / f"x{n:016d}"
        there.mkdir()
        for name in ("execution", "result"):
            words = (folder / id / f"{name}.json").read_text().replace(id, there.name)
            (there / f"{name}.json").write_text(words.replace("2026", str(2000 + n)))
    began = lab.clock.now()
    work(lab, copies, 200)
    assert commits(lab)[1:] == [f"x{n:016d}: done" for n in range(20)] + [f"{id}: done"]
    assert lab.clock.now() - began >= timedelta(minutes=0)


def test_who_dies_anywhere_on_the_way_leaves_one_commit(lab: Lab) -> None:
    lab.start()
    quiet = Dies(None)
    with faults.hooked(quiet):
        work(lab, a_witness(lab))
    once = commits(lab)
    points = [(name, n + 1) for name, count in quiet.counts.items() for n in range(count)]
    assert {"github.add_files.after", "github.commit.after", "github.advance.after"} <= {
        name for name, _ in points
    }
    git = lab.sandbox.world.git
    for at in points:
        git._run("update-ref", "-d", REF)
        (witnessed,) = lab.records("witnessed")
        lab.store.remove(f"records/witnessed/{witnessed}")
        with faults.hooked(Dies(at)), pytest.raises(faults.Ended):
            work(lab, a_witness(lab))
        work(lab, a_witness(lab))
        assert commits(lab) == once, at
        assert len(lab.records("witnessed")) == 1
