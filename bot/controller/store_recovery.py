"""Recovery if GitHub and Ray know more than the records: the store is an older copy.

The bot's own comments carry markers. Before it first acts, it reads those that were written or
changed since the newest record. A marker without a record means that records were lost, and the
thread is `restored` from then on: its comments count as posted, so nothing is posted again; earlier
commands start nothing; one comment asks people to repeat what they still want. A marker can only
stop actions: a forged one starts nothing. Jobs of this store in Ray that no record names are
stopped.

    restored/<repository>/<thread>/<n>.json     when, and the keys that were found
"""

import logging
import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from bot.github.lists import Found
from bot.model.thread import ThreadId
from runner.execution.ray_jobs import RayError, RayJobs
from runner.lib.base_record import Instant, Record
from runner.lib.canonical_json import to_json
from runner.schema import record
from runner.schema.record import Claimed
from runner.store.store import Store

LOOK_BACK = timedelta(days=30)  # if the records do not say how far back to look
OVERLAP = timedelta(hours=1)
_MARKER = re.compile(r"<!-- regatta: ([0-9A-Za-z][0-9A-Za-z._-]{0,150}) -->\Z")
_JOB = re.compile(r"(x[0-9a-f]{16})\.([te]\d+)-([0-9a-f]+)")

log = logging.getLogger("regatta.restore")


class Restored(Record):
    """Records of this thread were lost."""

    at: Instant
    keys: tuple[str, ...]  # of the bot's comments without a record


def adopt(store: Store, repository: int, comments: Iterable[Found], now: datetime) -> None:
    """Record the bot's comments that no record names as posted."""
    lost: dict[ThreadId, list[str]] = {}
    for comment in comments:
        marker, thread = _MARKER.search(comment.body), ThreadId(repository, comment.number)
        if marker is None:
            continue
        path = f"records/said/{thread}/{marker[1]}"
        if store.read(f"{path}/claim.json") is not None or store.read(f"{path}/done.json"):
            continue
        # The thread first: if we crash here, it is found again and does not count as complete.
        if thread not in lost:
            n = len(record.names(store, f"restored/{thread}")) + 1
            record.write(store, f"restored/{thread}/{n}", Restored(at=now, keys=(marker[1],)))
        lost.setdefault(thread, []).append(marker[1])
        store.create(f"{path}/claim.json", to_json({"kind": "comment", "body": comment.body}))
        done = {"id": comment.id, "at": comment.at.isoformat()}
        store.create(f"{path}/done.json", to_json(done))
    for thread, keys in lost.items():
        log.error("thread %s: no record of %s; it is restored", thread.number, ", ".join(keys))


def moment(store: Store, id: ThreadId) -> datetime | None:
    """Since when a thread is restored; None if its records are complete."""
    found = record.numbered(store, f"restored/{id}", Restored)
    return found[-1].at if found else None


def stop_orphans(store: Store, ray: RayJobs) -> None:
    """Stop the jobs of this store that no record names."""
    try:
        listed = ray.listed()
    except RayError as error:
        log.warning("nobody looked for jobs without a record: %s", error)
        return
    for job in listed:
        if job.store == store.id and not _is_known(store, job.folder):
            log.error("the job %s is in Ray and in no record; it is stopped", job.folder)
            ray.stop(job.folder)


def _is_known(store: Store, folder: str) -> bool:
    """Whether an attempt with this name and nonce was claimed. Jobs with other names are not
    ours."""
    job = _JOB.fullmatch(folder)
    if job is None:
        return True
    claimed = record.read(store, f"executions/{job[1]}/{job[2]}.claimed", Claimed)
    return claimed is not None and claimed.nonce == job[3]
