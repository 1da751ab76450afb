"""Makes what the rules want visible, so that a crash anywhere leaves each thing once.

Three kinds of effect on GitHub. *Once* (comment, check run): claimed with its full text, done,
recorded as done. *Idempotent there* (reaction, label, picture, last look): done, then recorded.
*Converging* (progress edits): the last value shown counts, nothing is recorded.

A claim without its `done` means that an earlier life, or a broken connection, left the outcome
unknown. Such a claim is looked up on GitHub before any rule runs. Lists lag, so only after 30 s
of finding nothing is it said as claimed; 30 s later it is looked up once more, and should it be
there twice, the one that is on record stays. What GitHub does not take then, either, is tried again
now and then, and nothing else on the thread waits for it: the rules know it as claimed.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from bot.controller.write_budget import LONGEST_RETRY
from bot.github import Forbidden, GitHub, Later, Made, Refused
from bot.model.actions import (
    LABELS,
    Action,
    Button,
    Check,
    Drive,
    Label,
    Picture,
    React,
    Say,
    Show,
    Write,
)
from bot.model.keys import CheckId, Key
from bot.model.thread import Shown, Thread, ThreadId
from runner.execution import effects
from runner.lib import redact
from runner.lib.canonical_json import to_json
from runner.schema import record
from runner.store.store import Store

WATCH = timedelta(seconds=30)
LOOK_EVERY = timedelta(seconds=5)
CLOCKS = timedelta(seconds=5)  # by which two of GitHub's clocks may differ

log = logging.getLogger("regatta.act")


@dataclass
class _Try:
    """A claim without its `done`, or whose outcome was unknown, as this process knows it."""

    at: datetime  # of the newest try to say it
    next: datetime  # when to look for it, or for what is there twice
    wait: timedelta = WATCH  # from this try to the next one
    unknown: bool = True  # the outcome of this try


class Actor:
    """Does actions and finishes claims."""

    def __init__(self, store: Store, github: GitHub, launcher: effects.Launcher) -> None:
        self._store = store
        self._github = github
        self._launcher = launcher
        self._open: dict[str, _Try] = {}  # by the claim's folder
        self.shown: dict[ThreadId, dict[Key, Shown]] = {}

    def act(self, thread: Thread, action: Action) -> None:
        """Do one action. Raises `Later` where its outcome is unknown."""
        action = _cleaned(action)
        where = f"said/{thread.id}"
        match action:
            case Say(key=key, body=body, state=state, lacks=lacks):
                claim = {"kind": "comment", "body": _marked(body, key)}
                claim |= {"lacks": str(lacks)} if lacks else {}
                self._once(thread, key, claim, body, state)
            case Check(key=key, summary=summary, state=state):
                self._once(thread, key, _check_claim(action), summary, state)
            case React(comment=comment, content=content):
                self._idempotent(where, action.key, lambda: self._github.react(comment, content))
            case Label(name=name):
                self._idempotent(where, action.key, lambda: self._label(thread.id.number, name))
            case Picture(key=key):
                self._idempotent(where, key, lambda: self._picture(action))
            case Show(final=True):
                self._idempotent(where, action.key, lambda: self._show(thread, action))
            case Show():
                self._converge(thread, action)
            case Write(record=record.Execution() as execution):
                effects.begin(self._store, execution)
            case Write(path=path, record=fact):
                record.write(self._store, path, fact)
            case Drive(execution=execution, action=step):
                life = next(r.life for r in thread.executions if r.execution.id == execution)
                effects.act(self._store, self._launcher, life, step, thread.now)

    def finish(self, id: ThreadId) -> bool:
        """Finish what an earlier life or an earlier try left open on a thread. False: something may
        be on its way to where it is not seen yet, and no rule may run before that is known."""
        known = True
        for key in map(Key.parse, record.names(self._store, f"said/{id}")):
            path, now = f"said/{id}/{key}", self._github.now()
            claim, done = self._read(f"{path}/claim"), self._read(f"{path}/done")
            if claim is None or (done and not done.get("unsure")):
                self._open.pop(path, None)
                continue
            if done:
                self._weed(id, key, claim, done["id"])
                continue
            tried = self._open.setdefault(path, _Try(at=now, next=now))
            try:
                if tried.next <= now and self._finished(id, key, claim, tried):
                    continue
            except Later as error:
                log.info("%s has to wait: %s", path, error)
                tried.next = max(tried.next, now + error.wait)
            known = known and not (tried.unknown and now - tried.at < WATCH)
        return known

    def again(self, id: ThreadId) -> timedelta | None:
        """When to `finish` again, if need be."""
        place, now = f"said/{id}/", self._github.now()
        mine = [tried.next for path, tried in self._open.items() if path.startswith(place)]
        return max(min(mine) - now, timedelta(0)) if mine else None

    def _finished(self, id: ThreadId, key: Key, claim: dict[str, Any], tried: _Try) -> bool:
        """Whether a claim has its `done` now."""
        path, now = f"said/{id}/{key}", self._github.now()
        try:
            found = self._found(id, key, claim)
        except Refused as error:  # there is no telling any more, and nothing to be said
            self._failed(path, error)
            return True
        if found:
            # Of check runs of one name GitHub shows the newest.
            made = found[-1 if claim["kind"] == "check" else 0]
            self._done(path, made, unsure=True)
            return True
        if now - tried.at >= tried.wait:
            # Should this try end without an answer, too, the rules wait no more.
            tried.at, tried.unknown = now, False
            tried.wait = min(tried.wait * 2, LONGEST_RETRY)
            tried.next = now + LOOK_EVERY
            self._say(id, key, claim, unsure=True)
            return True
        watching = now - tried.at < WATCH
        tried.next = now + LOOK_EVERY if watching else tried.at + tried.wait
        return False

    def _weed(self, id: ThreadId, key: Key, claim: dict[str, Any], stays: int) -> None:
        """Remove what a claim of unknown outcome left twice, once lists show all that there is."""
        path, now = f"said/{id}/{key}", self._github.now()
        if self._read(f"{path}/weeded") is None:
            watched = self._open.setdefault(path, _Try(at=now, next=now + WATCH))
            if now < watched.next:
                return
            try:
                for made in self._found(id, key, claim):
                    if made.id != stays:
                        self._remove(claim, made)
            except Later as error:
                log.info("%s is weeded later: %s", path, error)
                watched.next = now + LOOK_EVERY
                return
            except Refused as error:  # somebody else removed it
                log.info("%s was not weeded: %s", path, error)
            self._create(f"{path}/weeded", {})
        self._open.pop(path, None)

    def _remove(self, claim: dict[str, Any], made: Made) -> None:
        if claim["kind"] == "comment":
            self._github.delete_comment(made.id)
        else:  # a check run cannot be removed
            self._github.conclude_check(made.id)

    # ── Once ─────────────────────────────────────────────────────────────────────────────────

    def _once(
        self, thread: Thread, key: Key, claim: dict[str, Any], body: str, state: str | None
    ) -> None:
        # Whoever loses the claim must not do it: somebody else has, or is about to.
        claim = claim | {"at": self._github.now().isoformat(), "by": self._github.bot}
        if self._create(f"said/{thread.id}/{key}/claim", claim):
            self._say(thread.id, key, claim, unsure=False)
        if state:
            self._note_shown(thread, key, body, state)

    def _say(self, id: ThreadId, key: Key, claim: dict[str, Any], unsure: bool) -> None:
        path = f"said/{id}/{key}"
        try:
            if claim["kind"] == "comment":
                made = self._github.create_comment(id.number, claim["body"])
            else:
                made = self._github.create_check(
                    claim["name"],
                    claim["commit"],
                    str(CheckId(id.number, key)),
                    claim["conclusion"],
                    claim["output"],
                    [Button(**button) for button in claim.get("buttons", ())],
                    claim.get("url"),
                )
        except Refused as error:
            self._failed(path, error)
            return
        except Forbidden as error:
            now = self._github.now()
            tried = self._open.setdefault(path, _Try(at=now, next=now))
            tried.unknown, tried.next = False, now + max(error.wait, tried.wait)
            raise
        if not self._done(path, made, unsure):
            self._take_back(path, claim, made)

    def _take_back(self, path: str, claim: dict[str, Any], made: Made) -> None:
        """While we were away between claim and word, another process led, and said it as well."""
        if (self._read(f"{path}/done") or {}).get("id") == made.id:
            return
        try:
            self._remove(claim, made)
        except Refused as error:
            log.info("%s was removed by somebody else: %s", path, error)

    def _found(self, id: ThreadId, key: Key, claim: dict[str, Any]) -> list[Made]:
        if claim["kind"] == "comment":
            # Who may edit our older comments must not make one of them into this one.
            since = datetime.fromisoformat(claim["at"]) if "at" in claim else None
            return [
                made
                for made in self._github.my_comments(id.number, _marker(key), claim.get("by"))
                if since is None or made.at >= since.replace(microsecond=0) - CLOCKS
            ]
        return self._github.my_checks(claim["commit"], claim["name"], str(CheckId(id.number, key)))

    # ── Idempotent and converging ────────────────────────────────────────────────────────────

    def _idempotent(self, folder: str, key: Key, do: Callable[[], str | None]) -> None:
        try:
            note = do() or "done"
        except Refused as error:
            self._failed(f"{folder}/{key}", error)
        else:
            self._create(f"{folder}/{key}/done", {"id": 0, "note": note})

    def _picture(self, action: Picture) -> str:
        try:
            png = action.draw()
        except Exception as error:  # the result must not wait for its picture
            log.exception("%s could not be drawn", action.key)
            raise Refused(0, f"it could not be drawn ({type(error).__name__})") from error
        return self._github.keep_picture(action.execution, png, action.at)

    def _label(self, number: int, name: str) -> None:
        current = self._github.labels(number)
        wanted = [label for label in current if label not in LABELS.values()] + [name]
        if sorted(wanted) != sorted(current):
            self._github.set_labels(number, wanted)

    def _converge(self, thread: Thread, action: Show) -> None:
        try:
            self._show(thread, action)
        except Refused as error:
            log.warning("%s of %s could not be shown: %s", action.of, thread.id, error)
            self._note_shown(thread, action.of, action.body, action.state)

    def _show(self, thread: Thread, action: Show) -> None:
        said = thread.said[action.of]
        if said.id is None:
            return
        if said.kind == "comment":
            self._github.edit_comment(said.id, _marked(action.body, action.of))
        else:
            output = {"title": action.title, "summary": action.body}
            self._github.update_check(said.id, action.conclusion, output, action.buttons)
        self._note_shown(thread, action.of, action.body, action.state)

    def _note_shown(self, thread: Thread, key: Key, body: str, state: str) -> None:
        self.shown.setdefault(thread.id, {})[key] = Shown(body, state, thread.now)

    # ── Records ──────────────────────────────────────────────────────────────────────────────

    def _read(self, path: str) -> dict[str, Any] | None:
        data = self._store.read(f"records/{path}.json")
        return None if data is None else dict(json.loads(data))

    def _create(self, path: str, value: dict[str, Any]) -> bool:
        return self._store.create(f"records/{path}.json", to_json(value))

    def _done(self, path: str, made: Made, unsure: bool) -> bool:
        """Whether it was ours to record. What is unsure is looked for once more."""
        now, done = self._github.now(), {"id": made.id, "at": made.at.isoformat()}
        self._open.pop(path, None)
        if unsure:
            self._open[path] = _Try(at=now, next=now + WATCH)
        return self._create(f"{path}/done", done | ({"unsure": True} if unsure else {}))

    def _failed(self, path: str, error: Refused) -> None:
        log.warning("%s was refused: %s", path, error)
        self._open.pop(path, None)
        self._create(f"{path}/done", {"note": f"failed: {error}"})


def _check_claim(check: Check) -> dict[str, Any]:
    return {
        "kind": "check",
        "name": check.name,
        "commit": check.commit,
        "conclusion": check.conclusion,
        "output": {"title": check.title, "summary": check.summary},
        "buttons": [asdict(button) for button in check.buttons],
        **({"url": check.url} if check.url else {}),
    }


def _marker(key: Key) -> str:
    return f"<!-- regatta: {key} -->"


def _marked(body: str, key: Key) -> str:
    return f"{body}\n\n{_marker(key)}"


def unfinished(claim: dict[str, Any], key: Key) -> str:
    """The words of a claim that something was missing from; empty for any other one."""
    return str(claim["body"]).removesuffix(_marked("", key)) if claim.get("lacks") else ""


def _cleaned(action: Action) -> Action:
    """The same without held secrets: in what it says, some words may be a job's."""
    words = (name for name in ("title", "summary", "body") if hasattr(action, name))
    clean: dict[str, Any] = {name: redact.clean(getattr(action, name)) for name in words}
    return replace(action, **clean)
