"""Extraction beside trafilatura: `python -m tests.bench.extracting PACKAGES`, a folder for packages
of Debian and npm, which are downloaded unless they are there.

Words: for each source, the pages that have gold (`extraction_gold`) are one shard of a text. The
step `extract` reads it as a lab would; trafilatura and resiliparse read page by page. A page's F1
is that of its bag of words against the gold: a word is what white space separates, in lower case
and with typographic quotes and dashes as in ASCII, if it has a letter or a digit. The order is
compared by pairs of words that follow each other (ROUGE-2), and words without their punctuation by
their runs of letters and digits. The table has the median over pages.

Pages of the web: with `--web FOLDER`, the `tests` of trafilatura's repository (commit e90b0ef5),
the step with trafilatura is scored as there, by what each page must have and must not have.

Speed: all these pages, in one process per core, the step and trafilatura in turn.

Writes `results/extracting.json` and `extracting.md`."""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.data.documents import whole_documents
from tests.bench.cpu import CORES, RESULTS, machine, wait_for_quiet
from tests.bench.extraction_gold import SOURCES, UNSEEN, gold
from tests.bench.gold_rest import LeftOut

WEB = 0.92  # the F1 on trafilatura's own pages that its step is to have
GOAL = 2  # how much faster the step is to be than trafilatura
PLACES = ("cache", "eval")  # of the pages in trafilatura's tests
FEWEST = 50  # words of gold of which a page has at least one
SIDES = ("extract", "trafilatura", "resiliparse")
MEASURES = ("F1", "precision", "recall", "ROUGE-2", "F1 of letters and digits")
_ASCII = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "--", "—": "---", "…": "...", "\xa0": " "}
)
_RUN = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """What white space separates and has a letter or a digit."""
    return [word for word in text.translate(_ASCII).lower().split() if _RUN.search(word)]


def overlap(found: Iterable[Any], wanted: Iterable[Any]) -> tuple[float, float, float]:
    """F1, precision and recall of one bag against the other."""
    ours, theirs = Counter(found), Counter(wanted)
    both = (ours & theirs).total()
    if not both:
        return 0.0, 0.0, 0.0
    precision, recall = both / ours.total(), both / theirs.total()
    return 2 * precision * recall / (precision + recall), precision, recall


def measured(text: str, wanted: str) -> list[float]:
    """The MEASURES of a text."""
    found, gold_words = words(text), words(wanted)
    pairs = overlap(pairwise(found), pairwise(gold_words))[0]
    runs = overlap(_RUN.findall(text.lower()), _RUN.findall(wanted.lower()))[0]
    return [*overlap(found, gold_words), pairs, runs]


# ── Sides ────────────────────────────────────────────────────────────────────────────────────


def by_extract(pages: Path, out: Path) -> None:
    """The step itself, on a text of one shard."""
    from runner.spec.data_steps import Extract
    from runner.worker.texts.extract import extract_shards

    settings = Extract(extractor="resiliparse").model_dump()  # as the lab proposes for such pages
    extract_shards(settings, {"shards": {"train": pages}}, out)


def one_by_one(read: Callable[[str], str | None]) -> Callable[[Path, Path], None]:
    """A side that reads page by page, and nothing from a page where it fails."""

    def side(pages: Path, out: Path) -> None:
        with (out / "train.jsonl").open("w", encoding="utf-8") as file:
            for document in whole_documents(pages):
                text = read(document["text"]) or ""
                file.write(json.dumps({"id": document["id"], "text": text}) + "\n")

    return side


def side(name: str) -> Callable[[Path, Path], None]:
    """Reads a shard of pages and writes `train.jsonl`."""
    if name == "trafilatura":
        import trafilatura

        return one_by_one(trafilatura.extract)
    if name == "resiliparse":
        from resiliparse.extract.html2text import extract_plain_text

        return one_by_one(lambda page: extract_plain_text(page, main_content=True))
    return by_extract


def run(name: str, shards: list[Path], folder: Path) -> tuple[float, list[Path]]:
    """Seconds in which a side reads these shards, each in a process of its own at the same time,
    and what they wrote. Imports do not count."""
    outs = [folder / f"{name}-{number}" for number in range(len(shards))]
    for out in outs:
        out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.bench.extracting", "side", name]
    children = [
        subprocess.Popen(
            [*command, str(shard), str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for shard, out in zip(shards, outs, strict=True)
    ]
    for child in children:
        assert child.stdout
        child.stdout.readline()
    began = time.perf_counter()
    for child in children:
        assert child.stdin
        child.stdin.close()
    if any(child.wait() for child in children):
        raise SystemExit(f"{name} failed")
    return time.perf_counter() - began, [out / "train.jsonl" for out in outs]


# ── Measurements ─────────────────────────────────────────────────────────────────────────────


def prepare(name: str, packages: Path, folder: Path, most: int) -> tuple[Path, dict[str, str]]:
    """A shard of a source's pages that have gold, and {id: gold}."""
    golds, shard = {}, folder / f"{name}.jsonl"
    with shard.open("w", encoding="utf-8") as file:
        for page, text in gold(SOURCES[name], packages):
            if isinstance(text, LeftOut) or len(words(text)) < FEWEST or len(golds) >= most:
                continue
            golds[page.name] = text
            html = page.html.read_bytes().decode(errors="replace")
            file.write(json.dumps({"id": page.name, "source": name, "text": html}) + "\n")
    return shard, golds


def quality(shard: Path, golds: dict[str, str], folder: Path) -> dict[str, list[float]]:
    """{side: the median of each of MEASURES}; a page that a side lost has 0 in all."""
    medians = {}
    for name in SIDES:
        _, (made,) = run(name, [shard], folder / shard.stem)
        found = {one["id"]: one["text"] for one in whole_documents(made)}
        rows = [measured(found.get(page, ""), wanted) for page, wanted in golds.items()]
        medians[name] = [round(statistics.median(column), 4) for column in zip(*rows, strict=True)]
    return medians


def speed(shards: list[Path], rounds: int, folder: Path) -> dict[str, list[float]]:
    """Seconds of the step and of trafilatura for all pages, in turn."""
    pages = [document for shard in shards for document in whole_documents(shard)]
    split = [folder / f"half{number}.jsonl" for number in range(CORES)]
    for number, path in enumerate(split):
        part = pages[number::CORES]
        path.write_text("".join(json.dumps(page) + "\n" for page in part), encoding="utf-8")
    found: dict[str, list[float]] = {name: [] for name in SIDES[:2]}
    for number in range(rounds):
        for name in SIDES[:2] if number % 2 else SIDES[1::-1]:
            wait_for_quiet()
            found[name].append(round(run(name, split, folder / f"round{number}")[0], 2))
            print(f"round {number + 1} {name}: {found[name][-1]:.1f} s", flush=True)
    return found


def web(folder: Path) -> dict[str, float]:
    """Precision, recall and F1 on the labelled pages of trafilatura's tests, by its own rules."""
    from engine.data.web_encodings import decoded
    from runner.worker.texts.page_text import Unreadable, read

    right = wrong = missing = 0
    for page in json.loads((folder / "evaldata.json").read_text()).values():
        path = next(
            folder / at / page["file"] for at in PLACES if (folder / at / page["file"]).is_file()
        )
        try:
            text = read(decoded(path.read_bytes()) or "", "trafilatura", False).text
        except Unreadable:
            text = ""
        there = [_spaced(part) in _spaced(text) for part in page["with"]]
        right, missing = right + sum(there), missing + len(there) - sum(there)
        wrong += sum(_spaced(part) in _spaced(text) for part in page["without"])
    precision, recall = right / (right + wrong), right / (right + missing)
    f1 = 2 * precision * recall / (precision + recall)
    return {"precision": round(precision, 4), "recall": round(recall, 4), "F1": round(f1, 4)}


def _spaced(text: str) -> str:
    return " ".join(text.split())


def table(results: dict[str, Any]) -> str:
    """The figures in Markdown."""
    lines = [f"| source | pages | side | {' | '.join(MEASURES)} |"]
    lines.append("| --- | ---: | --- |" + " ---: |" * len(MEASURES))
    for name, found in results["sources"].items():
        for of, medians in found["medians"].items():
            cells = " | ".join(f"{median:.4f}" for median in medians)
            lines.append(f"| {name} | {found['pages']:,} | {of} | {cells} |")
    lines += ["", "| all pages, one process per core | seconds (median) | pages a second |"]
    lines.append("| --- | ---: | ---: |")
    for name, seconds in results["seconds"].items():
        median = statistics.median(seconds)
        lines.append(f"| {name} | {median:.1f} | {results['pages'] / median:.0f} |")
    return "\n".join(lines) + "\n"


def missed(results: dict[str, Any]) -> list[str]:
    """The goals that were not reached."""
    found = []
    for name, of in results["sources"].items():
        ours, *theirs = (of["medians"][side][0] for side in SIDES)
        if ours < max(theirs):
            found.append(
                f"{name}: its F1 is {ours:.4f}, and the better library's {max(theirs):.4f}"
            )
    if (f1 := results.get("web", {}).get("F1", 1.0)) < WEB:
        found.append(f"pages of the web: its F1 is {f1:.3f}")
    ours, theirs = (statistics.median(results["seconds"][name]) for name in SIDES[:2])
    if theirs < GOAL * ours:
        found.append(f"it is {theirs / ours:.2f}× as fast as trafilatura")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", type=Path, help="a folder for the packages")
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), help=f"unseen: {UNSEEN}")
    parser.add_argument("--web", type=Path, help="trafilatura's folder `tests`")
    parser.add_argument("--pages", type=int, default=10**6, help="at most, of each source")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.packages.mkdir(parents=True, exist_ok=True)
    sources: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder, shards = Path(temporary), []
        for name in options.sources:
            shard, golds = prepare(name, options.packages, folder, options.pages)
            medians = quality(shard, golds, folder)
            sources[name] = {"pages": len(golds), "medians": medians}
            print(name, len(golds), medians, flush=True)
            shards.append(shard)
        seconds = speed(shards, options.rounds, folder)
    results = {
        "machine": machine("resiliparse", "trafilatura"),
        "measures": MEASURES,
        "sources": sources,
        "pages": sum(of["pages"] for of in sources.values()),
        "seconds": seconds,
        **({"web": web(options.web)} if options.web else {}),
    }
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "extracting.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "extracting.md").write_text(table(results))
    print(table(results))
    if found := missed(results):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["side"]:
        os.environ["OMP_NUM_THREADS"] = "1"
        do = side(sys.argv[2])
        print("ready", flush=True)
        sys.stdin.read()
        do(Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
