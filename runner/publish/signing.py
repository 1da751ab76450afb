"""Signatures, so that anybody with a file can check that the lab wrote it.

A signed file contains one record (a seal, a plan, or the receipt of an execution), its digest, and
an Ed25519 signature (RFC 8032) over its kind, its path and that digest. Everything that can be
computed is checked: fingerprints, seals and verdicts are computed again from the file's content.

Only the bot has the private key. The public keys of everything that a lab has ever signed are in
its records (`keys/<id>.json`) and published as `keys.json`. To rotate, make a new key and start the
bot with it: older files stay valid. A stolen key is revoked (`keys/<id>.revoked.json`) and no
longer published, so its signatures become invalid; files on the site are signed again with each
build.
"""

import base64
import binascii
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import ValidationError

from runner.analysis import verdicts
from runner.lib import bounds
from runner.lib.base_record import Instant, Record
from runner.lib.canonical_json import to_json
from runner.schema.plan_fingerprint import fingerprint
from runner.schema.record import (
    Execution,
    PlanRecord,
    Preregistration,
    R,
    Result,
    Run,
    names,
    read,
    require,
    run_name,
    write,
)
from runner.store.store import Store

Kind = Literal["seal", "plan", "receipt"]
log = logging.getLogger(__name__)
WHAT: Literal["regatta signed record 1"] = "regatta signed record 1"  # the version of the format
ONLY_OWNER = 0o600


class BadKey(Exception):
    """A key is not usable; the message says why and what to do."""


class Forged(Exception):
    """A file is not valid; the message says what is wrong, and where."""


class PublicKey(Record):
    """A present or former key of the lab."""

    id: str
    ed25519: str  # base64
    at: Instant


class Revoked(Record):
    """The key no longer belongs to the lab."""

    at: Instant


class Receipt(Record):
    """An execution that is over: what ran, and the results."""

    execution: Execution
    seal: Preregistration | None
    runs: dict[str, Run]
    result: Result


Signable = Preregistration | PlanRecord | Receipt
KINDS: dict[Kind, type[Signable]] = {
    "seal": Preregistration,
    "plan": PlanRecord,
    "receipt": Receipt,
}


class Signed(Record):
    """A signed file."""

    what: Literal["regatta signed record 1"] = WHAT
    kind: Kind
    path: str  # below `records/`
    record: dict[str, Any]
    sha256: str
    key: str  # its id
    signature: str  # base64


# ── Keys ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Key:
    """The lab's private key."""

    private: Ed25519PrivateKey

    @property
    def public(self) -> bytes:
        """The public key's 32 bytes."""
        return self.private.public_key().public_bytes_raw()

    @property
    def id(self) -> str:
        """The first 16 hexadecimal digits of SHA-256 over the public key."""
        return key_id(self.public)


def key_id(public: bytes) -> str:
    """The id of a public key."""
    return sha256(public).hexdigest()[:16]


def make_key(path: Path) -> Key:
    """Write a new private key that only its owner may read. Raises BadKey if the file exists."""
    key = Key(Ed25519PrivateKey.generate())
    pem = key.private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        path.touch(ONLY_OWNER, exist_ok=False)
        path.write_bytes(pem)
    except FileExistsError as error:
        raise BadKey(f"{path} is there already, and no key is ever replaced") from error
    except OSError as error:
        raise BadKey(f"{path} cannot be written: {error.strerror}") from error
    return key


def read_key(path: Path) -> Key:
    """The private key in a file. Raises BadKey, also if other users may read it."""
    try:
        if path.stat().st_mode & 0o077:
            raise BadKey(f"others may read {path}; chmod 600 {path}")
        found = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise BadKey(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise BadKey(f"{path} holds no private key in PEM: {error}") from error
    if not isinstance(found, Ed25519PrivateKey):
        raise BadKey(f"{path} holds a key of another kind; `regatta key new` makes one")
    return Key(found)


def keep(store: Store, key: Key, at: datetime) -> None:
    """Record a public key of the lab. Raises BadKey if it was revoked."""
    path = f"keys/{key.id}"
    if revoked(store, key.id):
        raise BadKey(f"the key {key.id} is revoked; `regatta key new` makes another one")
    if read(store, path, PublicKey) is None:
        write(store, path, PublicKey(id=key.id, ed25519=_base64(key.public), at=at))


def revoke(store: Store, id: str, at: datetime) -> None:
    """Make all signatures with this key invalid. Raises BadKey."""
    if read(store, f"keys/{id}", PublicKey) is None:
        raise BadKey(f"the records know no key {id}")
    write(store, f"keys/{id}.revoked", Revoked(at=at))


def revoked(store: Store, id: str) -> bool:
    """Whether this key is revoked."""
    return read(store, f"keys/{id}.revoked", Revoked) is not None


def in_force(store: Store, key: Key | None) -> Key | None:
    """The key, unless it is revoked; then a warning is logged and nothing is signed."""
    if key and revoked(store, key.id):
        log.warning(
            "the key %s is revoked, so that nothing is signed; start with a new one", key.id
        )
        return None
    return key


def public_keys(store: Store) -> list[bytes]:
    """All keys that the lab has signed with and not revoked, sorted by id."""
    found = names(store, "keys")
    kept = [name for name in found if "." not in name and f"{name}.revoked" not in found]
    return [_bytes(require(store, f"keys/{name}", PublicKey).ed25519) for name in kept]


def published(keys: Iterable[bytes]) -> bytes:
    """`keys.json` with these public keys."""
    return to_json({"keys": [{"id": key_id(key), "ed25519": _base64(key)} for key in keys]})


def read_published(content: bytes) -> dict[str, bytes]:
    """{id: public key} of a `keys.json`. Raises BadKey."""
    try:
        published = bounds.plain(content)
    except ValueError as error:
        raise BadKey(f"it is not JSON: {error}") from error
    try:
        found = {key["id"]: _bytes(key["ed25519"]) for key in published["keys"]}
    except (ValueError, KeyError, TypeError) as error:
        raise BadKey("it is not a list of public keys, as a lab's site has one") from error
    for name, public in found.items():
        if key_id(public) != name:
            raise BadKey(f"the key {name} is not the one that its id says")
    return found


# ── Signing and verifying ────────────────────────────────────────────────────────────────────


def sign(key: Key, record: Signable) -> bytes:
    """A signed file of a record. Equal records have equal files."""
    kind = next(kind for kind, of in KINDS.items() if isinstance(record, of))
    path, digest = place(record), record.digest()
    return Signed(
        kind=kind,
        path=path,
        record=record.model_dump(mode="json"),
        sha256=digest,
        key=key.id,
        signature=_base64(key.private.sign(_statement(kind, path, digest))),
    ).canonical()


def _statement(kind: str, path: str, digest: str) -> bytes:
    return to_json({"what": WHAT, "kind": kind, "path": path, "sha256": digest})


def verify(content: bytes, keys: Mapping[str, bytes]) -> Signed:
    """The content of a signed file, if it is valid. `keys` are the lab's public ones, by id. Raises
    Forged."""
    try:
        said = bounds.plain(content, len(content))
    except ValueError as error:
        raise Forged(f"it is not JSON: {error}") from error
    if not isinstance(said, dict) or said.get("what") != WHAT:
        raise Forged("it is not a file that a lab has signed")
    file = _parsed(Signed, said)
    record = _parsed(KINDS[file.kind], file.record, "record.")
    if record.model_dump(mode="json") != file.record:
        raise Forged("the record is not written as the lab writes it")
    if record.digest() != file.sha256:
        raise Forged("the record's digest is not the one in the file: the record was changed")
    if file.key not in keys:
        raise Forged(f"it is signed with {file.key}, which is none of the lab's keys")
    try:
        public = Ed25519PublicKey.from_public_bytes(keys[file.key])
        public.verify(_bytes(file.signature), _statement(file.kind, file.path, file.sha256))
    except (InvalidSignature, ValueError, TypeError) as error:
        raise Forged("the signature is not the lab's for this record at this path") from error
    if why := "; ".join(_untrue(file.path, record)):
        raise Forged(why)
    return file


def _parsed(kind: type[R], said: object, where: str = "") -> R:
    try:
        return kind.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        where += ".".join(map(str, first["loc"]))
        raise Forged(f"{where}: {first['msg']}") from error


def _untrue(path: str, record: Signable) -> Iterable[str]:
    """Contradictions within a record, as sentences."""
    if path != place(record):
        yield f"path: such a record is at {place(record)}, not at {path}"
    match record:
        case PlanRecord(plan=plan) if plan:
            if plan.fingerprint != fingerprint(plan):
                yield "record.plan.fingerprint is not that of the plan"
        case Preregistration(text=text) if text is not None:
            if sha256(text.encode()).hexdigest() != record.text_sha256:
                yield "record.text_sha256 is not that of the text"
        case Receipt(execution=execution, seal=seal, runs=runs, result=result):
            plan = execution.plan
            if plan.fingerprint != fingerprint(plan):
                yield "record.execution.plan.fingerprint is not that of the plan"
            if (seal.seal if seal else None) != plan.seal:
                yield "record.seal is not the seal that the plan names"
            if seal and seal.predictions != plan.predictions:
                yield "record.execution.plan.predictions are not those that were sealed"
            planned = {run_name(arm, seed) for arm, seed in plan.runs()}
            if not runs.keys() <= planned:
                yield "record.runs: some are not the plan's"
            for name, run in runs.items():
                if run.execution != execution.id or name != run_name(run.arm, run.seed):
                    yield f"record.runs.{name} is another run"
            scores = verdicts.scores_of(runs.values())
            speeds = verdicts.speeds_of(runs.values())
            judged = verdicts.judge(plan, scores, execution.climbed, speeds)
            if result.verdicts and result.verdicts != judged:
                yield "record.result.verdicts do not follow from the figures"
        case _:
            pass


def receipt(store: Store, execution: Execution, seal: Preregistration | None) -> Receipt | None:
    """The receipt of an execution from its records; None until it has ended."""
    result = read(store, f"executions/{execution.id}/result", Result)
    if result is None:
        return None
    planned = [run_name(arm, seed) for arm, seed in execution.plan.runs()]
    found = {name: read(store, f"runs/{execution.id}.{name}", Run) for name in planned}
    runs = {name: run for name, run in found.items() if run}
    return Receipt(execution=execution, seal=seal, runs=runs, result=result)


def place(record: Signable) -> str:
    """The path of a record below `records/`."""
    match record:
        case Preregistration():
            return f"preregistrations/{record.repository}/{record.issue}/1"
        case PlanRecord():
            return f"plans/{record.repository}/{record.pull}/{record.n}"
        case Receipt():
            return f"executions/{record.execution.id}/result"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
