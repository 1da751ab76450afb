"""Seconds to leave out the near-duplicates of 100,000 documents: `python -m tests.bench.dedup`. The
lab's step `dedup`, beside `datasketch` and beside MinHash as text-dedup computes it (NumPy, a
digest of each band, union-find; written here, because text-dedup brings a whole of other tools).
All sides read the same files, use shingles of three words and 26 bands of 11 MinHashes, compute
them in two processes, and write the documents that they keep. All keep the same.

Then the lab's step is asked for planted pairs of many similarities, whose truth is counted without
any hashes: recall and precision. Writes `results/dedup.json` and `dedup.md`."""

import argparse
import hashlib
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.cpu import CORES, RESULTS, machine, wait_for_quiet

GOAL = 5.0  # how many times as fast as the others the lab is to be
SIDES = ("the lab", "datasketch", "as text-dedup")
PERMUTATIONS, BANDS, ROWS = 286, 26, 11
WORDS, KNOWN = 200, 30_000  # of a document; of the language
SHARDS = 8
CONFIG = {"similarity": 0.8, "alarm_above": 1.0}


class Language:
    """Texts of words whose frequencies follow Zipf's law."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        lengths = self.random.integers(3, 10, KNOWN)
        self.words = ["".join(self.random.choice(letters, size)) for size in lengths]
        weights = 1 / np.arange(1, KNOWN + 1)
        self.ends = np.cumsum(weights / weights.sum())

    def text(self, count: int = WORDS) -> list[str]:
        """A text of so many words."""
        drawn = np.searchsorted(self.ends, self.random.random(count))
        return [self.words[min(at, KNOWN - 1)] for at in drawn]

    def edited(self, words: list[str], edits: int) -> list[str]:
        """The text with so many words replaced, anywhere."""
        changed = list(words)
        for at in self.random.choice(len(words), edits, replace=False):
            changed[at] = self.words[int(self.random.integers(KNOWN))]
        return changed


def prepare(count: int, folder: Path, seed: int = 0) -> set[str]:
    """Write a text of `count` documents, of which a fifth are copies of earlier ones with up to two
    words replaced: a similarity of 0.94 or more. Returns the ids of the copies."""
    language, planted = Language(seed), set[str]()
    originals = list[list[str]]()
    folder.mkdir()
    files = [(folder / f"train.{n:05d}.jsonl").open("w") for n in range(SHARDS)]
    for number in range(count):
        if number % 5 == 4:
            words = originals[int(language.random.integers(len(originals)))]
            words = language.edited(words, int(language.random.integers(3)))
            planted.add(str(number))
        else:
            originals.append(words := language.text())
        line = {"id": str(number), "text": " ".join(words), "source": "generated"}
        files[number * SHARDS // count].write(json.dumps(line) + "\n")
    for file in files:
        file.close()
    (folder / "validation.jsonl").write_text('{"id": "held", "text": "held out"}\n')
    return planted


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The documents of a file."""
    with path.open() as file:
        yield from map(json.loads, file)


def kept_ids(folder: Path) -> set[str]:
    """The ids of the documents that a side kept."""
    return {line["id"] for path in sorted(folder.glob("train*.jsonl")) for line in read(path)}


# ── The sides ────────────────────────────────────────────────────────────────────────────────


def by_the_lab(folder: Path, out: Path, pool: ProcessPoolExecutor) -> None:
    """The step, with a process for each of two shards at a time."""
    from runner.worker.texts import dedup
    from runner.worker.texts.shards import shards

    parts = {name: out / "parts" / name for name in shards(folder)}
    for part in parts.values():
        part.mkdir(parents=True)
    inputs = [{"shards": {name: path}} for name, path in shards(folder).items()]
    list(pool.map(dedup.sketch_shards, [CONFIG] * len(parts), inputs, parts.values()))
    dedup.join(CONFIG, {"text": folder, "parts": parts}, out)
    shutil.rmtree(out / "parts")


def shingles(text: str) -> set[bytes]:
    """Runs of three words."""
    words = text.lower().split()
    return {" ".join(run).encode() for run in zip(words, words[1:], words[2:], strict=False)}


def datasketches(path: Path) -> list[tuple[str, Any]]:
    """(id, LeanMinHash) of each document of a shard."""
    from datasketch import LeanMinHash, MinHash

    found = []
    for line in read(path):
        sketch = MinHash(num_perm=PERMUTATIONS, seed=1)
        sketch.update_batch(shingles(line["text"]))
        found.append((line["id"], LeanMinHash(sketch)))
    return found


def by_datasketch(folder: Path, out: Path, pool: ProcessPoolExecutor) -> None:
    """A document is kept if the index has none like it yet."""
    from datasketch import MinHashLSH

    index = MinHashLSH(num_perm=PERMUTATIONS, params=(BANDS, ROWS))
    paths = sorted(folder.glob("train*.jsonl"))
    dropped = set()
    for sketches in pool.map(datasketches, paths):
        for name, sketch in sketches:
            if index.query(sketch):
                dropped.add(name)
            else:
                index.insert(name, sketch, check_duplication=False)
    write(paths, dropped, out)


PRIME = np.uint64((1 << 61) - 1)
RANDOM = np.random.RandomState(42)
FACTORS = RANDOM.randint(1, int(PRIME), (PERMUTATIONS, 2), np.uint64)


def band_digests(path: Path) -> list[tuple[str, list[bytes]]]:
    """(id, the bytes of each band) of each document of a shard, as text-dedup 0.4 computes them."""
    found = []
    for line in read(path):
        hashes = np.array(
            [
                struct.unpack("<I", hashlib.sha1(one).digest()[:4])[0]
                for one in shingles(line["text"])
            ],
            np.uint64,
        )
        permuted = (hashes[:, None] * FACTORS[:, 0] + FACTORS[:, 1]) % PRIME
        least = (permuted & np.uint64(0xFFFFFFFF)).min(axis=0).astype(np.uint32)
        bands = least.reshape(BANDS, ROWS).byteswap()
        found.append((line["id"], [band.tobytes() for band in bands]))
    return found


def by_union_find(folder: Path, out: Path, pool: ProcessPoolExecutor) -> None:
    """Documents that share a band are one cluster, whose first is kept."""
    paths = sorted(folder.glob("train*.jsonl"))
    tables = [defaultdict[bytes, list[int]](list) for _ in range(BANDS)]
    names = list[str]()
    for digests in pool.map(band_digests, paths):
        for name, bands in digests:
            for table, band in zip(tables, bands, strict=True):
                table[band].append(len(names))
            names.append(name)
    parents = list(range(len(names)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    for table in tables:
        for cluster in table.values():
            for other in cluster[1:]:
                one, two = sorted((root(cluster[0]), root(other)))
                parents[two] = one
    write(paths, {name for number, name in enumerate(names) if root(number) != number}, out)


def write(paths: Iterable[Path], dropped: set[str], out: Path) -> None:
    """Write the documents that are kept."""
    for path in paths:
        with (out / path.name).open("w") as file:
            file.writelines(
                json.dumps(line) + "\n" for line in read(path) if line["id"] not in dropped
            )


BY = dict(zip(SIDES, (by_the_lab, by_datasketch, by_union_find), strict=True))


def side(name: str, folder: Path, out: Path) -> float:
    """Seconds of one turn of one side, from files to files."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    os.environ |= {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with ProcessPoolExecutor(CORES, get_context("spawn")) as pool:
        list(pool.map(abs, range(CORES)))  # so that both are started
        began = time.perf_counter()
        BY[name](folder, out, pool)
        return time.perf_counter() - began


def measure(count: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Seconds of each side in each round, each in a process of its own. Raises SystemExit unless
    all keep the same documents."""
    planted = prepare(count, folder / "text")
    found: dict[str, list[float]] = {name: [] for name in SIDES}
    for number in range(rounds):
        shift = number % len(SIDES)
        for name in SIDES[shift:] + SIDES[:shift]:
            out = folder / "out"
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            wait_for_quiet()
            command = [sys.executable, "-m", "tests.bench.dedup", "side", name]
            answer = subprocess.run(
                [*command, str(folder / "text"), str(out)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            found[name].append(round(float(answer.split()[-1]), 3))
            print(f"round {number + 1} {name}: {found[name][-1]:.1f} s", flush=True)
            every = {str(n) for n in range(count)}
            if (dropped := every - kept_ids(out)) != planted:
                wrong = sorted(dropped ^ planted)[:5]
                raise SystemExit(f"{name} leaves out others than were planted: {wrong}")
    return {"documents": count, "planted": len(planted), "seconds": found}


# ── Recall and precision ─────────────────────────────────────────────────────────────────────


def recall(originals: int, folder: Path) -> list[dict[str, Any]]:
    """What the lab's step finds of pairs that were planted, by their similarity: `originals` texts,
    and a copy of each with 0 to 24 of its 200 words replaced."""
    from runner.worker.texts import dedup

    language = Language(1)
    texts = [language.text() for _ in range(originals)]
    copies = [language.edited(words, number % 25) for number, words in enumerate(texts)]
    (folder / "text").mkdir()
    (folder / "out").mkdir()
    with (folder / "text/train.jsonl").open("w") as file:
        for number, words in enumerate([*texts, *copies]):
            file.write(json.dumps({"id": str(number), "text": " ".join(words)}) + "\n")
    (folder / "text/validation.jsonl").write_text('{"text": "held out"}\n')
    dedup.deduplicate(CONFIG, {"text": folder / "text"}, folder / "out")
    pairs = {int(line["dropped"]): int(line["kept"]) for line in read(folder / "out/pairs.jsonl")}
    rows: dict[str, dict[str, Any]] = {}
    for number, (words, copy) in enumerate(zip(texts, copies, strict=True)):
        one, other = shingles(" ".join(words)), shingles(" ".join(copy))
        similarity = len(one & other) / len(one | other)
        of = next(f"{at / 100:.2f}" for at in (95, 90, 85, 80, 75, 70, 0) if similarity >= at / 100)
        row = rows.setdefault(of, {"from": float(of), "pairs": 0, "found": 0, "wrong": 0})
        row["pairs"] += 1
        row["found"] += pairs.get(originals + number) == number
        wrong = originals + number in pairs and pairs[originals + number] != number
        row["wrong"] += wrong or number in pairs
    return sorted(rows.values(), key=lambda row: -row["from"])


def table(results: dict[str, Any]) -> str:
    """The figures in Markdown."""
    found = results["dedup"]
    lines = [
        f"{found['documents']:,} documents, of which {found['planted']:,} are copies; all sides "
        "leave out exactly these",
        "",
        "| side | least | median | the lab is faster by |",
        "| --- | ---: | ---: | ---: |",
    ]
    medians = {name: statistics.median(seconds) for name, seconds in found["seconds"].items()}
    for name, median in medians.items():
        lines.append(
            f"| {name} | {min(found['seconds'][name]):.1f} s | {median:.1f} s "
            f"| {median / medians[SIDES[0]]:.1f}× |"
        )
    lines += [
        "",
        "| Jaccard similarity of the pair, from | pairs | found | recall | wrong |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in results["recall"]:
        lines.append(
            f"| {row['from']:.2f} | {row['pairs']:,} | {row['found']:,} "
            f"| {row['found'] / row['pairs']:.4f} | {row['wrong']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=25_000)
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": machine("rensa", "datasketch")}
    with tempfile.TemporaryDirectory() as folder:
        results["recall"] = recall(options.pairs, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        results["dedup"] = measure(options.documents, options.rounds, Path(folder))
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "dedup.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "dedup.md").write_text(table(results))
    print(table(results))
    medians = {
        name: statistics.median(seconds) for name, seconds in results["dedup"]["seconds"].items()
    }
    if any(medians[name] < GOAL * medians[SIDES[0]] for name in SIDES[1:]):
        sys.exit(f"the lab is not {GOAL:g}× as fast")


if __name__ == "__main__":
    if sys.argv[1:2] == ["side"]:
        print(side(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
    else:
        main()
