"""The bot without a server: one run of GitHub Actions does everything that is due, and ends.

GitHub writes the event that started it to a file. It is stored like a delivery, so that it is
handled once, in either mode, by any leader. Then this process becomes the leader, looks for missed
events, and works until nothing is due or its time is over. If it is interrupted nothing is lost:
the next one continues from the records.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bot.controller.reconciler import Reconciler
from bot.inbox import deliveries, payloads, webhook
from bot.model.site import Site
from bot.service.parts import opened, reconciler
from bot.setup.settings import Settings
from bot.telemetry import logs
from runner.lib import redact
from runner.store.store import Store

WAIT_TO_LEAD = 60.0  # seconds; a dead leader is noticed within 45
# Events whose name in Actions differs from that in deliveries.
EVENTS = {"pull_request_target": "pull_request"}

log = logging.getLogger("regatta.handle")

Ended = Literal["done", "another leads", "GitHub is away", "time is over"]


class NoEvent(Exception):
    """Actions' event is unreadable; the message says what is wrong."""


@dataclass(frozen=True)
class Event:
    """The event that started this job."""

    name: str  # as in deliveries
    payload: Any
    delivery: str  # an id for it; the same when the job is run again


class NoPlace(Exception):
    """The store would be lost with this job; the message says where to put it."""


def handle(settings: Settings, environment: Mapping[str, str], may_take: float) -> Ended:
    """Do what is due, for at most `may_take` seconds. Raises NoEvent, NoPlace, and what
    `bot.service.parts` does."""
    redact.hold(*settings.all_secrets())
    logs.set_up("text", redact=redact.clean)
    event = event_of(environment)
    lasting(settings.store)
    store, github = opened(settings)
    keep(store, event, github.id)
    # Pages that are published from time to time cannot show what runs.
    site = Site(settings.site, live=False) if settings.site else None
    return work(reconciler(settings, store, github, site=site), may_take=may_take)


def lasting(store: str) -> str:
    """`store`, if the next job will find it again. Raises NoPlace."""
    if store.startswith("gs://") or Path(store).is_absolute():
        return store
    raise NoPlace(
        f"The store {store!r} is in the job's own folder, which the next job may not find. Set the "
        "variable REGATTA_STORE to gs://bucket/prefix or, on your own runner, to the absolute path "
        "of a folder."
    )


def event_of(environment: Mapping[str, str]) -> Event:
    """The event of this job, from Actions' environment. Raises NoEvent."""
    name, path = environment.get("GITHUB_EVENT_NAME", ""), environment.get("GITHUB_EVENT_PATH", "")
    run = environment.get("GITHUB_RUN_ID", "")
    if not name or not path or not run.isalnum():
        raise NoEvent(
            "This is not a job of GitHub Actions: GITHUB_EVENT_NAME, GITHUB_EVENT_PATH and "
            "GITHUB_RUN_ID are not all set. On a server, run `regatta serve`."
        )
    try:
        with Path(path).open("rb") as file:
            body = file.read(webhook.MAX_BYTES + 1)
        if len(body) > webhook.MAX_BYTES:
            raise NoEvent(f"{path} has more than 25 MB, so it is not an event of GitHub's.")
        payload = json.loads(body)
    except (OSError, ValueError, RecursionError) as error:
        raise NoEvent(f"{path}, the file of the event, cannot be read: {error}.") from error
    return Event(EVENTS.get(name, name), payload, f"actions-{run}")


def keep(store: Store, event: Event, repository: int) -> None:
    """Store an event about a thread in the inbox. Raises StoreError, OSError."""
    read = payloads.read(event.name, event.payload, "event-file")
    with logs.about(delivery=event.delivery):
        if read is None or read.thread is None or read.repository != repository:
            log.info("%s is for no thread", event.name)
            return
        deliveries.keep(store, read.thread, event.delivery, read)
        log.info("%s of thread %s is kept", event.name, read.thread.number)


def work(
    reconciler: Reconciler,
    *,
    may_take: float,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Ended:
    """Lead, and work until nothing is due or `may_take` seconds are over; then release the lease.

    If another process leads and keeps leading, it handles what was stored.
    """
    began = monotonic()
    try:
        wait = reconciler.work()
        while not reconciler.leads:
            if monotonic() - began > WAIT_TO_LEAD:
                return "GitHub is away" if reconciler.holds else "another leads"
            sleep(1.0)
            wait = reconciler.work()
        until = monotonic() + may_take
        while wait is not None:
            if monotonic() + wait > until:
                return "time is over"
            sleep(max(wait, 0.01))
            wait = reconciler.work()
        return "done"
    finally:
        reconciler.release()
