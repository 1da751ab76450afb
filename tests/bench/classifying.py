"""Seconds to learn a classifier of documents and to score others with it, beside fastText:
`python -m tests.bench.classifying`. The documents are real: docstrings of Python's standard library
against the bodies of its functions, each at most once, split by `held_out.part_of` as the step
`classify` does. Both sides learn from the same eight tenths and score the same documents: those of
the test, for the AUC, and all of them several times, for the time. Both have two cores to learn. A
core each scores (`classify` has one process for each shard, and fastText's `predict` one thread).
Writes `results/classifying.json` and `classifying.md`."""

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from runner.worker.selection import held_out
from tests.bench.cpu import CORES, RESULTS, machine, wait_for_quiet

GOAL = 1.0  # how much faster than fastText, to learn and to score, at an equal AUC or a better one
SIDES = ("lab", "fastText")
SHORTEST = 120  # characters of a document
MOST = 5000  # documents of either kind
PASSES = 8  # over all documents, to score
BUCKETS = 2**20


def documents(root: Path, most: int = MOST) -> Iterator[tuple[str, bool]]:
    """(text, whether it is a docstring): as many of either kind, in the order of their files."""
    found: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for path in sorted(root.rglob("*.py")):
        if "site-packages" in path.parts or "test" in path.parts:
            continue
        try:
            lines = (source := path.read_text()).splitlines()
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                said = ast.get_docstring(node)
                body = node.body[1:] if said else node.body
                found[True][said or ""] = None
                if body and isinstance(node, ast.FunctionDef):
                    found[False]["\n".join(lines[body[0].lineno - 1 : body[-1].end_lineno])] = None
    kinds = [[one for one in of if len(one) >= SHORTEST] for of in found.values()]
    count = min(most, *map(len, kinds))
    for pair in zip(*(of[:: len(of) // count][:count] for of in kinds), strict=True):
        yield from zip(pair, (True, False), strict=True)


def prepare(root: Path, folder: Path, most: int = MOST) -> dict[str, int]:
    """Write the documents of each part, and fastText's file of those to learn from."""
    parts: dict[str, list[tuple[str, bool]]] = {"learn": [], "calibrate": [], "test": []}
    for number, one in enumerate(documents(root, most)):
        parts[held_out.part_of(str(number))].append(one)
    for part, rows in parts.items():
        (folder / f"{part}.json").write_text(json.dumps(rows))
    with (folder / "learn.txt").open("w") as file:
        for text, positive in parts["learn"]:
            file.write(f"__label__{int(positive)} {one_line(text)}\n")
    return {part: len(rows) for part, rows in parts.items()}


def one_line(text: str) -> str:
    """The document as fastText reads it."""
    return " ".join(text.split())


def read(folder: Path, part: str) -> tuple[list[str], np.ndarray]:
    """The documents of a part, and which of them are docstrings."""
    rows = json.loads((folder / f"{part}.json").read_text())
    return [text for text, _ in rows], np.array([positive for _, positive in rows])


def by_the_lab(folder: Path) -> tuple[float, float, np.ndarray]:
    """Seconds to learn and to score, and the scores of the test."""
    from runner.spec.selection_steps import Classify
    from runner.worker.selection import linear_classifier

    config = Classify().model_dump(mode="json")["linear"]
    learned, labels = read(folder, "learn")
    every = [text for part in ("learn", "calibrate", "test") for text in read(folder, part)[0]]
    (out := folder / "lab").mkdir(exist_ok=True)
    began = time.perf_counter()
    linear_classifier.learn(config, {}, lambda: learned, labels.astype(float), out, 0)
    ended = time.perf_counter()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    scorer = linear_classifier.scorer(config, {}, out)
    scored = time.perf_counter()
    for _ in range(PASSES):
        for batch in scorer.batches(every):
            scorer.scores(batch)
    seconds = time.perf_counter() - scored
    tested = [scorer.scores(batch) for batch in scorer.batches(read(folder, "test")[0])]
    return ended - began, seconds, np.concatenate(tested)


def by_fasttext(folder: Path) -> tuple[float, float, np.ndarray]:
    """The same, with its defaults but for word bigrams and our number of buckets."""
    import fasttext

    parts = ("learn", "calibrate", "test")
    every = [one_line(text) for part in parts for text in read(folder, part)[0]]
    began = time.perf_counter()
    model = fasttext.train_supervised(
        str(folder / "learn.txt"), wordNgrams=2, bucket=BUCKETS, thread=CORES, verbose=0
    )
    ended = time.perf_counter()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])

    def scores(texts: list[str]) -> np.ndarray:
        labels, chances = model.predict(texts)
        first = np.array([label[0] == "__label__1" for label in labels])
        found = np.array([chance[0] for chance in chances])
        return np.where(first, found, 1 - found)

    scored = time.perf_counter()
    for _ in range(PASSES):
        scores(every)
    seconds = time.perf_counter() - scored
    return ended - began, seconds, scores([one_line(x) for x in read(folder, "test")[0]])


def side(name: str, folder: Path) -> dict[str, float]:
    """One turn of one side."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    learn, score, scores = (by_the_lab if name == "lab" else by_fasttext)(folder)
    _, positive = read(folder, "test")
    (auc,) = held_out.auc(scores, positive)
    return {"learn": learn, "score": score, "auc": float(auc)}


def measure(root: Path, rounds: int, folder: Path) -> dict[str, Any]:
    """Seconds and AUC of each side in each round, each in a process of its own."""
    counts = prepare(root, folder)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SIDES}
    for number in range(rounds):
        for name in SIDES[:: 1 if number % 2 else -1]:
            wait_for_quiet()
            command = [sys.executable, "-m", "tests.bench.classifying", "side", name, str(folder)]
            threads = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            answer = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, env=threads
            )
            found[name].append(json.loads(answer.stdout))
            print(f"round {number + 1} {name}: {found[name][-1]}", flush=True)
    size = sum(len(x.encode()) for part in counts for x in read(folder, part)[0])
    return {"documents": counts, "scored_bytes": size * PASSES, "rounds": found}


def medians(found: dict[str, Any], what: str) -> dict[str, float]:
    return {
        name: statistics.median(one[what] for one in of) for name, of in found["rounds"].items()
    }


def table(found: dict[str, Any]) -> str:
    """The figures in Markdown."""
    learn, score, auc = (medians(found, what) for what in ("learn", "score", "auc"))
    size = found["scored_bytes"] / 1e6
    lines = [
        f"{found['documents']['learn']:,} documents to learn from, {found['documents']['test']:,} "
        f"to test, {size:,.0f} MB to score",
        "",
        "| side | learn | score | MB/s | AUC |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in SIDES:
        lines.append(
            f"| {name} | {learn[name]:.2f} s | {score[name]:.2f} s | {size / score[name]:.1f} "
            f"| {auc[name]:.4f} |"
        )
    faster = [of["fastText"] / of["lab"] for of in (learn, score)]
    lines += ["", f"The lab is {faster[0]:.2f}× as fast to learn and {faster[1]:.2f}× to score."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(sysconfig.get_paths()["stdlib"])
        found = measure(root, options.rounds, Path(folder))
    results = {"machine": machine("numpy", "scipy", "fasttext-numpy2"), "classifying": found}
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "classifying.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "classifying.md").write_text(table(found))
    print(table(found))
    learn, score, auc = (medians(found, what) for what in ("learn", "score", "auc"))
    if any(of["fastText"] < GOAL * of["lab"] for of in (learn, score)):
        sys.exit(f"the lab is not {GOAL}× as fast")
    if auc["lab"] < auc["fastText"]:
        sys.exit("the lab's AUC is lower")


if __name__ == "__main__":
    if sys.argv[1:2] == ["side"]:
        print(json.dumps(side(sys.argv[2], Path(sys.argv[3]))))
    else:
        main()
