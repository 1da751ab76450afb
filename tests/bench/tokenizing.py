"""Seconds to tokenize 200 MB beside Hugging Face's `datasets`: `python -m tests.bench.tokenizing
[TEXT]`. The same documents, the same `tokenizer.json`, the same two cores. The engine builds a
token store (read, encoded, digested, written); `datasets` has read the documents before its clock
starts and maps over them with the `tokenizers` library itself, in two processes or in one with the
library's threads. All ids are compared. Writes `results/tokenizing.json` and `tokenizing.md`."""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.data.lab_texts import read_text
from engine.data.tokenize import train_bpe
from tests.bench.cpu import CORES, RESULTS, machine, wait_for_quiet

GOAL = 1.5  # how much faster the engine is to be than `datasets`
VOCABULARY = 4096
DOCUMENT = 4000  # characters, about
SIDES = ("engine", "datasets, 2 processes", "datasets, 1 process")


def documents(text: str, size: int) -> Iterator[str]:
    """Documents of the text's lines, again and again until they are `size` bytes of UTF-8. Each
    time but the first, words of nine letters and more get the pass's number, so that no pass is
    only known words."""
    number = written = 0
    while True:
        again = f"\\g<0>{number}" if number else r"\g<0>"
        lines: list[str] = []
        length = 0
        for line in re.sub(r"\b[A-Za-z]{9,}\b", again, text).splitlines(keepends=True):
            lines.append(line)
            length += len(line)
            if length >= DOCUMENT:
                document = "".join(lines)
                yield document
                lines, length = [], 0
                written += len(document.encode())
                if written >= size:
                    return
        number += 1


def prepare(text: str, size: int, folder: Path) -> int:
    """Write `documents.jsonl` and `tokenizer.json`; the bytes of all documents."""
    total = 0
    with (folder / "documents.jsonl").open("w", encoding="utf-8") as file:
        for document in documents(text, size):
            file.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
            total += len(document.encode())
    train_bpe(documents(text, min(size, 5_000_000)), VOCABULARY).save(folder / "tokenizer.json")
    return total


def by_the_engine(folder: Path, out: Path) -> float:
    """Seconds in which the engine builds a token store."""
    from engine.data import documents as reading
    from engine.data.token_store import TokenStore
    from engine.data.tokenize import END, load_tokenizer

    tokenizer = load_tokenizer(folder / "tokenizer.json", end_of_document=END)
    began = time.perf_counter()
    TokenStore.build(out, reading.documents(folder / "documents.jsonl"), tokenizer)
    return time.perf_counter() - began


def by_datasets(folder: Path, out: Path, processes: int | None) -> float:
    """Seconds in which `datasets` maps the tokenizer over documents that it has read before."""
    import datasets
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    # The engine looks at the name of a special token in a text as at any other words.
    tokenizer.encode_special_tokens = True
    files = str(folder / "documents.jsonl")
    read = datasets.load_dataset("json", data_files=files, split="train", cache_dir=str(out))

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        encodings = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"ids": [encoding.ids for encoding in encodings]}

    began = time.perf_counter()
    mapped = read.map(encode, batched=True, num_proc=processes, remove_columns=["text"])
    seconds = time.perf_counter() - began
    (out / "files.json").write_text(json.dumps([file["filename"] for file in mapped.cache_files]))
    return seconds


def same_ids(store: Path, mapped: Path) -> int:
    """How many ids both sides have. Raises SystemExit unless they are the same in each document."""
    import numpy as np
    import pyarrow as pa

    from engine.data.token_store import TokenStore

    ours = TokenStore.open(store)
    tokens = np.concatenate(list(ours.tokens_in_parts()))
    ends = np.concatenate(list(ours.offsets_in_parts()))[1:].astype(np.int64)
    assert (tokens[ends - 1] == ours.manifest.end_of_document).all()
    start = document = 0  # of our tokens and documents, which go on from file to file
    for name in json.loads((mapped / "files.json").read_text()):
        for batch in pa.ipc.open_stream(pa.memory_map(name)):
            column = batch.column("ids")
            lengths = column.value_lengths().to_numpy()
            here = ends[document : document + len(lengths)]
            firsts = np.concatenate([[start], here[:-1]])
            end = int(here[-1])
            inside = np.delete(tokens[start:end], here - 1 - start)
            same = (here - 1 - firsts == lengths).all()
            if not same or not np.array_equal(inside, column.flatten().to_numpy()):
                raise SystemExit(f"from document {document} on the sides have other ids")
            start, document = end, document + len(lengths)
    if document != len(ends):
        raise SystemExit(f"one side has {document} documents and the other {len(ends)}")
    return len(tokens) - len(ends)


def measure(text: str, size: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Seconds of each side in each round, each in a process of its own."""
    total = prepare(text, size, folder)
    found: dict[str, list[float]] = {name: [] for name in SIDES}
    ids = 0
    for number in range(rounds):
        shift = number % len(SIDES)
        for name in SIDES[shift:] + SIDES[:shift]:
            out = folder / name
            shutil.rmtree(out, ignore_errors=True)
            wait_for_quiet()
            command = [sys.executable, "-m", "tests.bench.tokenizing", "side", name]
            answer = subprocess.run(
                [*command, str(folder), str(out)],
                env=environment(name, folder),
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            found[name].append(round(float(answer.split()[-1]), 3))
            print(f"round {number + 1} {name}: {found[name][-1]:.1f} s", flush=True)
        ids = same_ids(folder / SIDES[0], folder / SIDES[1])
        same_ids(folder / SIDES[0], folder / SIDES[2])
    return {"bytes": total, "ids": ids, "vocabulary": VOCABULARY, "seconds": found}


def environment(name: str, folder: Path) -> dict[str, str]:
    """Of a side: no network, and no threads in processes that are several."""
    return os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "home"),
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false" if "processes" in name else "true",
    }


def side(name: str, folder: Path, out: Path) -> float:
    """One turn of one side."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    if name == SIDES[0]:
        return by_the_engine(folder, out)
    return by_datasets(folder, out, 2 if name == SIDES[1] else None)


def table(results: dict[str, Any]) -> str:
    """The figures in Markdown."""
    found = results["tokenizing"]
    lines = [
        f"{found['bytes'] / 1e6:,.0f} MB, {found['ids']:,} ids, the same on all sides",
        "",
        "| side | least | median | MB/s | engine is faster by |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    medians = {name: statistics.median(seconds) for name, seconds in found["seconds"].items()}
    for name, median in medians.items():
        lines.append(
            f"| {name} | {min(found['seconds'][name]):.1f} s | {median:.1f} s "
            f"| {found['bytes'] / 1e6 / median:.1f} | {median / medians['engine']:.2f}× |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, nargs="?", help="else Python's own standard library")
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    text = options.text.read_text() if options.text else read_text("stdlib", None).train.decode()
    with tempfile.TemporaryDirectory() as folder:
        size = int(options.megabytes * 1e6)
        found = measure(text, size, options.rounds, Path(folder))
    results = {"machine": machine("tokenizers", "datasets"), "tokenizing": found}
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "tokenizing.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "tokenizing.md").write_text(table(results))
    print(table(results))
    medians = {name: statistics.median(seconds) for name, seconds in found["seconds"].items()}
    if any(medians[name] < GOAL * medians["engine"] for name in SIDES[1:]):
        sys.exit(f"the engine is not {GOAL}× as fast")


if __name__ == "__main__":
    if sys.argv[1:2] == ["side"]:
        print(side(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
    else:
        main()
