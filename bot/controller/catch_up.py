"""Finds what no delivery reported, and puts it in the inbox. The rules do the rest.

GitHub does not deliver twice by itself. So every few minutes the bot reads the App's own list of
deliveries for those that nobody answered; their payloads are as trustworthy as a signed body. After
a longer silence, and if the bot is no App (in Actions), it reads the open threads: unknown comments
and reviews, forced pushes, and other changes. Their text may have been edited since it was written;
`Message.heard` and `edited` say so.

    sweeps/<repository>/<n>.json    until when everything was read; the newest counts
"""

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from bot.controller import store_recovery
from bot.github import Attempt, GitHub, Later, Refused
from bot.inbox import deliveries, payloads
from bot.inbox.payloads import Delivery
from bot.model.thread import Message, ThreadId
from runner.execution.ray_jobs import RayJobs
from runner.lib.base_record import Instant, Record
from runner.schema import record
from runner.store.store import Store

EVERY = timedelta(minutes=10)
OVERLAP = timedelta(minutes=10)  # GitHub's lists lag, and its times are whole seconds
SILENCE = timedelta(hours=1)  # after longer silences, the threads themselves are read
FIRST = timedelta(hours=24)  # how far back to look the first time

log = logging.getLogger("regatta.sweep")


class Swept(Record):
    """Everything until then has been read."""

    at: Instant


def once(store: Store, github: GitHub, now: datetime) -> list[ThreadId]:
    """Read everything since the last time. Returns the threads with something new.

    Raises Later; safe to repeat.
    """
    last = last_at(store, github.id)
    since = (last or now - FIRST) - OVERLAP
    found: set[ThreadId] = set()
    whole = last is None or now - last >= SILENCE
    try:
        found.update(_untaken(store, github, since))
    except Refused as error:
        log.info("the App's deliveries cannot be listed: %s", error)
        whole = True
    if whole:
        found.update(_comments(store, github, since))
        found.update(_threads(store, github, since))
    _keep(store, github.id, now)
    return sorted(found)


def restored(store: Store, github: GitHub) -> None:
    """Compare the bot's own comments with the records, from the end of the records; see
    `bot.controller.store_recovery`."""
    now = github.now()
    since = (last_at(store, github.id) or now - store_recovery.LOOK_BACK) - store_recovery.OVERLAP
    # All of them first: if GitHub fails in between, nothing is restored incompletely.
    own = [each for each in github.comments_since(since) if each.author.login == github.bot]
    store_recovery.adopt(store, github.id, own, now)


class AnotherRepository(Exception):
    """The records belong to another repository; the message says which."""


def belongs(store: Store, github: GitHub) -> None:
    """Check that the records belong to this repository, and not to one that took over a former
    name. Raises AnotherRepository."""
    known = record.names(store, "sweeps")
    if known and str(github.id) not in known:
        raise AnotherRepository(
            f"{github.name} has the id {github.id}, and the records of {store.root} are of the "
            f"repository with the id {', '.join(known)}. If that was renamed, name it as it is "
            "called now; for another lab, name another store."
        )


def last_at(store: Store, repository: int) -> datetime | None:
    """Until when everything was read; None if that never happened."""
    found = record.names(store, f"sweeps/{repository}")
    newest = record.read(store, f"sweeps/{repository}/{found[-1]}", Swept) if found else None
    return newest.at if newest else None


def _keep(store: Store, repository: int, now: datetime) -> None:
    taken = record.names(store, f"sweeps/{repository}")
    n = int(taken[-1]) + 1 if taken else 1
    record.write(store, f"sweeps/{repository}/{n:012d}", Swept(at=now))
    for old in taken[:-1]:
        store.remove(f"records/sweeps/{repository}/{old}.json")


def _untaken(store: Store, github: GitHub, since: datetime) -> Iterator[ThreadId]:
    """Deliveries to the App that got no 2xx."""
    taken: set[str] = set()
    missed: dict[str, int] = {}
    for attempt in takewhile(lambda each: each.at >= since, github.app_deliveries()):
        if attempt.taken:
            taken.add(attempt.guid)
        elif attempt.repository == github.id and _is_heard(attempt):
            missed.setdefault(attempt.guid, attempt.id)
    for guid, attempt_id in missed.items():
        if guid in taken:
            continue
        _, event, payload = github.app_delivery(attempt_id)
        said = payloads.read(event, payload, "app-list")
        if said and said.thread and said.repository == github.id:
            log.info("delivery %s was missed, and is in the App's list", guid)
            if deliveries.keep(store, said.thread, guid, said):
                yield said.thread


def _is_heard(attempt: Attempt) -> bool:
    known = attempt.action in payloads.HEARD.get(attempt.event, ())
    return known and re.fullmatch(deliveries.NAME, attempt.guid) is not None


def _comments(store: Store, github: GitHub, since: datetime) -> Iterator[ThreadId]:
    for each in github.comments_since(since):
        id = ThreadId(github.id, each.number)
        if each.via_app or each.author.id == 0 or each.author.login == github.bot:
            continue
        if each.bot and not payloads.has_command(each.body):
            continue
        if deliveries.knows(store, id, "comment", each.id):
            continue
        edited = each.changed > each.at
        message = payloads.said(each.id, each.author, each.at, each.body, edited=edited)
        log.info("comment %s on thread %s was missed", each.id, each.number)
        said = _swept("issue_comment", id, each.pull, each.at, message)
        if deliveries.keep(store, id, f"swept-c{each.id}", said):
            yield id


def _threads(store: Store, github: GitHub, since: datetime) -> Iterator[ThreadId]:
    entered = _not_merged(store, github.id)  # whose merge would be news
    for seen in github.threads_since(since, state="all" if entered else "open"):
        if not seen.open and seen.number not in entered:
            continue
        id = ThreadId(github.id, seen.number)
        event = "pull_request" if seen.pull else "issues"
        if seen.pull:
            deliveries.note_pushes(store, id, github.pushes(seen.number))
            yield from _reviews(store, github, id, since)
        name = f"swept-{seen.changed.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        if deliveries.keep(store, id, name, _swept(event, id, seen.pull, seen.changed)):
            yield id


def _swept(
    event: str, id: ThreadId, pull: bool, at: datetime, message: Message | None = None
) -> Delivery:
    """A delivery made from what a sweep found."""
    return Delivery(
        event=event,
        action=payloads.SWEPT,
        repository=id.repository,
        number=id.number,
        pull=pull,
        at=at,
        message=message,
    )


def _not_merged(store: Store, repository: int) -> set[int]:
    """Pull requests with results whose merge is not recorded."""
    folder = f"entries/{repository}"
    return {
        int(pull)
        for pull in record.names(store, folder)
        if "merged" not in record.names(store, f"{folder}/{pull}")
    }


def _reviews(store: Store, github: GitHub, id: ThreadId, since: datetime) -> Iterator[ThreadId]:
    for review in github.reviews(id.number):
        known = review.author.id == 0 or deliveries.knows(store, id, "review", review.id)
        if known or review.at < since or review.commit is None:
            continue
        message = payloads.said(
            review.id,
            review.author,
            review.at,
            review.body,
            # The list does not say whether it was edited, and anybody with write access could.
            edited=bool(review.body) and not github.unedited(review),
            commit=review.commit,
        )
        said = _swept("pull_request_review", id, True, review.at, message)
        if deliveries.keep(store, id, f"swept-r{review.id}", said):
            yield id


class Sweeper:
    """Sweeps when it is time, and tries again later if GitHub fails."""

    def __init__(self, store: Store, github: GitHub, every: timedelta | None, ray: RayJobs) -> None:
        """Without `every`, it never sweeps. Also looks at the jobs of `ray`."""
        self._store, self._github, self._every, self._ray = store, github, every, ray
        self._next: datetime | None = None

    def work(self) -> list[ThreadId]:
        """Sweep if it is time. Returns the threads with something new."""
        moment = self._github.now()
        if self._every is None or (self._next and moment < self._next):
            return []
        self._next = moment + self._every
        store_recovery.stop_orphans(self._store, self._ray)
        try:
            return once(self._store, self._github, moment)
        except (Later, Refused) as error:
            log.info("the sweep is put off: %s", error)
            self._next = moment + timedelta(minutes=1)
            return []
