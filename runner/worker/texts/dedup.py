"""The step that leaves out duplicates. Processes for some shards each sketch their documents
(`sketches`), then one compares all (`duplicates`) and writes the text."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.data import shingles
from engine.data.lab_texts import BadText
from runner.worker.texts import duplicates, reports
from runner.worker.texts.duplicates import Found, Why
from runner.worker.texts.shards import shards
from runner.worker.texts.sketches import Sketches, sketch

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
        near = config["similarity"] is not None
        sketch(name, path, out, shingles.words if near else None, banded=near)


def join(config: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """Compare the documents that `sketch_shards` sketched in the folders of the input `parts`, and
    write what is kept. Raises BadText."""
    sketches = Sketches(shards(inputs["text"]), inputs["parts"].values())
    with tempfile.TemporaryDirectory(dir=out) as aside:
        found = duplicates.find(sketches, config["similarity"], Path(aside))
    marks = found.why == 0
    for shard in sketches.shards:
        shard.write(marks[shard.start : shard.start + len(shard.table)], out)
    _write_pairs(sketches, found, out)
    _tally(config, sketches, found).write(out)
    if not marks[sketches.held :].any():
        raise BadText(
            "no document of the train split is left: all are duplicates of the validation split; "
            "split the text another way"
        )


def reasons(sketches: Sketches, found: Found) -> Iterator[tuple[int, str]]:
    """(document, why it is left out, in words), in order."""
    for document in np.flatnonzero(found.why):
        of_held = found.kept[document] < sketches.held <= document
        yield int(document), WORDS[Why(found.why[document])] + HELD * bool(of_held)


def _write_pairs(sketches: Sketches, found: Found, out: Path) -> None:
    with (out / PAIRS).open("w", encoding="utf-8") as file:
        for document, reason in reasons(sketches, found):
            line = {
                "dropped": sketches.known(document),
                "kept": sketches.known(int(found.kept[document])),
                "similarity": round(float(found.similarity[document]), 4),
                "why": reason,
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _tally(config: Mapping[str, Any], sketches: Sketches, found: Found) -> reports.Tally:
    tally = reports.Tally()
    for shard in sketches.shards:
        shard.count_kept(found.why[shard.start : shard.start + len(shard.table)] == 0, tally)
    tally.left_out.update(reason for _, reason in reasons(sketches, found))
    if config["similarity"] is not None:
        tally.counted["pairs that were compared"] = found.compared
        tally.counted["kept documents that were not remembered under a crowded band"] = (
            found.crowded
        )
    tally.alarm_at_losses(config["alarm_above"], LEAST)
    return tally
