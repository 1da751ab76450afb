"""The step that leaves out duplicates. Processes for some shards each sketch their documents
(`sketches`), then one compares all (`duplicates`) and writes the text."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.data.lab_texts import BadText
from runner.worker.builtin import duplicates, reports
from runner.worker.builtin.duplicates import Found, Why
from runner.worker.builtin.shards import SPLITS, link, of_split, shards
from runner.worker.builtin.sketches import Shard, Sketches, sketch

PAIRS = "pairs.jsonl"
LEAST = 20  # documents of a source that may raise an alarm without losing all
HELD = " of the validation split"
WORDS = {
    Why.SAME: "same text as a kept document",
    Why.NEAR: "near-duplicate of a kept document",
    Why.INSIDE: "all of it is in a kept document",
    Why.AROUND: "it has all of a document",
}


def deduplicate(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Leave out the duplicates of a text; each shard gives a shard. Raises BadText."""
    with tempfile.TemporaryDirectory(dir=out) as aside:
        sketch_shards(config, {"shards": shards(inputs["text"])}, Path(aside))
        join(config, {"text": inputs["text"], "parts": {"": Path(aside)}}, out)


def sketch_shards(
    config: Mapping[str, Any], inputs: Mapping[str, Mapping[str, Path]], out: Path
) -> None:
    """Sketch the documents of the input `shards`, {name: file}."""
    for name, path in inputs["shards"].items():
        sketch(name, path, out, near=config["similarity"] is not None)


def join(config: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """Compare the documents that `sketch_shards` sketched in the folders of the input `parts`, and
    write what is kept. Raises BadText."""
    names = sorted(shards(inputs["text"]), key=lambda name: (of_split(SPLITS[0], name), name))
    folders = {
        path.stem: part for part in inputs["parts"].values() for path in part.glob("*.table")
    }
    sketches = Sketches({name: folders[name] for name in names})
    held = sum(len(one.table) for one in sketches.shards if not of_split(SPLITS[0], one.name))
    with tempfile.TemporaryDirectory(dir=out) as aside:
        found = duplicates.find(sketches, config["similarity"], held, Path(aside))
    marks = found.why == 0
    for shard in sketches.shards:
        _write(shard, marks[shard.start : shard.start + len(shard.table)], out)
    _write_pairs(sketches, found, held, out)
    _tally(config, sketches, found, held).write(out)
    if not marks[held:].any():
        raise BadText(
            "no document of the train split is left: all are duplicates of the validation split; "
            "split the text another way"
        )


def _write(shard: Shard, kept: np.ndarray, out: Path) -> None:
    """The kept documents of a shard."""
    source, target = shard.file("jsonl"), out / f"{shard.name}.jsonl"
    if kept.all():
        link(source, target)
        return
    with source.open("rb") as lines, target.open("wb") as file:
        file.writelines(line for line, keep in zip(lines, kept, strict=True) if keep)


def reasons(found: Found, held: int) -> Iterator[tuple[int, str]]:
    """(document, why it is left out, in words), in order."""
    for document in np.flatnonzero(found.why):
        of_held = found.kept[document] < held <= document
        yield int(document), WORDS[Why(found.why[document])] + HELD * bool(of_held)


def _write_pairs(sketches: Sketches, found: Found, held: int, out: Path) -> None:
    with (out / PAIRS).open("w", encoding="utf-8") as file:
        for document, reason in reasons(found, held):
            line = {
                "dropped": sketches.known(document),
                "kept": sketches.known(int(found.kept[document])),
                "similarity": round(float(found.similarity[document]), 4),
                "why": reason,
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _tally(config: Mapping[str, Any], sketches: Sketches, found: Found, held: int) -> reports.Tally:
    tally = reports.Tally()
    for shard in sketches.shards:
        kept = found.why[shard.start : shard.start + len(shard.table)] == 0
        of, sizes = shard.table["source"], shard.table["bytes"].astype(np.int64)
        for number, source in enumerate(shard.sources):
            mine = of == number
            tally.add(
                source,
                documents=int(mine.sum()),
                bytes=int(sizes[mine].sum()),
                kept_documents=int((mine & kept).sum()),
                kept_bytes=int(sizes[mine & kept].sum()),
            )
    tally.left_out.update(reason for _, reason in reasons(found, held))
    if config["similarity"] is not None:
        tally.counted["pairs that were compared"] = found.compared
        tally.counted["kept documents that were not remembered under a crowded band"] = (
            found.crowded
        )
    tally.alarm_at_losses(config["alarm_above"], LEAST)
    return tally
