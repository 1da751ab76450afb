"""The step that keeps the documents of a text with the highest scores, or as many by chance.

What is kept follows from all documents of a split: `mark` decides on each and writes one byte per
document, then the shards are written. `mark` needs some 40 bytes of memory per document."""

import hashlib
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.data.documents import Document, whole_documents
from engine.data.lab_texts import BadText
from runner.lib import format
from runner.worker.texts.attributes import (
    beside,
    identity,
    number_of,
    read_attributes,
    with_attributes,
)
from runner.worker.texts.filter_and_join import link_shards, write_text
from runner.worker.texts.reports import Tally, finish
from runner.worker.texts.shards import SPLITS, of_split, shards


def select(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Keep documents, in order; each shard gives a shard. Raises BadText and BadAttributes."""
    tally = Tally()
    for name, path, marks in _marked(config, inputs):
        _keep(config, inputs, name, path, marks, out, tally)
    tally.write_sums(out)
    finish(out, [out], alarms=False)


def mark(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Decide which documents of each shard are kept."""
    for name, _, marks in _marked(config, inputs):
        np.save(out / f"{name}.npy", marks)


def keep_shards(config: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """Write the documents of the input `shards`, {name: file}, that `mark` chose."""
    tally = Tally()
    for name, path in inputs["shards"].items():
        marks = np.load(inputs["first"] / f"{name}.npy", allow_pickle=False)
        _keep(config, inputs, name, path, marks, out, tally)
    tally.write_sums(out)


def join(_: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """Join the results of `keep_shards`, in the folders of the input `parts`, to one text."""
    link_shards(inputs["parts"].values(), out)
    finish(out, inputs["parts"].values(), alarms=False)


# ── What is kept ─────────────────────────────────────────────────────────────────────────────


class Documents(NamedTuple):
    """What decides of the documents of a split, in order."""

    scores: np.ndarray | None  # float64
    draws: np.ndarray  # uint64: the order by chance
    sizes: np.ndarray | None  # bytes of text; None if only documents count


def kept(config: Mapping[str, Any], documents: Documents) -> np.ndarray:
    """Whether each document is kept, as bool. The order of equal scores is that of `draws`, then
    that of the text. Pure."""
    draws, scores, sizes = documents.draws, documents.scores, documents.sizes
    count = len(draws)
    weights = np.ones(count, np.int64) if sizes is None else sizes
    if config["fraction"] is None:
        assert scores is not None
        least, most = config["least"], config["most"]
        marks = (scores >= (-np.inf if least is None else least)) & (
            scores <= (np.inf if most is None else most)
        )
        if not config["random"]:
            return marks
        room = int(weights[marks].sum())
    else:
        # Not the nearest double: of 25 documents, a tenth is 2.5.
        share = Fraction(repr(config["fraction"])) * int(weights.sum())
        room = int(share + Fraction(1, 2))
    if config["random"] or scores is None:
        order = np.argsort(draws, kind="stable")
    else:
        order = np.lexsort((draws, -scores))
    marks = np.zeros(count, bool)
    marks[order[: np.searchsorted(np.cumsum(weights[order]), room, side="right")]] = True
    return marks


def drawn(seed: int, known: str) -> int:
    """A number of 64 bits for the document with this identity."""
    words = f"{seed}\0{known}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little")


def _marked(
    config: Mapping[str, Any], inputs: Mapping[str, Path]
) -> Iterator[tuple[str, Path, np.ndarray]]:
    """(shard, its file, marks) for each shard of the text."""
    every = shards(inputs["text"])
    for split in SPLITS:
        mine = {name: path for name, path in every.items() if of_split(split, name)}
        if split == "validation" and config["validation"] == "whole":
            for name, path in mine.items():
                yield name, path, np.ones(sum(1 for _ in whole_documents(path)), bool)
            continue
        read = {name: _read(config, inputs, name, path) for name, path in mine.items()}
        marks = kept(config, _together(list(read.values())))
        if not marks.any():
            raise BadText(
                f"nothing of the {split} split is kept, of {len(marks):,} documents; raise "
                "`fraction`, or loosen `least` and `most`"
            )
        ends = np.cumsum([len(one.draws) for one in read.values()])
        for (name, path), part in zip(mine.items(), np.split(marks, ends[:-1]), strict=True):
            yield name, path, part


def _together(parts: list[Documents]) -> Documents:
    scores, draws, sizes = zip(*parts, strict=True)
    return Documents(
        None if scores[0] is None else np.concatenate(scores),
        np.concatenate(draws),
        None if sizes[0] is None else np.concatenate(sizes),
    )


def _read(
    config: Mapping[str, Any], inputs: Mapping[str, Path], name: str, path: Path
) -> Documents:
    """What decides of one shard. The text is read only where it counts."""
    by_bytes, scored = config["by"] == "bytes", "scores" in inputs
    scores, draws, sizes = [], [], []
    beside_it = beside(inputs["text"], inputs["scores"])[name] if scored else None
    rows: Iterator[tuple[Document | None, str, Mapping[str, Any]]]
    if beside_it is None:
        of = enumerate(whole_documents(path), 1)
        rows = ((document, identity(document, name, number), {}) for number, document in of)
    elif by_bytes:
        rows = with_attributes(name, path, beside_it)
    else:
        rows = ((None, known, of) for known, of in read_attributes(beside_it))
    for number, (document, known, attributes) in enumerate(rows, 1):
        draws.append(drawn(config["seed"], known))
        if beside_it is not None:
            scores.append(number_of(attributes, config["attribute"], beside_it, number))
        if by_bytes and document is not None:
            sizes.append(len(document["text"].encode()))
    return Documents(
        np.array(scores, np.float64) if scored else None,
        np.array(draws, np.uint64),
        np.array(sizes, np.int64) if by_bytes else None,
    )


# ── The shards ───────────────────────────────────────────────────────────────────────────────


def _keep(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path],
    name: str,
    path: Path,
    marks: np.ndarray,
    out: Path,
    tally: Tally,
) -> None:
    """Write the marked documents of a shard."""
    reason = why_not(config)

    def chosen() -> Iterator[Document]:
        for document, mark in zip(_documents(inputs, name, path), marks.tolist(), strict=True):
            if mark:
                tally.keep(document)
                yield document
            else:
                tally.leave_out(document, reason)

    write_text(out, name, chosen())


def why_not(config: Mapping[str, Any]) -> str:
    """Why a document is left out."""
    if config["random"]:
        return "not drawn"
    name, least, most = config["attribute"], config["least"], config["most"]
    if config["fraction"] is not None:
        return f"`{name}` is not among the highest {format.percent(config['fraction'])}"
    bounds = " to ".join(f"{bound:g}" for bound in (least, most) if bound is not None)
    of = "" if None not in (least, most) else " or more" if most is None else " or less"
    return f"`{name}` is not {bounds}{of}"


def _documents(inputs: Mapping[str, Path], name: str, path: Path) -> Iterator[Document]:
    """The documents of a shard. Raises BadAttributes if their scores are of other documents."""
    if "scores" not in inputs:
        return whole_documents(path)
    beside_it = beside(inputs["text"], inputs["scores"])[name]
    return (document for document, _, _ in with_attributes(name, path, beside_it))
