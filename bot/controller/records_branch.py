"""Copies the records of finished executions to a branch, whose history proves their time.

One commit per execution, on top of the branch and never by force: its records, plan, approvals and
preregistration, each under its name in the store and with the same bytes; with a key, signed files,
too. Nothing is read back: no rule uses facts from the branch. Records without an approved
execution, and people's texts, are not copied.

    witnessed/<execution>.json      the records are on the branch, at this commit

A crash between the commit and that record leaves the commit, or an unreachable object; so the bot
first checks whether the result is on the branch. If GitHub refuses, nothing else waits: the log and
`regatta doctor` say so, and the bot retries an hour later.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import chain

from bot.controller.write_budget import FIGURES, LONGEST_RETRY, Pace
from bot.github import GitHub, Gone, Later, Refused
from bot.github.answers import RefusedForNow
from bot.github.branches import Tip, blob_id
from bot.telemetry import metrics
from runner.lib import redact
from runner.lib.base_record import Instant, Record
from runner.lib.canonical_json import to_json
from runner.publish import signing
from runner.publish.signing import Key
from runner.schema import record
from runner.schema.record import run_name
from runner.store.store import Store, StoreError, StoreFault

BRANCH = "regatta-records"
# GitHub gives up on a tree after ten seconds, which about a hundred files or a few MB take.
MAX_AT_ONCE, MAX_BYTES_AT_ONCE = 50, 1 << 20
MAX_FILE = 1 << 20  # bytes
MAX_FILES, MAX_BYTES = 1000, 16 << 20  # per execution
WRITES = 3  # per execution: a tree, a commit, the branch
MAX_TRIES = 3  # attempts to move the branch if others move it, too
RETRY = timedelta(seconds=10)
REFUSED = timedelta(hours=1).total_seconds()  # until the next try
UNPROCESSABLE = 422
# Points of a curve: they contain no text, and searching them for secrets takes long.
POINTS = re.compile(r"(\[\s*\d+,\s*-?[\d.]+(e[+-]?\d+)?\s*\],?\s*)+")

README = """\
# Records of this lab

The lab of this repository copies the records of each execution that has ended to this branch: one
commit an execution. Its history witnesses when they were there. The lab reads nothing of it back.

- `records/`: what the lab wrote down, under the same names and with the same bytes as in its store
- `signed/`, `keys.json`: the same with the lab's signature, if it has a key. In a checkout,
  `regatta verify signed/executions/<execution>/result.json` checks digest, signature and verdicts
- `left-out/`: what of an execution was too large for here, with its SHA-256
"""

log = logging.getLogger("regatta.witness")


class Witnessed(Record):
    """The records of an execution are on the branch."""

    at: Instant
    commit: str  # of the branch, with the records


class _Odd(Exception):
    """GitHub refuses the content of this execution's commit."""


# ── What is copied ───────────────────────────────────────────────────────────────────────────


def waiting(store: Store, ends: dict[str, datetime] | None = None) -> dict[str, datetime]:
    """{execution: when it ended} of those that are not on the branch, oldest first. `ends` caches
    this; it grows."""
    ends = {} if ends is None else ends
    there = set(record.names(store, "witnessed"))
    missing = [id for id in record.names(store, "executions") if id not in there]
    for id in missing:
        if id not in ends and (at := _end(store, id)):
            ends[id] = at
    ended = [id for id in missing if id in ends]
    return {id: ends[id] for id in sorted(ended, key=lambda id: (ends[id], id))}


def _end(store: Store, id: str) -> datetime | None:
    try:
        result = record.read(store, f"executions/{id}/result", record.Ending)
    except StoreFault:
        raise
    except StoreError as error:  # its own thread reports it; the others are copied
        log.warning("%s", error)
        return None
    return result.at if result else None


def copied(store: Store, id: str, key: Key | None) -> dict[str, str]:
    """{path: content} that an execution's commit adds; files that are too large, or contain a known
    secret, are only named in `left-out/`."""
    execution = record.require(store, f"executions/{id}/execution", record.Execution)
    files: dict[str, str] = {}
    left_out: dict[str, dict[str, str | int]] = {}
    room = MAX_BYTES
    for path, content in chain(_records(store, execution), _signed(store, execution, key)):
        text = content.decode()
        if len(content) > MAX_FILE:
            why = f"it is larger than {MAX_FILE >> 20} MB"
        elif len(files) >= MAX_FILES or len(content) > room:
            why = "there was too much of this execution"
        elif redact.clean(words := POINTS.sub("", text)) != words:
            why = "it holds a secret"
        else:
            files[path] = text
            room -= len(content)
            continue
        digest = sha256(content).hexdigest()
        left_out[path] = {"bytes": len(content), "sha256": digest, "why": why}
    if left_out:
        files[f"left-out/{id}.json"] = to_json(left_out).decode()
    return files


def _records(store: Store, execution: record.Execution) -> Iterator[tuple[str, bytes]]:
    for name in _names(store, execution):
        content = store.peek(name)
        if content is not None:
            yield name, content


def _names(store: Store, execution: record.Execution) -> Iterator[str]:
    """The names of an execution's files in the store; some may not exist."""
    id, origin, plan = execution.id, execution.origin, execution.plan
    yield from _below(store, f"executions/{id}")
    if origin:
        place = f"{origin.repository}/{origin.pull}"
        yield f"records/plans/{place}/{origin.plan}.json"
        for approval in dict.fromkeys((origin.approval, *execution.approvals)):
            yield f"records/approvals/{place}/{record.command_of(approval)}.json"
        cancelled = record.read(store, f"executions/{id}/cancelled", record.Cancelled)
        if cancelled and cancelled.command:
            yield f"records/answers/{place}/{cancelled.command}.json"
        if plan.preregistration is not None:
            yield from _below(store, f"preregistrations/{origin.repository}/{plan.preregistration}")
    yield from _below(store, "keys")
    yield from _below(store, f"replays/{id}")
    for arm, seed in plan.runs():
        yield f"records/runs/{id}.{run_name(arm, seed)}.json"


def _below(store: Store, folder: str) -> Iterator[str]:
    for name in store.list(f"records/{folder}"):
        if name.endswith(".json"):
            yield f"records/{folder}/{name}"


def _signed(
    store: Store, execution: record.Execution, key: Key | None
) -> Iterator[tuple[str, bytes]]:
    """Signed files of seal, plan and receipt, and the public keys to verify them."""
    key = signing.in_force(store, key)
    keys = dict.fromkeys([*([key.public] if key else []), *signing.public_keys(store)])
    if keys:
        yield "keys.json", signing.published(keys)
    if key is None:
        return
    origin, seal, plan = execution.origin, None, None
    if origin:
        path = f"plans/{origin.repository}/{origin.pull}/{origin.plan}"
        plan = record.read(store, path, record.PlanRecord)
        if (issue := execution.plan.preregistration) is not None:
            path = f"preregistrations/{origin.repository}/{issue}/1"
            seal = record.read(store, path, record.Preregistration)
    for about in (seal, plan, signing.receipt(store, execution, seal)):
        if about is not None:
            yield f"signed/{signing.place(about)}.json", signing.sign(key, about)


def _parts(files: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The files in parts that GitHub takes at once."""
    part: dict[str, str] = {}
    size = 0
    for path, text in files.items():
        length = len(text.encode())
        if part and (len(part) >= MAX_AT_ONCE or size + length > MAX_BYTES_AT_ONCE):
            yield part
            part, size = {}, 0
        part[path] = text
        size += length
    if part:
        yield part


# ── Copying ──────────────────────────────────────────────────────────────────────────────────


class Witness:
    """Copies one execution after the other to the branch, in the order of their ends."""

    def __init__(
        self, store: Store, github: GitHub, pace: Pace, key: Key | None = None, *, on: bool = True
    ) -> None:
        """Unless `on`, nothing is copied."""
        self._on = on
        self._store = store
        self._github = github
        self._pace = pace
        self._key = key
        self._stale = True  # whether there may be more to copy
        self._waiting: list[str] = []
        self._ends: dict[str, datetime] = {}
        self._odd: set[str] = set()  # executions that cannot be copied, until this process ends
        self._next = float("-inf")  # no try before then
        self._wait = 0.0  # seconds, after the last Later
        self._refused: str | None = None  # the last message

    def look(self) -> None:
        """Records were added, or another process may have copied some."""
        self._stale = True

    def work(self, now: float) -> float | None:
        """Copy one execution, if it is time. Returns the seconds until there is more to do. None:
        there is nothing, or GitHub refused; then call it again later."""
        if not self._on or (self._refused and now < self._next):
            return None
        if self._stale:
            found = waiting(self._store, self._ends)
            self._waiting = [id for id in found if id not in self._odd]
            self._stale = False
        if not self._waiting:
            return None
        id = self._waiting[0]
        pause = self._next - now
        if pause <= 0:
            pause = self._pace.wait(("witness", id), FIGURES, now, WRITES)
        if pause > 0:
            return pause
        try:
            commit = self._copy(id)
        except (RefusedForNow, Refused) as error:
            if isinstance(error, Gone):  # what was written just now is not known yet
                self._next = now + RETRY.total_seconds()
                return RETRY.total_seconds()
            self._next = now + REFUSED
            self._tell(str(error))
            return None
        except (Later, StoreFault) as error:
            wait = error.wait if isinstance(error, Later) else RETRY
            if not wait:  # a command comes first
                return 0.0
            self._wait = max(
                wait.total_seconds(), min(2 * self._wait, LONGEST_RETRY.total_seconds())
            )
            self._next = now + self._wait
            log.info("%s is copied to %s later: %s", id, BRANCH, error)
            return self._wait
        except Exception:  # an unreadable record must not block the others
            log.exception("%s cannot be copied to %s", id, BRANCH)
            self._odd.add(id)
        else:
            metrics.EFFECTS.labels("witness").inc()
            log.info("%s is on %s at %s", id, BRANCH, commit)
            self._refused, self._wait = None, 0.0
        self._waiting.remove(id)
        return 0.0 if self._waiting else None

    def _tell(self, why: str) -> None:
        if why != self._refused:
            log.warning(
                "records cannot be copied to the branch %s: %s. The bot needs Contents: Read and "
                "write, and no rule of the repository may keep it from that branch; or switch it "
                "off with REGATTA_RECORDS_BRANCH=off. It is tried again every hour.",
                BRANCH,
                why,
            )
        self._refused = why

    def _copy(self, id: str) -> str:
        """Copy an execution to the branch, unless it is there. Raises Later, Refused, _Odd."""
        files = copied(self._store, id, self._key)
        result = f"records/executions/{id}/result.json"
        mark = result if result in files else f"left-out/{id}.json"
        for _ in range(MAX_TRIES):
            tip = self._github.tip(BRANCH) or self._begin()
            commit = tip.commit
            if self._github.file_id(commit, mark) != blob_id(files[mark].encode()):
                commit = self._commit(id, files, tip)
                try:
                    self._github.advance(BRANCH, commit)
                except Refused as refused:
                    # GitHub says 422 both if the branch has moved and if a rule forbids the update.
                    if refused.status != UNPROCESSABLE or self._github.tip(BRANCH) == tip:
                        raise
                    continue
            witnessed = Witnessed(at=self._github.now(), commit=commit)
            record.write(self._store, f"witnessed/{id}", witnessed)
            return commit
        raise Later(f"somebody else writes to {BRANCH} all the time")

    def _begin(self) -> Tip:
        """The branch's first commit, without a parent."""
        try:
            tree = self._github.add_files(None, {"README.md": README})
            commit = self._github.commit("Records of finished executions", tree, [])
            self._github.create_branch(BRANCH, commit)
        except Refused:
            if there := self._github.tip(BRANCH):  # another process was faster
                return there
            raise
        return Tip(commit, tree)

    def _commit(self, id: str, files: Mapping[str, str], tip: Tip) -> str:
        result = record.require(self._store, f"executions/{id}/result", record.Ending)
        message = f"{id}: {result.state}"
        if f"left-out/{id}.json" in files:
            message += (
                f"\n\nSome of its records are too large; left-out/{id}.json has their SHA-256."
            )
        tree = tip.tree
        try:
            for part in _parts(files):
                tree = self._github.add_files(tree, part)
            return self._github.commit(message, tree, [tip.commit])
        except Refused as refused:
            if refused.status != UNPROCESSABLE or isinstance(refused, Gone):
                raise
            raise _Odd(str(refused)) from refused
