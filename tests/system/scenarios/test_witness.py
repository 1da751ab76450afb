"""Records of what has ended are on a branch of the repository: once, in order, whatever happens."""

import hashlib
import json
import logging
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pygit2
import pytest
from typer.testing import CliRunner

from bot.cli.main import app
from bot.controller import records_branch
from bot.controller.write_budget import Pace
from bot.fake_github.world.faults import Fault
from bot.fake_github.world.sandbox import Sandbox
from bot.github import GitHub
from runner.lib import fault_points, redact
from runner.publish import charts, signing
from runner.publish.signing import Key
from runner.schema import record
from runner.store.store import Store
from tests.scenarios.lab import Lab, Mode, a_lab
from tests.system.scenarios.test_faults import PIXEL, Dies

REF = f"refs/heads/{records_branch.BRANCH}"
NOT_PERMITTED = '{"message": "Resource not accessible by integration"}'
RULES = '{"message": "Repository rule violations found\\n\\nCannot update this protected ref."}'
BROKEN = '{"message": "Server Error"}'


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of one pixel: to draw a real one takes a second."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab in which one execution has ended, and nothing was copied: its bot was told not to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "png", lambda _: PIXEL)
        with a_lab(tmp_path_factory.mktemp("told")) as lab:
            lab.preregister()
            lab.say("grace", lab.propose(), "/run")
            lab.die()
            yield lab


class Copying:
    """What copies, without the rest of a bot, on a store and a branch of its own."""

    def __init__(self, lab: Lab, place: Path) -> None:
        self.sandbox, self.clock = lab.sandbox, lab.clock
        self.git = lab.sandbox.world.git
        self.lab, self.place = lab, place
        self.store = Store(place)
        (self.id,) = ended(self.store)
        self.key: Key | None = None
        self.pace = Pace()
        self.new_life()

    def new_life(self) -> None:
        """Another process of the bot."""
        github = GitHub(
            "regatta-lab/lab",
            self.lab.credentials,
            api=f"{self.sandbox.url}/api/v3",
            seconds_between_writes=0,
            monotonic=self.lab.monotonic,
            sleep=self.lab.sleep,
        )
        github.on_write = self.pace.wrote
        self.witness = records_branch.Witness(self.store, github, self.pace, self.key)

    def work(self, most: int = 100) -> None:
        """Copy until nothing is due."""
        for _ in range(most):
            wait = self.witness.work(self.lab.monotonic())
            if wait is None:
                return
            self.lab.sleep(wait)
        raise AssertionError("the witness does not come to rest")

    def remove_branch(self) -> None:
        pygit2.Repository(str(self.git.path)).references.delete(REF)

    def forget(self) -> None:
        """The branch is gone, and so is all that is known of it."""
        if self.git.ref(REF):
            self.remove_branch()
        for name in self.store.list("records/witnessed"):
            self.store.remove(f"records/witnessed/{name}")

    def another(self, id: str, year: int) -> Path:
        """One more execution that has ended, in that year; where its records lie."""
        folder = self.place / "records/executions"
        (folder / id).mkdir()
        for name in ("execution", "result"):
            words = (folder / self.id / f"{name}.json").read_text().replace(self.id, id)
            changed = re.sub(r"20[0-9][0-9]-", f"{year}-", words)
            (folder / id / f"{name}.json").write_text(changed)
        return folder / id

    def broken(self, method: str, path: str, status: int, body: str, times: int = 1) -> None:
        """GitHub answers so."""
        fault = Fault("status_before", method, path, times, status, body)
        self.sandbox.faults.add(fault)

    def witnessed(self) -> list[str]:
        """The executions that are known to be on the branch."""
        return [name.removesuffix(".json") for name in self.store.list("records/witnessed")]


@pytest.fixture
def copying(told: Lab, tmp_path: Path) -> Iterator[Copying]:
    """One execution has ended and is to be copied."""
    shutil.copytree(told.root / "store", tmp_path / "store")
    copying = Copying(told, tmp_path / "store")
    copying.forget()
    yield copying
    told.sandbox.faults.clear()
    redact.forget()


def commits(sandbox: Sandbox) -> list[str]:
    """The messages of the branch's commits, oldest first."""
    git, found = sandbox.world.git, []
    sha = git.ref(REF)
    while sha:
        commit = git.commit(sha)
        found.append(commit.message.strip())
        sha = str(commit.parent_ids[0]) if commit.parent_ids else None
    return found[::-1]


def files(sandbox: Sandbox) -> dict[str, bytes]:
    """{path: content} of the branch."""
    git = sandbox.world.git
    tip = git.ref(REF)
    assert tip is not None
    entries = git.tree(tip, recursive=True)
    return {entry.path: git.blob(entry.sha) for entry in entries if entry.type == "blob"}


def ended(store: Store) -> list[str]:
    """The executions that have ended, in the order of their ends."""
    found = {
        id: record.read(store, f"executions/{id}/result", record.Result)
        for id in record.names(store, "executions")
    }
    ends = {id: result.at for id, result in found.items() if result}
    return sorted(ends, key=ends.__getitem__)


ROOT_COMMIT = "Records of finished executions"


# ── Once, in order ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["server", "actions"])
def test_an_execution_that_ends_is_one_commit_with_its_records(tmp_path: Path, mode: Mode) -> None:
    with a_lab(tmp_path, mode=mode) as lab:
        lab.die()
        lab.records_branch = True
        lab.preregister()
        lab.say("sam", (pull := lab.propose()), "/run")
        lab.say("grace", pull, "/run")
        (id,) = ended(lab.store)
        assert commits(lab.sandbox) == [ROOT_COMMIT, f"{id}: done"]
        there = files(lab.sandbox)
        assert there.pop("README.md") == records_branch.README.encode()
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
        if mode == "server":
            lab.say("grace", pull, "/reproduce")
        more = [f"{other}: done" for other in ended(lab.store)]
        assert commits(lab.sandbox) == [ROOT_COMMIT, *more]
        assert len(more) == (1 if mode == "actions" else 2)


def test_records_on_the_branch_are_not_copied_again(copying: Copying) -> None:
    copying.work()
    tip = copying.git.ref(REF)
    for _ in range(2):
        copying.witness.look()
        copying.work()
        copying.new_life()
        copying.work()
    copying.store.remove(f"records/witnessed/{copying.id}.json")  # as a backup has it
    copying.new_life()
    copying.work()
    assert copying.git.ref(REF) == tip
    assert copying.witnessed() == [copying.id]


def test_a_lab_of_many_catches_up_oldest_first_and_leaves_room_for_answers(
    copying: Copying,
) -> None:
    copying.pace = Pace(((60.0, 12),))
    copying.new_life()
    others = [f"x{n:016d}" for n in range(5)]
    for n, id in enumerate(others):
        copying.another(id, 2020 - n)
    began = copying.clock.now()
    copying.work()
    assert commits(copying.sandbox)[1:] == [f"{id}: done" for id in [*others[::-1], copying.id]]
    # Half of twelve writes a minute, so that two executions fit.
    assert copying.clock.now() - began > timedelta(minutes=2)


def test_a_switched_off_records_branch_sends_no_request(copying: Copying) -> None:
    copying.witness._on = False
    before = len(copying.sandbox.requests)
    copying.work()
    assert (len(copying.sandbox.requests), copying.git.ref(REF)) == (before, None)


# ── Whatever happens ─────────────────────────────────────────────────────────────────────────


def test_a_crash_at_any_point_leaves_one_commit(copying: Copying) -> None:
    quiet = Dies(None)
    with fault_points.hooked(quiet):
        copying.work()
    assert {f"github.{x}.after" for x in ("add_files", "commit", "advance")} < quiet.counts.keys()
    # Before one effect is after the one before it.
    after = {name: count for name, count in quiet.counts.items() if name.endswith(".after")}
    for at in [(name, n + 1) for name, count in after.items() for n in range(count)]:
        copying.forget()
        copying.new_life()
        with fault_points.hooked(Dies(at)), pytest.raises(fault_points.Ended):
            copying.work()
        copying.new_life()
        copying.work()
        assert commits(copying.sandbox) == [ROOT_COMMIT, f"{copying.id}: done"], at
        assert copying.witnessed() == [copying.id]


@pytest.mark.parametrize("kind", ["status_after", "drop_after", "drop_before", "cut"])
def test_a_lost_answer_leaves_one_commit(copying: Copying, kind: str) -> None:
    copying.sandbox.faults.add(Fault(kind, "PATCH", "/git/refs/"))
    copying.work()
    assert commits(copying.sandbox) == [ROOT_COMMIT, f"{copying.id}: done"]


@pytest.mark.parametrize("first", [True, False])
def test_commits_of_others_stay(copying: Copying, first: bool) -> None:
    """They push between the look at the branch and its move, once it is there, or make it."""
    git, writes = copying.git, 0
    if not first:
        copying.witness._begin()

    def push(point: str) -> None:
        nonlocal writes
        if point == ("github.create_ref.before" if first else "github.advance.before"):
            writes += 1
            if writes == 1:
                tree = git.write_tree(None, [("theirs", "100644", git.write_blob(b"1"))])
                by = copying.sandbox.signature(copying.sandbox.user("grace"))
                parents = [tip] if (tip := git.ref(REF)) else []
                git.set_ref(REF, git.write_commit(tree, parents, "Mine", by, by))

    with fault_points.hooked(push):
        copying.work()
    assert writes == (1 if first else 2)
    assert commits(copying.sandbox)[-2:] == ["Mine", f"{copying.id}: done"]
    assert files(copying.sandbox)["theirs"] == b"1"
    assert copying.witnessed() == [copying.id]


def test_a_branch_that_was_removed_begins_anew_with_what_ends_then(copying: Copying) -> None:
    copying.work()
    copying.remove_branch()
    copying.another("x" + "1" * 16, 2030)
    copying.witness.look()
    copying.work()
    assert commits(copying.sandbox) == [ROOT_COMMIT, f"x{'1' * 16}: done"]


def test_a_copy_by_a_faster_process_is_noticed(copying: Copying) -> None:
    copying.witness._begin()
    other = Copying(copying.lab, copying.place)
    done = []

    def overtake(point: str) -> None:
        if point == "github.advance.before" and not done:
            done.append(point)
            other.work()
            copying.store.remove(f"records/witnessed/{copying.id}.json")

    with fault_points.hooked(overtake):
        copying.work()
    assert commits(copying.sandbox) == [ROOT_COMMIT, f"{copying.id}: done"]


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/git/trees$", 403, NOT_PERMITTED),
        ("/git/refs$", 422, RULES),
        ("/git/refs/", 422, RULES),
        ("/git/refs/", 403, NOT_PERMITTED),
        ("/git/ref/", 409, '{"message": "Git Repository is empty."}'),
    ],
)
def test_a_refused_copy_is_logged_once_and_retried_hourly(
    copying: Copying, caplog: pytest.LogCaptureFixture, path: str, status: int, body: str
) -> None:
    copying.broken("*", path, status, body, 10**6)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            copying.work()
            before = len(copying.sandbox.requests)
            copying.witness.look()
            copying.work()
            assert len(copying.sandbox.requests) == before  # not before an hour is over
            copying.clock.advance(3601)
    (said,) = [one.getMessage() for one in caplog.records if one.name == "regatta.witness"]
    assert json.loads(body)["message"].split("\n")[0] in said
    assert "REGATTA_RECORDS_BRANCH=off" in said
    copying.sandbox.faults.clear()  # an operator mends it
    copying.work()
    assert commits(copying.sandbox) == [ROOT_COMMIT, f"{copying.id}: done"]


def test_a_refused_branch_keeps_nobody_from_anything(tmp_path: Path) -> None:
    with a_lab(tmp_path) as lab:
        lab.die()
        lab.records_branch = True
        lab.preregister()
        pull = lab.propose()
        lab.sandbox.faults.add(Fault("status_before", "PATCH", "/git/refs/", 10**6, 422, RULES))
        lab.say("grace", pull, "/run")
        assert lab.labels(1) == ["experiment: done"]
        assert not any(records_branch.BRANCH in words for n in (1, 2) for words in lab.comments(n))
        assert commits(lab.sandbox) == [ROOT_COMMIT]


def test_a_github_that_stumbles_is_asked_again_soon(copying: Copying) -> None:
    copying.broken("*", "/git/(commits|trees)", 502, BROKEN, 5)
    limited = Fault("status_before", "PATCH", "/git/", 1, 403, headers={"retry-after": "120"})
    copying.sandbox.faults.add(limited)
    began = copying.clock.now()
    copying.work()
    assert commits(copying.sandbox) == [ROOT_COMMIT, f"{copying.id}: done"]
    assert timedelta(seconds=120) < copying.clock.now() - began < timedelta(minutes=15)


def test_an_execution_that_cannot_be_copied_does_not_block_the_next(copying: Copying) -> None:
    (copying.another("x" + "0" * 16, 2001) / "execution.json").write_text("{}")
    copying.another("x" + "1" * 16, 2002)
    (copying.another("x" + "2" * 16, 2003) / "result.json").write_text("{}")
    copying.witness._begin()
    copying.broken("POST", "/git/trees$", 422, '{"message": "tree.content too large"}')
    copying.work()
    assert commits(copying.sandbox)[1:] == [f"{copying.id}: done"]
    copying.new_life()  # which tries them again
    copying.work()
    assert commits(copying.sandbox)[2:] == [f"x{'1' * 16}: done"]


# ── What is copied ───────────────────────────────────────────────────────────────────────────


def test_large_records_go_in_parts_and_too_large_ones_are_named(
    copying: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying.work()
    whole = files(copying.sandbox)
    copying.forget()
    monkeypatch.setattr(records_branch, "MAX_AT_ONCE", 3)
    sizes = {path: len(content) for path, content in whole.items() if "/runs/" in path}
    largest = max(sizes, key=sizes.__getitem__)
    big = copying.place / largest
    big.write_bytes(big.read_bytes() + b" " * records_branch.MAX_FILE)
    copying.new_life()
    copying.work()
    assert len([x for x in copying.sandbox.requests if x.path.endswith("/git/trees")]) >= 5
    there = files(copying.sandbox)
    told = json.loads(there.pop(f"left-out/{copying.id}.json"))
    assert there == {path: content for path, content in whole.items() if path != largest}
    digest = hashlib.sha256(big.read_bytes()).hexdigest()
    why = "it is larger than 1 MB"
    assert told == {largest: {"bytes": big.stat().st_size, "sha256": digest, "why": why}}
    assert "left-out/" in commits(copying.sandbox)[-1]
    monkeypatch.setattr(records_branch, "MAX_FILES", 3)
    copying.forget()
    copying.new_life()
    copying.work()
    there = files(copying.sandbox)
    assert len([path for path in there if path.startswith("records/")]) == 3
    assert len(json.loads(there[f"left-out/{copying.id}.json"])) == len(whole) - 1 - 3
    copying.store.remove(f"records/witnessed/{copying.id}.json")
    copying.new_life()
    copying.work()
    assert len(commits(copying.sandbox)) == 2  # the result is none of the three


def test_peoples_texts_and_secrets_are_not_copied(copying: Copying) -> None:
    (copying.place / "records/inbox/secret.json").write_text('{"words": "said in private"}')
    record_of = copying.place / f"records/executions/{copying.id}/t1.claimed.json"
    nonce = json.loads(record_of.read_text())["nonce"]
    redact.hold(nonce)
    copying.work()
    there = files(copying.sandbox)
    assert not any(
        path.split("/")[1] in ("inbox", "said", "handled") for path in there if "/" in path
    )
    assert not any(nonce.encode() in content for content in there.values())
    left = json.loads(there[f"left-out/{copying.id}.json"])
    assert {one["why"] for one in left.values()} == {"it holds a secret"}


def test_a_revoked_key_signs_nothing_and_is_not_published_again(
    copying: Copying, tmp_path: Path
) -> None:
    key = copying.key = signing.make_key(tmp_path / "lab.pem")
    signing.keep(copying.store, key, copying.clock.now())
    signing.revoke(copying.store, key.id, copying.clock.now())
    execution = record.require(
        copying.store, f"executions/{copying.id}/execution", record.Execution
    )
    assert list(records_branch._signed(copying.store, execution, key)) == []


def test_in_a_checkout_a_receipt_can_be_verified(
    copying: Copying, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying.key = signing.make_key(tmp_path / "lab.pem")
    signing.keep(copying.store, copying.key, copying.clock.now())
    copying.new_life()
    copying.work()
    subprocess.run(
        [
            "git",
            "clone",
            "--quiet",
            "--branch",
            records_branch.BRANCH,
            copying.git.path,
            tmp_path / "out",
        ],
        check=True,
    )
    monkeypatch.chdir(tmp_path / "out")
    signed = [path.as_posix() for path in Path("signed").rglob("*.json")]
    assert len(signed) == 3
    for path in signed:
        answer = CliRunner().invoke(app, ["verify", path])
        assert answer.exit_code == 0, answer.output
    receipt = Path(f"signed/executions/{copying.id}/result.json")
    result = json.loads(Path(f"records/executions/{copying.id}/result.json").read_text())
    assert json.loads(receipt.read_text())["record"]["result"] == result
    receipt.write_text(receipt.read_text().replace('"done"', '"failed"'))
    assert CliRunner().invoke(app, ["verify", str(receipt)]).exit_code == 1
