"""Finds what no delivery reported, and puts it in the inbox. The rules do the rest.

GitHub does not deliver twice by itself, and some deliveries it never makes. So every few minutes
the bot reads the App's own list of deliveries for those that nobody answered; their payloads are as
trustworthy as a signed body. Once an hour, whatever that list says, it also takes a full look: it
reads from GitHub's own lists which threads and comments have changed, and reviews and forced pushes
of these. If there is no list of deliveries (the bot is no App, or the list fails), a full look
takes its place every time. Quiet threads cost nothing. Texts may have been edited since they were
written; `Message.heard` and `edited` say so.

    sweeps/<repository>/<n>.json    until when everything was read; the newest counts
"""

import functools
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from bot.controller import store_recovery
from bot.github import Attempt, GitHub, Gone, Later, Refused
from bot.inbox import deliveries, payloads
from bot.inbox.payloads import Delivery
from bot.model.thread import Message, ThreadId
from runner.execution.ray_jobs import RayJobs
from runner.lib import base_record
from runner.lib.base_record import Instant, Record
from runner.schema import record
from runner.store.store import Store

EVERY = timedelta(minutes=10)
OVERLAP = timedelta(minutes=10)  # GitHub's lists lag, and its times are whole seconds
FULL_EVERY = timedelta(hours=1)  # time between an App's full looks
FIRST = timedelta(hours=24)  # how far back to look the first time
RETRY = timedelta(minutes=1)  # after a look that failed; then twice that, up to EVERY


log = logging.getLogger("regatta.sweep")


class Swept(Record):
    """A full look: all changes until then have been read."""

    at: Instant
    listed: Instant | None = base_record.since(None)  # until when the list of deliveries was read


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
    """The time of the last full look; None if there was none."""
    newest = _newest(store, repository)
    return newest.at if newest else None


def _newest(store: Store, repository: int) -> Swept | None:
    names = record.names(store, f"sweeps/{repository}")
    return record.read(store, f"sweeps/{repository}/{names[-1]}", Swept) if names else None


def _keep(store: Store, repository: int, swept: Swept) -> None:
    taken = record.names(store, f"sweeps/{repository}")
    n = int(taken[-1]) + 1 if taken else 1
    record.write(store, f"sweeps/{repository}/{n:012d}", swept)
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
        try:
            _, event, payload = github.app_delivery(attempt_id)
        except Refused as error:
            log.warning("delivery %s was missed, and GitHub has it no longer: %s", guid, error)
            continue
        said = payloads.read(event, payload, "app-list")
        if said and said.thread and said.repository == github.id:
            log.info("delivery %s was missed, and is in the App's list", guid)
            if deliveries.keep(store, said.thread, guid, said):
                yield said.thread


def _is_heard(attempt: Attempt) -> bool:
    known = attempt.action in payloads.HEARD.get(attempt.event, ())
    return known and re.fullmatch(deliveries.NAME, attempt.guid) is not None


def _comments(store: Store, github: GitHub, since: datetime) -> Iterator[ThreadId]:
    known = functools.cache(functools.partial(deliveries.known_messages, store))
    for each in github.comments_since(since):
        id = ThreadId(github.id, each.number)
        if each.via_app or each.author.id == 0 or each.author.login == github.bot:
            continue
        if each.bot and not payloads.has_command(each.body):
            continue
        if ("comment", each.id) in known(id):
            continue
        edited = each.changed > each.at
        message = payloads.said(each.id, each.author, each.at, each.body, edited=edited)
        log.info("comment %s on thread %s was missed", each.id, each.number)
        said = _swept("issue_comment", id, each.pull, each.at, message)
        if deliveries.keep(store, id, f"swept-c{each.id}", said):
            yield id


def _threads(store: Store, github: GitHub, since: datetime) -> Iterator[ThreadId]:
    """Raises Later or Refused at the end, if one of them could not be read."""
    failed: Later | Refused | None = None
    said = set(record.names(store, f"said/{github.id}"))
    for seen in github.threads_since(since):
        if not seen.open and str(seen.number) not in said:
            continue
        id = ThreadId(github.id, seen.number)
        event = "pull_request" if seen.pull else "issues"
        try:
            if seen.pull:  # a look at it needs the pushes
                deliveries.note_pushes(store, id, github.pushes(seen.number))
                yield from _reviews(store, github, id, since)
        except Gone as error:
            log.info("pull request %s is gone since it was listed: %s", seen.number, error)
        except (Later, Refused) as error:
            log.warning("pull request %s cannot be read: %s", seen.number, error)
            failed = error
            continue
        name = f"swept-{seen.changed.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        if deliveries.keep(store, id, name, _swept(event, id, seen.pull, seen.changed)):
            yield id
    if failed:
        raise failed


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


def _reviews(store: Store, github: GitHub, id: ThreadId, since: datetime) -> Iterator[ThreadId]:
    recent = [review for review in github.reviews(id.number) if review.at >= since]
    known = deliveries.known_messages(store, id) if recent else ()
    for review in recent:
        if review.author.id == 0 or ("review", review.id) in known or review.commit is None:
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
    """Looks when it is time, and tries again later if GitHub fails."""

    def __init__(self, store: Store, github: GitHub, every: timedelta | None, ray: RayJobs) -> None:
        """Without `every`, it never looks. Also looks at the jobs of `ray`."""
        self._store, self._github, self._every, self._ray = store, github, every, ray
        self._next: datetime | None = None
        self._listed: datetime | None = None  # until when this process read the deliveries
        self._failures = 0  # in a row

    def work(self) -> list[ThreadId]:
        """Look if it is time. Returns the threads with something new."""
        moment = self._github.now()
        if self._every is None or (self._next and moment < self._next):
            return []
        self._next = moment + self._every
        store_recovery.stop_orphans(self._store, self._ray)
        try:
            threads = self.look(moment)
        except (Later, Refused) as error:
            log.info("the full look is put off: %s", error)
            self._next = moment + min(RETRY * 2 ** min(self._failures, 5), self._every)
            self._failures += 1
            return []
        self._failures = 0
        return threads

    def look(self, now: datetime) -> list[ThreadId]:
        """Read what is new. Returns the threads with something new.

        Raises Later and Refused; then the point in time does not move on. Safe to repeat.
        """
        store, github = self._store, self._github
        last = _newest(store, github.id)
        at = last.at if last else now - FIRST
        self._listed = self._listed or (last and last.listed) or at
        threads = set[ThreadId]()
        # Both ways: GitHub's clock may have been ahead.
        is_due = last is None or abs(now - at) >= FULL_EVERY
        try:
            threads.update(_untaken(store, github, min(self._listed, now) - OVERLAP))
            self._listed = now
        except (Later, Refused) as error:
            log.info("the App's deliveries cannot be listed: %s", error)
            is_due = True
        if is_due:
            since = min(at, now) - OVERLAP
            threads.update(_comments(store, github, since))
            threads.update(_threads(store, github, since))
            _keep(store, github.id, Swept(at=now, listed=self._listed))
        return sorted(threads)
