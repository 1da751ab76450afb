"""The signed files on the site: each seal, plan and finished execution, and the public keys."""

from collections.abc import Callable, Iterator
from functools import partial

from bot.site.base.files import File, made_from
from bot.site.facts.entries import Entry
from bot.site.facts.lab import Lab
from bot.site.facts.memory import listed
from runner.publish import signing
from runner.publish.signing import Key, Receipt, Signable
from runner.schema import record
from runner.schema.record import PlanRecord, Preregistration
from runner.store.store import Store


def files(store: Store, facts: Lab, key: Key) -> Iterator[File]:
    """The signed files below `api/signed/`, and `api/keys.json`."""

    def signed(path: str, read: Callable[[], Signable], seen: str) -> File:
        made = made_from(key.public, seen)
        return File(f"api/signed/{path}.json", lambda: signing.sign(key, read()), made)

    for path, seen in listed(store, "preregistrations"):
        if path.endswith("/1"):  # later ones are edits of the issue
            yield signed(path, partial(record.require, store, path, Preregistration), seen)
    for path, seen in listed(store, "plans"):
        yield signed(path, partial(record.require, store, path, PlanRecord), seen)
    for entry in facts.entries:
        if entry.result:
            path = f"executions/{entry.execution.id}/result"
            yield signed(path, partial(_receipt, store, entry), entry.told)
    keys = dict.fromkeys([key.public, *signing.public_keys(store)])
    yield File("api/keys.json", lambda: signing.published(keys))


def _receipt(store: Store, entry: Entry) -> Receipt:
    # From the records, because an entry may have no curves, and a receipt contains everything.
    found = signing.receipt(store, entry.execution, entry.seal)
    assert found, f"{entry.execution.id} has ended"
    return found
