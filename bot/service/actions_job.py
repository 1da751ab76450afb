"""The bot without a server: one invocation of GitHub Actions does whatever is due, and ends.

The event that started it lies in a file that GitHub wrote. It is kept like a delivery, so that it
is dealt with once, in whatever mode, whoever leads. Then this process leads, looks at what no
event told of, and works until nothing is due or its time is over. Nothing is lost where it is cut
off: the next one goes on from the records.
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
from bot.service.parts import opened, reconciler
from bot.setup.settings import Settings
from bot.telemetry import logs
from runner.lib import redact
from runner.store.store import Store

WAIT_TO_LEAD = 60.0  # seconds; a leader that is gone is noticed within 45
# Actions' name for events, where it is another one than that of deliveries.
EVENTS = {"pull_request_target": "pull_request"}

log = logging.getLogger("regatta.handle")

Ended = Literal["done", "another leads", "GitHub is away", "time is over"]


class NoEvent(Exception):
    """What Actions says of its event cannot be read; the message says what is wrong."""


@dataclass(frozen=True)
class Event:
    """What started this invocation."""

    name: str  # as deliveries have it
    payload: Any
    delivery: str  # a name for it; the same when somebody has the job run again


class NoPlace(Exception):
    """The store would not outlive this job; the message says where it can lie."""


def handle(settings: Settings, environment: Mapping[str, str], may_take: float) -> Ended:
    """Do whatever is due, `may_take` seconds at most. Raises NoEvent, NoPlace, and what
    `bot.service.parts` does."""
    redact.hold(*settings.all_secrets())
    logs.set_up("text", redact=redact.clean)
    event = event_of(environment)
    lasting(settings.store)
    store, github = opened(settings)
    keep(store, event, github.id)
    return work(reconciler(settings, store, github), may_take=may_take)


def lasting(store: str) -> str:
    """`store`, if the next job finds it again. Raises NoPlace."""
    if store.startswith("gs://") or Path(store).is_absolute():
        return store
    raise NoPlace(
        f"The store {store!r} lies in the job's own folder, which the next job need not find. Let "
        "the variable REGATTA_STORE name gs://bucket/prefix or, on a runner of yours, a folder by "
        "its whole path."
    )


def event_of(environment: Mapping[str, str]) -> Event:
    """The event of this invocation, out of Actions' environment. Raises NoEvent."""
    name, path = environment.get("GITHUB_EVENT_NAME", ""), environment.get("GITHUB_EVENT_PATH", "")
    run = environment.get("GITHUB_RUN_ID", "")
    if not name or not path or not run.isalnum():
        raise NoEvent(
            "This is no job of GitHub Actions: GITHUB_EVENT_NAME, GITHUB_EVENT_PATH and "
            "GITHUB_RUN_ID are not all set. On a server, say `regatta serve`."
        )
    try:
        with Path(path).open("rb") as file:
            body = file.read(webhook.MAX_BYTES + 1)
        if len(body) > webhook.MAX_BYTES:
            raise NoEvent(f"{path} holds more than 25 MB, which is no event of GitHub's.")
        payload = json.loads(body)
    except (OSError, ValueError, RecursionError) as error:
        raise NoEvent(f"{path}, the file of the event, cannot be read: {error}.") from error
    return Event(EVENTS.get(name, name), payload, f"actions-{run}")


def keep(store: Store, event: Event, repository: int) -> None:
    """Put an event that concerns a thread where deliveries are. Raises StoreError, OSError."""
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
    """Lead, and work until nothing is due or `may_take` seconds are over; then let go.

    Where somebody else leads and goes on leading, what was kept is theirs to do.
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
