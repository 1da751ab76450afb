"""The lab's word on the site: each seal, plan and finished execution as a signed file, and the
public keys beside them."""

from collections.abc import Iterator
from functools import partial

from bot.site.board import Lab
from bot.site.files import File, made_from
from runner import record, signing
from runner.record import PlanRecord, run_name
from runner.signing import Key, Receipt
from runner.store import Store


def files(store: Store, facts: Lab, key: Key) -> Iterator[File]:
    """The signed files below `api/signed/`, and `api/keys.json`."""
    for kind, found in _records(store, facts):
        path = signing.place(kind, found)
        yield File(
            f"api/signed/{path}.json",
            partial(signing.sign, key, kind, path, found),
            made_from(key.public, found),
        )
    keys = dict.fromkeys([key.public, *signing.public_keys(store)])
    yield File("api/keys.json", lambda: signing.published(keys))


def _records(store: Store, facts: Lab) -> "list[tuple[signing.Kind, record.Record]]":
    found: list[tuple[signing.Kind, record.Record]] = []
    for repository in record.names(store, "preregistrations"):
        for issue in record.names(store, f"preregistrations/{repository}"):
            path = f"preregistrations/{repository}/{issue}/1"
            found.append(("seal", record.require(store, path, record.Preregistration)))
    for repository in record.names(store, "plans"):
        for pull in record.names(store, f"plans/{repository}"):
            plans = record.numbered(store, f"plans/{repository}/{pull}", PlanRecord)
            found += [("plan", plan) for plan in plans]
    for entry in facts.entries:
        if entry.result:
            runs = {run_name(run.arm, run.seed): run for run in entry.runs}
            receipt = Receipt(
                execution=entry.execution, seal=entry.seal, runs=runs, result=entry.result
            )
            found.append(("receipt", receipt))
    return found
