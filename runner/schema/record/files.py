"""Reads and writes records."""

import re

from pydantic import ValidationError

from runner.lib.base_record import Record
from runner.schema.record.fields import R
from runner.store.store import Store, StoreError


class BadRecord(StoreError):
    """The file is no such record: it has another form, or exceeds `runner.lib.bounds`."""


def write(store: Store, path: str, record: Record) -> bool:
    """Write `records/<path>.json` once. Returns False if it exists already."""
    return store.create(f"records/{path}.json", record.canonical())


def read(store: Store, path: str, kind: type[R]) -> R | None:
    """The record at `records/<path>.json`, or None. Raises BadRecord if it has another form."""
    data = store.read(f"records/{path}.json")
    return None if data is None else parse(store, path, kind, data)


def require(store: Store, path: str, kind: type[R]) -> R:
    """Like `read`, but the record must exist."""
    return parse(store, path, kind, store.require(f"records/{path}.json"))


def names(store: Store, folder: str) -> list[str]:
    """Names of the records (without `.json`) and folders in `records/<folder>`, sorted."""
    return [name.removesuffix(".json") for name in store.list(f"records/{folder}")]


def numbered(store: Store, folder: str, kind: type[R]) -> list[R]:
    """The records `1.json`, `2.json`, … of a folder, by number."""
    return [
        require(store, f"{folder}/{n}", kind)
        for n in sorted(int(name) for name in names(store, folder) if re.fullmatch(r"\d+", name))
    ]


def parse(store: Store, path: str, kind: type[R], data: bytes) -> R:
    """Parse `data`, the content of `records/<path>.json`. Raises BadRecord."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = f"`{'.'.join(map(str, first['loc']))}`: " if first["loc"] else ""
        raise BadRecord(
            f"{store.root}/records/{path}.json is not a record of the kind {kind.__name__}: {field}"
            f"{first['msg']}. Records are never edited; restore the file or move it aside."
        ) from error
