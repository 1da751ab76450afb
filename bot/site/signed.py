"""The lab's word on the site: each seal, plan and finished execution as a signed file, and the
public keys beside them."""

from collections.abc import Callable, Iterator
from functools import partial

from bot.site.board import Entry, Lab
from bot.site.files import File, made_from
from bot.site.memory import listed
from runner import record, signing
from runner.record import PlanRecord, Preregistration, run_name
from runner.signing import Key, Kind, Receipt
from runner.store import Store


def files(store: Store, facts: Lab, whole: Callable[[int], Entry], key: Key) -> Iterator[File]:
    """The signed files below `api/signed/`, and `api/keys.json`; `whole` is the entry of that
    number with its curves, since a receipt holds all that is on record."""
    for path, seen in listed(store, "preregistrations"):
        if path.endswith("/1"):  # edits of the issue come after it
            read = partial(record.require, store, path, Preregistration)
            yield _signed(key, "seal", path, read, seen)
    for path, seen in listed(store, "plans"):
        yield _signed(key, "plan", path, partial(record.require, store, path, PlanRecord), seen)
    for number, entry in enumerate(facts.entries):
        if entry.result:
            path = f"executions/{entry.execution.id}/result"
            yield _signed(key, "receipt", path, partial(_receipt, whole, number), entry.told)
    keys = dict.fromkeys([key.public, *signing.public_keys(store)])
    yield File("api/keys.json", lambda: signing.published(keys))


def _signed(key: Key, kind: Kind, path: str, read: Callable[[], record.Record], seen: str) -> File:
    def draw() -> bytes:
        return signing.sign(key, kind, path, read())

    return File(f"api/signed/{path}.json", draw, made_from(key.public, seen))


def _receipt(whole: Callable[[int], Entry], number: int) -> Receipt:
    entry = whole(number)
    if entry.result is None:
        raise AssertionError(f"{entry.execution.id} has no result, so it has no receipt")
    runs = {run_name(run.arm, run.seed): run for run in entry.runs}
    return Receipt(execution=entry.execution, seal=entry.seal, runs=runs, result=entry.result)
