"""The step that leaves out training documents that have items of benchmarks, or passages of a
held-out text. What counts are runs of 13 words without punctuation and capitals, so it does not
matter how lines are wrapped, or escaped as in JSON. An item or a paragraph with fewer words has
none and is never found.

A process reads what to look for (`learn`), others find it in some shards each (`match_shards`), and
`join` decides on each document: only then it is known which 13-grams are boilerplate."""

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.data import shingles
from engine.data.documents import whole_documents
from engine.data.lab_texts import BadText
from runner.spec.benchmarks import FILE, name_of
from runner.spec.step_types import KEPT
from runner.spec.task_items import Answer, Choice, Function, Item, items_of
from runner.worker.texts import reports
from runner.worker.texts.attributes import identity
from runner.worker.texts.shards import SPLITS, of_split, shards
from runner.worker.texts.sketches import Shard, Sketches, sketch

WORDS = 13  # of an n-gram
ESCAPED = re.compile(r"\\(?:[nrt]|u([0-9a-f]{4}))")  # as JSON and code write characters
FEW = 20  # training documents that may share an n-gram that is not boilerplate
HELD_OUT = "the held-out text"
PASSAGE = f"it has a passage of {HELD_OUT}"
FOUND = "contaminated.jsonl"
NAMES = "names.jsonl"


def decontaminate(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Leave out contaminated documents; each shard gives a shard. Raises BadText."""
    with tempfile.TemporaryDirectory(dir=out) as aside:
        learn(config, inputs, Path(aside))
        every = {**inputs, "first": Path(aside)}
        match_shards(config, {**every, "shards": shards(inputs["text"])}, Path(aside))
        join(config, {**every, "parts": {"": Path(aside)}}, out)


# ── What to look for ─────────────────────────────────────────────────────────────────────────


class Passage(NamedTuple):
    """An item or a paragraph."""

    of: str  # the task, or HELD_OUT
    name: str
    text: str


def passages(config: Mapping[str, Any], inputs: Mapping[str, Path]) -> Iterator[Passage]:
    """All items of the tasks, and all paragraphs of the validation split of `held_out`."""
    for task in config["tasks"]:
        name = name_of(task)
        _, items = items_of((inputs[KEPT] / f"{name}{FILE}").read_bytes(), task)
        for number, item in enumerate(items, 1):
            yield Passage(name, f"{name}, item {number}", text_of(item))
    if "held_out" not in inputs:
        return
    for shard, path in shards(inputs["held_out"]).items():
        if of_split(SPLITS[0], shard):
            continue
        for number, document in enumerate(whole_documents(path), 1):
            known = identity(document, shard, number)
            for at, paragraph in enumerate(re.split(r"\n\s*\n", document["text"]), 1):
                yield Passage(HELD_OUT, f"{known}, paragraph {at}", paragraph)


def text_of(item: Item) -> str:
    """An item with its right answer."""
    if isinstance(item, Choice):
        return item.context + item.choices[item.answer]
    if isinstance(item, Answer):
        return item.prompt + item.answer
    if isinstance(item, Function):
        return item.prompt + item.canonical_solution
    return item.text


def grams(normals: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The 13-grams of normalised texts: uint64, each once for a text and sorted; and how many each
    text has."""
    words, counts = shingles.words([ESCAPED.sub(_unescaped, normal) for normal in normals])
    every, many = shingles.shingles_of_each(words, counts, WORDS)
    parts = np.split(every, np.cumsum(many)[:-1])
    found = [
        shingles.each_once(part) if count >= WORDS else part[:0]
        for part, count in zip(parts, counts, strict=True)
    ]
    return np.concatenate(found), np.array([len(one) for one in found])


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)).casefold() if found[1] else " "


class Wanted(NamedTuple):
    """The 13-grams of all passages. `owners[starts[n] : starts[n + 1]]` are the passages that have
    the n-gram `grams[n]`."""

    grams: np.ndarray  # uint64, sorted, each once
    starts: np.ndarray  # int64, [grams + 1]
    owners: np.ndarray  # int64
    passages: int

    def found_in(self, normals: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the n-grams that normalised texts have: uint32; and how many each has."""
        mine, counts = grams(normals)
        if not len(self.grams):
            return np.empty(0, np.uint32), np.zeros(len(normals), np.int64)
        at = np.searchsorted(self.grams, mine)
        at[at == len(self.grams)] = 0
        wanted = self.grams[at] == mine
        owners = np.repeat(np.arange(len(counts)), counts)
        return at[wanted].astype(np.uint32), np.bincount(owners[wanted], minlength=len(counts))


def learn(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Write what to look for. Raises BadText."""
    of, owner = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    count = 0
    with (out / NAMES).open("w", encoding="utf-8") as names:
        for count, passage in enumerate(passages(config, inputs), 1):
            mine, _ = grams([shingles.normalised(passage.text)])
            of.append(mine)
            owner.append(np.full(len(mine), count - 1))
            line = json.dumps([passage.of, passage.name, len(mine)])
            names.write(line + "\n")
    every = np.concatenate(of)
    order = np.argsort(every, kind="stable")
    found, starts = np.unique(every[order], return_index=True)
    np.save(out / "grams.npy", found)
    np.save(out / "starts.npy", np.append(starts, len(every)))
    np.save(out / "owners.npy", np.concatenate(owner)[order])


def _wanted(folder: Path) -> Wanted:
    grams, starts, owners = (
        np.load(folder / f"{name}.npy", allow_pickle=False)
        for name in ("grams", "starts", "owners")
    )
    with (folder / NAMES).open("rb") as names:
        return Wanted(grams, starts, owners, sum(1 for _ in names))


# ── Where it is ──────────────────────────────────────────────────────────────────────────────


def match_shards(_: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """Find what `learn` wrote to the input `first` in the input `shards`, {name: file}."""
    wanted = _wanted(inputs["first"])
    for name, path in inputs["shards"].items():
        numbers = wanted.found_in if of_split(SPLITS[0], name) else None
        sketch(name, path, out, numbers, banded=False)


def join(config: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """Decide on each document that `match_shards` wrote to the folders of the input `parts`, and
    write what is kept. Raises BadText."""
    wanted = _wanted(inputs["first"])
    names = [json.loads(line) for line in (inputs["first"] / NAMES).open(encoding="utf-8")]
    sketches = Sketches(shards(inputs["text"]), inputs["parts"].values())
    common = _common(config, sketches, wanted)
    sizes = _owners(wanted, np.flatnonzero(~common))
    sizes = np.bincount(sizes, minlength=wanted.passages)  # n-grams of each that count
    tally, seen = reports.Tally(), np.zeros(wanted.passages, bool)
    with (out / FOUND).open("w", encoding="utf-8") as file:
        for shard in sketches.shards:
            kept = np.ones(len(shard.table), bool)
            for document, passage, hits in found(config, shard, wanted, common, sizes):
                seen[passage] = True
                if not kept[document]:
                    continue  # its best passage is the first
                kept[document] = False
                of, name, _ = names[passage]
                tally.left_out[f"it has an item of {of}" if of != HELD_OUT else PASSAGE] += 1
                line = {
                    "dropped": sketches.known(shard.start + document),
                    "of": of,
                    "passage": name,
                    "share": round(hits / int(sizes[passage]), 4),
                    "hits": hits,
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            shard.write(kept, out)
            shard.count_kept(kept, tally)
    _count(tally, names, sizes, seen, int(common.sum()))
    tally.alarm_at_losses()
    tally.write(out)
    if sketches.held + sum(tally.left_out.values()) == sketches.count:
        raise BadText(
            "no document of the train split is left: all have what was looked for; raise `share`"
        )


def _owners(wanted: Wanted, chosen: np.ndarray) -> np.ndarray:
    """The passages that have these n-grams, as often as they have one of them."""
    starts, lengths = wanted.starts[chosen], wanted.starts[chosen + 1] - wanted.starts[chosen]
    ends = np.cumsum(lengths)
    inside = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    return wanted.owners[np.repeat(starts, lengths) + inside]


def _hits(shard: Shard) -> tuple[np.ndarray, np.ndarray]:
    """(document, n-gram) for each n-gram that a document of a shard has."""
    ends: np.ndarray = shard.table["words"].astype(np.int64)
    counts = ends - np.append(0, ends[:-1])
    return np.repeat(np.arange(len(counts)), counts), np.fromfile(shard.file("words"), "<u4")


def _common(config: Mapping[str, Any], sketches: Sketches, wanted: Wanted) -> np.ndarray:
    """Whether each n-gram is boilerplate: in too many training documents."""
    counts = np.zeros(len(wanted.grams), np.int64)
    for shard in sketches.shards:
        counts += np.bincount(_hits(shard)[1], minlength=len(counts))
    most = max(FEW, config["common_above"] * (sketches.count - sketches.held))
    return counts > most


def found(
    config: Mapping[str, Any],
    shard: Shard,
    wanted: Wanted,
    common: np.ndarray,
    sizes: np.ndarray,
) -> Iterator[tuple[int, int, int]]:
    """(document, passage, n-grams of it that the document has) for each passage that a document of
    the shard has: by document, the passage with the largest share first."""
    documents, of = _hits(shard)
    counts = ~common[of]
    documents, of = documents[counts], of[counts]
    each = np.repeat(documents, wanted.starts[of + 1] - wanted.starts[of])
    pairs, hits = np.unique(each * wanted.passages + _owners(wanted, of), return_counts=True)
    documents, owners = np.divmod(pairs, max(1, wanted.passages))
    shares = hits / np.maximum(sizes[owners], 1)
    enough = shares >= config["share"]
    if config["hits"] is not None:
        enough |= hits >= config["hits"]
    for at in np.lexsort((owners, -shares, documents)):
        if enough[at]:
            yield int(documents[at]), int(owners[at]), int(hits[at])


def _count(
    tally: reports.Tally, names: list[Any], sizes: np.ndarray, seen: np.ndarray, common: int
) -> None:
    """Count the items by task: how many there were, how many were found, and which could not be."""
    every, there, short, boilerplate = (
        Counter[str](),
        Counter[str](),
        Counter[str](),
        Counter[str](),
    )
    for (of, _, length), size, was_seen in zip(names, sizes.tolist(), seen.tolist(), strict=True):
        every[of] += 1
        there[of] += was_seen
        short[of] += length == 0
        boilerplate[of] += 2 * size < length
    for of in every:
        what = "paragraphs of the held-out text" if of == HELD_OUT else f"items of {of}"
        tally.counted[what] = every[of]
        tally.counted[f"{what} that the text had"] = there[of]
        tally.counted[f"{what} with fewer than {WORDS} words, which cannot be found"] = short[of]
        if boilerplate[of]:
            tally.alarms.append(
                f"{boilerplate[of]:,} {what} are boilerplate by at least a half: more training "
                "documents have it than `common_above` allows. Documents that have them may be "
                "left in the text."
            )
    tally.counted[f"{WORDS}-grams that are boilerplate"] = common
