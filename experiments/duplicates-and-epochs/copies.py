"""Texts of equal size, with all copies of each document or with one of them."""

import hashlib
import json
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHINGLE = 3  # words, as in the step `dedup`
APART = 0.5  # the Jaccard similarity below which two documents are not alike


def apart(config: dict[str, Any], inputs: dict[str, Path], out: Path) -> None:
    """The input `text` with its whole train split. Of the validation split it keeps the documents
    whose Jaccard similarity with each training document, and with each held-out document before it,
    is below APART."""
    held = list(_lines(inputs["text"], "validation"))
    sets = [_shingles(line) for line in held]
    having = defaultdict(list)  # {shingle: the held-out documents that have it}
    for number, of in enumerate(sets):
        for shingle in of:
            having[shingle].append(number)

    alike = set()
    for number, of in enumerate(sets):
        if any(other < number for other in _resembled(of, sets, having)):
            alike.add(number)
    with (out / "train.jsonl").open("w") as file:
        for line in _lines(inputs["text"], "train"):
            file.write(line)
            alike.update(_resembled(_shingles(line), sets, having))
    with (out / "validation.jsonl").open("w") as file:
        file.writelines(line for number, line in enumerate(held) if number not in alike)


def sample(config: dict[str, Any], inputs: dict[str, Path], out: Path) -> None:
    """So many `bytes` of the text that `apart` made. The input `unique` is the output of `dedup`
    for it, which says what is a copy of what. All groups of copies take part, and of the documents
    without a copy the share `alone`. Groups come in an order by hash, and one that no longer fits
    is left out. With `copies`, all documents of a group are written, otherwise the one that
    `dedup` keeps."""
    first = {}  # {document: the one that dedup keeps}
    for line in (inputs["unique"] / "pairs.jsonl").open():
        pair = json.loads(line)
        first[pair["dropped"]] = pair["kept"]
    groups = defaultdict(list)
    for line in _lines(inputs["text"], "train"):
        known = json.loads(line)["id"]
        groups[first.get(known, known)].append(line)

    left = config["bytes"]
    with (out / "train.jsonl").open("w") as file:
        for known in sorted(groups, key=_draw):
            if len(groups[known]) == 1 and _draw(f"alone {known}") >= config["alone"]:
                continue
            kept = [line for line in groups[known] if json.loads(line)["id"] == known]
            lines = groups[known] if config["copies"] else kept
            size = sum(len(json.loads(line)["text"].encode()) for line in lines)
            if size <= left:
                file.writelines(lines)
                left -= size
    if left > config["bytes"] / 100:
        raise ValueError(f"the text is {left:,} bytes too short; raise `alone`")
    shutil.copyfile(inputs["text"] / "validation.jsonl", out / "validation.jsonl")


def _draw(known: str) -> float:
    """A number from 0 to 1 by a hash."""
    return int.from_bytes(hashlib.sha256(known.encode()).digest()[:8], "big") / 2**64


def _lines(folder: Path, split: str) -> Iterator[str]:
    for path in sorted(folder.glob(f"{split}*.jsonl")):
        yield from path.open()


def _shingles(line: str) -> set[int]:
    """The runs of SHINGLE words of a document's text, as hashes; all words if there are fewer."""
    words = re.findall(r"\w+", json.loads(line)["text"].casefold())
    runs = range(max(1, len(words) - SHINGLE + 1))
    return {hash(tuple(words[at : at + SHINGLE])) for at in runs}


def _resembled(of: set[int], sets: list[set[int]], having: dict[int, list[int]]) -> list[int]:
    """The held-out documents that a document with these shingles is like."""
    common = Counter(number for shingle in of for number in having.get(shingle, ()))
    return [
        number
        for number, both in common.items()
        if both >= APART * (len(of) + len(sets[number]) - both)
    ]
