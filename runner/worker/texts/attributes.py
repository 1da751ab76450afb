"""Attributes of a text: a folder with a shard for each shard of the text, of the same name. Its
lines are {"id": …, "attributes": {name: number or text}}, one for each document, in the same
order."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.data.documents import Document, whole_documents
from engine.data.lab_texts import BadText
from runner.worker.texts.shards import shards

Attributes = Mapping[str, Any]  # by name


class BadAttributes(BadText):
    """Attributes that are not those of the text; the message has file and line."""


def identity(document: Document, shard: str, number: int) -> str:
    """The document's `id`; without one `<shard>:<line>`, where the first line is 1."""
    known = document.get("id")
    return f"{shard}:{number}" if known is None else str(known)


def write_attributes(out: Path, name: str, rows: Iterable[tuple[str, Attributes]]) -> None:
    """Write the shard `name`: (identity, attributes) of each document."""
    with (out / f"{name}.jsonl").open("wb") as file:
        for known, of in rows:
            line = json.dumps({"id": known, "attributes": of}, ensure_ascii=False)
            file.write(line.encode(errors="backslashreplace") + b"\n")


def beside(text: Path, attributes: Path) -> dict[str, Path]:
    """{shard of the text: the shard with its attributes}. Raises BadText, BadAttributes."""
    wanted, found = shards(text), shards(attributes)
    if wanted.keys() != found.keys():
        raise BadAttributes(
            f"the text has {len(wanted)} shards ({', '.join(list(wanted)[:3])}, …) and its "
            f"attributes have {len(found)} ({', '.join(list(found)[:3])}, …); write one for each"
        )
    return found


def read_attributes(path: Path) -> Iterator[tuple[str, Attributes]]:
    """(identity, attributes) of each line of a shard. Raises BadAttributes."""
    for number, row in enumerate(_rows(path), 1):
        known, of = (row.get("id"), row.get("attributes")) if isinstance(row, dict) else (None, 0)
        if not isinstance(known, str) or not isinstance(of, dict):
            raise BadAttributes(
                f'{path}, line {number} is no {{"id": "…", "attributes": {{…}}}}; write one for '
                "each document"
            )
        yield known, of


def _rows(path: Path) -> Iterator[Any]:
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):  # noqa: B007  # for the error
                yield json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadAttributes(
            f"{path}, line {number} is not JSON: {error}; write it again"
        ) from error


def with_attributes(
    name: str, path: Path, attributes: Path
) -> Iterator[tuple[Document, str, Attributes]]:
    """(document, identity, attributes) for the shard `name` of a text. Raises BadText, and
    BadAttributes unless each line has the identity of its document."""
    rows = read_attributes(attributes)
    number = 0
    for number, document in enumerate(whole_documents(path), 1):
        known, row = identity(document, name, number), next(rows, None)
        if row is None or row[0] != known:
            has = f"has the id {row[0]!r}" if row else "is missing"
            raise BadAttributes(
                f"{attributes}, line {number} {has}, and document {number} of {path} has "
                f"{known!r}; make the attributes again, of this text"
            )
        yield document, known, row[1]
    if next(rows, None) is not None:
        raise BadAttributes(
            f"{attributes} has more than {number} lines, and {path} has {number} documents; make "
            "the attributes again, of this text"
        )


def number_of(attributes: Attributes, name: str, path: Path, line: int) -> float:
    """The number with this name. Raises BadAttributes."""
    value = attributes.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if name in attributes:
        raise BadAttributes(f"{path}, line {line}: its `{name}` is {value!r}, not a finite number")
    known = ", ".join(f"`{one}`" for one in attributes) or "no attributes"
    raise BadAttributes(f"{path}, line {line} has no `{name}`; it has {known}")
