"""The lab's word on the site: each seal, plan and finished execution as a signed file, and the
public keys beside them."""

from collections.abc import Callable, Iterator
from functools import partial

from bot.site.base.files import File, made_from
from bot.site.facts.entries import Entry
from bot.site.facts.lab import Lab
from bot.site.facts.memory import listed
from runner.lib import base_record
from runner.publish import signing
from runner.publish.signing import Key, Kind, Receipt
from runner.schema import record
from runner.schema.record import PlanRecord, Preregistration
from runner.store.store import Store


def files(store: Store, facts: Lab, key: Key) -> Iterator[File]:
    """The signed files below `api/signed/`, and `api/keys.json`."""
    for path, seen in listed(store, "preregistrations"):
        if path.endswith("/1"):  # edits of the issue come after it
            read = partial(record.require, store, path, Preregistration)
            yield _signed(key, "seal", path, read, seen)
    for path, seen in listed(store, "plans"):
        yield _signed(key, "plan", path, partial(record.require, store, path, PlanRecord), seen)
    for entry in facts.entries:
        if entry.result:
            path = f"executions/{entry.execution.id}/result"
            yield _signed(key, "receipt", path, partial(_receipt, store, entry), entry.told)
    keys = dict.fromkeys([key.public, *signing.public_keys(store)])
    yield File("api/keys.json", lambda: signing.published(keys))


def _signed(
    key: Key, kind: Kind, path: str, read: Callable[[], base_record.Record], seen: str
) -> File:
    def draw() -> bytes:
        return signing.sign(key, kind, path, read())

    return File(f"api/signed/{path}.json", draw, made_from(key.public, seen))


def _receipt(store: Store, entry: Entry) -> Receipt:
    # Out of the records: an entry may have no curves, and a receipt holds all that is known.
    found = signing.receipt(store, entry.execution, entry.seal)
    assert found, f"{entry.execution.id} has ended"
    return found
