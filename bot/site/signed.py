"""The lab's word on the site: each seal, plan and finished execution as a signed file, and the
public keys beside them."""

from pathlib import Path

from bot.site.board import Lab
from runner import record, signing
from runner.record import PlanRecord, run_name
from runner.signing import Key, Receipt
from runner.store import Store


def write(store: Store, facts: Lab, folder: Path, key: Key) -> None:
    """Write `api/keys.json` and the signed files below `api/signed/`."""
    keys = dict.fromkeys([key.public, *signing.public_keys(store)])
    (folder / "api" / "keys.json").write_bytes(signing.published(keys))
    for kind, found in _records(store, facts):
        path = signing.place(kind, found)
        target = folder / "api" / "signed" / f"{path}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(signing.sign(key, kind, path, found))


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
