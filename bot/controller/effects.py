"""Does what the rules want so that it appears exactly once, even if the bot crashes anywhere.

There are three kinds of effect on GitHub. *Once* (comment, check run): claimed with its full text,
done, recorded as done. *Idempotent there* (reaction, label, picture, final state of a display):
done, then recorded. *Converging* (progress edits): the last value counts, nothing is recorded.

A claim without its `done` means that an earlier process, or a broken connection, left the outcome
unknown. Such a claim is looked up on GitHub before any rule runs. Lists lag, so only after finding
nothing for 30 s is it posted as claimed; 30 s later it is looked up once more, and if it is there
twice, the recorded one stays. If GitHub still does not take it, it is retried from time to time,
and the rest of the thread continues: the rules see it as claimed.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from bot.controller.freshness import SHORT_LAG, is_recent
from bot.controller.write_budget import LONGEST_RETRY
from bot.github import GitHub, Gone, Later, Made, Refused, RefusedForNow
from bot.github.answers import Limited
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
CLOCKS = timedelta(seconds=5)  # maximum difference between two of GitHub's clocks

log = logging.getLogger("regatta.act")


@dataclass
class _Try:
    """A claim without its `done`, or with unknown outcome, as this process knows it."""

    at: datetime  # of the newest attempt to post it
    next: datetime  # when to look for it, or for duplicates
    wait: timedelta = WATCH  # until the next attempt
    unknown: bool = True  # the outcome of this attempt
    why: str = ""  # GitHub did not take it


class Actor:
    """Does actions and finishes claims."""

    def __init__(self, store: Store, github: GitHub, launcher: effects.Launcher) -> None:
        self._store = store
        self._github = github
        self._launcher = launcher
        self._open: dict[str, _Try] = {}  # by the claim's folder
        self._missing: dict[str, datetime] = {}  # since when the subject of a write is not there
        self.shown: dict[ThreadId, dict[Key, Shown]] = {}

    def act(self, thread: Thread, action: Action) -> None:
        """Do one action. Raises `Later` if its outcome is unknown."""
        action = _cleaned(action)
        match action:
            case Say(key=key, body=body, state=state, lacks=lacks):
                claim = {"kind": "comment", "body": _marked(body, key)}
                claim |= {"lacks": str(lacks)} if lacks else {}
                self._once(thread, key, claim, body, state)
            case Check(key=key, summary=summary, state=state):
                self._once(thread, key, _check_claim(action), summary, state)
            case React(comment=comment, content=content):
                self._idempotent(thread, action.key, lambda: self._github.react(comment, content))
            case Label(name=name):
                self._idempotent(thread, action.key, lambda: self._label(thread.id.number, name))
            case Picture(key=key):
                self._idempotent(thread, key, lambda: self._picture(action))
            case Show(final=True):
                self._idempotent(thread, action.key, lambda: self._show(thread, action))
            case Show():
                self._converge(thread, action)
            case Write(record=record.Execution() as execution):
                effects.begin(self._store, execution)
            case Write(path=path, record=fact):
                record.write(self._store, path, fact)
            case Drive(execution=execution, action=step):
                life = next(r.life for r in thread.executions if r.execution.id == execution)
                effects.act(self._store, self._launcher, life, step, thread.now)

    def leave_out(self, thread: Thread, reaction: React) -> None:
        """Record that an optional reaction is not made."""
        done = {"id": 0, "note": "left out: the budget of writes has no room"}
        self._create(f"said/{thread.id}/{reaction.key}/done", done)

    def finish(self, id: ThreadId) -> bool:
        """Finish open claims of earlier processes or attempts on a thread. False: something may
        exist that lists do not show yet, and no rule may run before that is known."""
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

    def retry(self) -> None:
        """GitHub answers again: nothing waits any longer than for lists to be complete."""
        for tried in self._open.values():
            tried.next, tried.wait = min(tried.next, self._github.now()), WATCH

    def unposted(self, id: ThreadId | None = None) -> dict[Key, str]:
        """What GitHub has refused so far (on a thread, or everywhere), and why."""
        waiting = {path.rpartition("/"): tried.why for path, tried in self._open.items()}
        folder = f"said/{id}"
        return {
            Key.parse(name): why
            for (place, _, name), why in waiting.items()
            if why and (id is None or place == folder)
        }

    def again(self, id: ThreadId) -> timedelta | None:
        """When to call `finish` again; None if nothing is open."""
        place, now = f"said/{id}/", self._github.now()
        mine = [tried.next for path, tried in self._open.items() if path.startswith(place)]
        return max(min(mine) - now, timedelta(0)) if mine else None

    def _finished(self, id: ThreadId, key: Key, claim: dict[str, Any], tried: _Try) -> bool:
        """Whether a claim has its `done` now."""
        path, now = f"said/{id}/{key}", self._github.now()
        try:
            found = self._found(id, key, claim)
        except Refused as error:  # nothing can be found or posted any more
            self._refused(path, error, _at(claim))
            return True
        if found:
            # For check runs with one name GitHub shows the newest.
            made = found[-1 if claim["kind"] == "check" else 0]
            self._done(path, made, unsure=True)
            return True
        if now - tried.at >= tried.wait:
            # If this attempt also ends without an answer, the rules do not wait again.
            tried.at, tried.unknown = now, False
            tried.wait = min(tried.wait * 2, LONGEST_RETRY)
            tried.next = now + LOOK_EVERY
            self._say(id, key, claim, unsure=True)
            return True
        watching = now - tried.at < WATCH
        tried.next = now + LOOK_EVERY if watching else tried.at + tried.wait
        return False

    def _weed(self, id: ThreadId, key: Key, claim: dict[str, Any], stays: int) -> None:
        """Remove duplicates that a claim of unknown outcome left, once lists are complete."""
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
        # A process that loses the claim must not act: another one has acted or is about to.
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
        except (Refused, RefusedForNow, Limited) as error:
            now = self._github.now()
            tried = self._open.setdefault(path, _Try(at=now, next=now, wait=timedelta(0)))
            try:
                if not isinstance(error, Refused):
                    raise
                self._refused(path, error, _at(claim))
            except Later as later:
                tried.unknown, tried.why = False, str(later)
                tried.wait = max(later.wait, tried.wait)
                tried.next = now + tried.wait
                raise
            return
        if not self._done(path, made, unsure):
            self._take_back(path, claim, made)

    def _take_back(self, path: str, claim: dict[str, Any], made: Made) -> None:
        """Remove our copy: between claim and post another process led, and posted it, too."""
        if (self._read(f"{path}/done") or {}).get("id") == made.id:
            return
        try:
            self._remove(claim, made)
        except Refused as error:
            log.info("%s was removed by somebody else: %s", path, error)

    def _found(self, id: ThreadId, key: Key, claim: dict[str, Any]) -> list[Made]:
        if claim["kind"] == "comment":
            # Others may edit our older comments; such an edit must not count as this post.
            since = _at(claim)
            return [
                made
                for made in self._github.my_comments(id.number, _marker(key), claim.get("by"))
                if since is None or made.at >= since.replace(microsecond=0) - CLOCKS
            ]
        return self._github.my_checks(claim["commit"], claim["name"], str(CheckId(id.number, key)))

    # ── Idempotent and converging ────────────────────────────────────────────────────────────

    def _idempotent(self, thread: Thread, key: Key, do: Callable[[], str | None]) -> None:
        path, posted = f"said/{thread.id}/{key}", thread.said.get(key._replace(final=False))
        try:
            note = do() or "done"
        except Refused as error:
            sealed = thread.seal.at if thread.seal else None
            times = (thread.heard, posted.at if posted else None, sealed)
            self._refused(path, error, max(filter(None, times), default=None))
        else:
            self._create(f"{path}/done", {"id": 0, "note": note})

    def _picture(self, action: Picture) -> str:
        try:
            png = action.draw()
        except Exception as error:  # the result must not wait for its picture
            log.exception("%s could not be drawn", action.key)
            raise Refused(0, f"it could not be drawn ({type(error).__name__})") from error
        return self._github.keep_picture(action.execution, png, action.at)

    def _label(self, number: int, name: str) -> None:
        # Others' labels stay, also those that somebody adds at this moment.
        for other in self._github.add_label(number, name):
            if other in LABELS.values() and other != name:
                self._github.remove_label(number, other)

    def _converge(self, thread: Thread, action: Show) -> None:
        try:
            self._show(thread, action)
        except Refused as error:
            if isinstance(error, Gone) and is_recent(thread.said[action.of].at, thread.now):
                raise RefusedForNow(f"{action.of}: {error}", LOOK_EVERY) from error
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
            self._github.update_check(
                said.id, action.conclusion, output, action.buttons, action.url
            )
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
        """Whether we recorded it. If `unsure`, it is looked up once more."""
        now, done = self._github.now(), {"id": made.id, "at": made.at.isoformat()}
        self._open.pop(path, None)
        if unsure:
            self._open[path] = _Try(at=now, next=now + WATCH)
        return self._create(f"{path}/done", done | ({"unsure": True} if unsure else {}))

    def _refused(self, path: str, error: Refused, since: datetime | None) -> None:
        """GitHub refused it. Raises RefusedForNow if it may only not know the subject yet, which is
        as old as `since`."""
        if isinstance(error, Gone):
            now = self._github.now()
            missing = now - self._missing.setdefault(path, now)
            if is_recent(since, now) or missing < SHORT_LAG:
                raise RefusedForNow(f"{path}: {error}", LOOK_EVERY) from error
            del self._missing[path]
        log.warning("%s was refused: %s", path, error)
        self._open.pop(path, None)
        self._create(f"{path}/done", {"note": f"failed: {error}"})


def _at(claim: dict[str, Any]) -> datetime | None:
    """When it was claimed; None for old claims."""
    return datetime.fromisoformat(claim["at"]) if "at" in claim else None


def claimed_before(store: Store, at: datetime) -> list[str]:
    """The claims, as paths, that were made before that time and are not on GitHub yet."""
    names = {entry.name for entry in store.walk("records/said")}
    claims = [name for name in names if name.endswith("/claim.json")]
    left = [name for name in claims if name.replace("claim", "done") not in names]
    made = {name: _at(json.loads(store.peek(name) or b"{}")) for name in left}
    return sorted(name for name, since in made.items() if since and since < at)


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


def unmarked(claim: dict[str, Any], key: Key) -> str:
    """The text of a claimed comment, without its marker; empty for anything else."""
    return str(claim.get("body", "")).removesuffix(_marked("", key))


def _cleaned(action: Action) -> Action:
    """The action without known secrets, because its text may quote a job."""
    words = (name for name in ("title", "summary", "body") if hasattr(action, name))
    clean: dict[str, Any] = {name: redact.clean(getattr(action, name)) for name in words}
    return replace(action, **clean)
