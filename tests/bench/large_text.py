"""A generated text that is larger than memory, through the lab's steps on texts:
`python -m tests.bench.large_text [--gigabytes 10]`. Each part of a step is a process. Some are
killed at seeded points and made again; what they leave then is compared with what an undisturbed
process makes of the same input. No process has more than 2 GB of memory. Writes
`results/large_text.json` and `large_text.md`."""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from runner.spec.selection_steps import Classify, Label, Select
from runner.spec.step_types import BUILT_IN, TEXT
from runner.store import digests
from runner.store.artifacts import MakerLost, MakingFailed
from runner.store.scratch_paths import RECEIPT
from runner.worker import shard_jobs
from runner.worker.step_process import Job
from tests.bench.cpu import RESULTS, machine
from tests.decided import KINDS

LIMIT = 2 << 30  # bytes of memory of a process
SHARD = 16 << 20  # bytes of a shard
VOCABULARY = 50_000
# What a process does. It imports nothing but the step.
DO = """
import importlib, json, sys
from pathlib import Path
function, config, inputs, out = json.loads(Path(sys.argv[1]).read_bytes())
module, _, name = function.partition(":")
paths = {
    key: Path(of) if isinstance(of, str) else {name: Path(one) for name, one in of.items()}
    for key, of in inputs.items()
}
getattr(importlib.import_module(module), name)(config, paths, Path(out))
status = Path("/proc/self/status").read_text()  # getrusage also counts the process before exec
print(int(status.partition("VmHWM:")[2].split()[0]) * 1024, file=open(sys.argv[2], "w"))
"""


def _word(n: int) -> str:
    return hashlib.md5(b"%d" % n).hexdigest()[: 3 + n % 6]


STEPS: dict[str, dict[str, Any]] = {
    "filter": {
        **{"least_characters": 1, "most_characters": None, "matching": None},
        "rules": ("gopher/words", "c4/curly_bracket"),
    },
    "dedup": {"similarity": 0.8, "alarm_above": 1.0},
    "label": Label(documents=2000, rule=rf"\b{_word(64)}\b").model_dump(mode="json"),
    "classify": Classify().model_dump(mode="json"),
    "select": Select(fraction=0.5).model_dump(mode="json"),
    "tokenize": {"source": None, "tokenizer": "bpe", "vocab_size": 512, "sha256": {}},
}
BESIDE = {"classify": {"labels": "label"}, "select": {"scores": "classify"}}  # the text


def documents(size: int, seed: int) -> Iterator[str]:
    """Texts of `size` bytes together: of 20 to 2,000 words, which are as frequent as Zipf's law has
    it (the n-th word 1/n times as often as the first); each tenth text is an earlier one with a
    word or two replaced."""
    chosen = np.random.default_rng(seed)
    vocabulary = [_word(n) for n in range(VOCABULARY)]
    earlier, written = list[list[str]](), 0
    while written < size:
        if earlier and chosen.random() < 0.1:
            words = list(earlier[int(chosen.integers(len(earlier)))])
            for at in chosen.integers(len(words), size=2):
                words[at] = vocabulary[int(chosen.integers(VOCABULARY))]
        else:
            count = int(20 * 100 ** chosen.random())
            drawn = (VOCABULARY ** chosen.random(count)).astype(int) - 1
            words = [vocabulary[at] for at in drawn.tolist()]
            if len(earlier) < 1000:
                earlier.append(words)
        text = " ".join(words)
        written += len(text) + 1
        yield text


def generate(folder: Path, size: int, shard: int = SHARD, seed: int = 0) -> None:
    """Write a text of `size` bytes, in shards of `shard` bytes."""
    folder.mkdir(parents=True)
    for number in range(max(1, size // shard)):
        with (folder / f"train.{number:05d}.jsonl").open("w") as file:
            for line, text in enumerate(documents(shard, seed * 100_000 + number)):
                known = f"{number}-{line}"
                of = {"id": known, "source": f"source {line % 3}", "text": text}
                file.write(json.dumps(of) + "\n")
    with (folder / "validation.jsonl").open("w") as file:
        for text in documents(min(size // 10, shard), seed * 100_000 + 99_999):
            file.write(json.dumps({"text": text, "source": "held out"}) + "\n")


class Processes:
    """Does jobs in processes of their own, measures their memory, and kills some of them. What a
    job leaves after kills is compared with what it leaves without."""

    def __init__(self, seed: int | None = None, share: float = 0.3, after: float = 1.0) -> None:
        """Without a seed, it kills none; with one, `share` of them, up to `after` seconds after
        their start."""
        self._chosen = None if seed is None else random.Random(seed)
        self._share, self._after = share, after
        self._lost: set[str] = set()  # what the killed ones should have made
        self.peak = self.killed = self.compared = 0

    def __call__(self, job: Job) -> None:
        """Do a job. Raises MakerLost if it was killed, MakingFailed if it failed, AssertionError if
        kills changed what it makes."""
        known = json.dumps([job.function, list(job.inputs.get("shards", {}))])
        kill = None
        if self._chosen and self._chosen.random() < self._share:
            kill = self._chosen.random() * self._after
        try:
            self._done(job, kill)
        except MakerLost:
            self._lost.add(known)
            raise
        if known in self._lost:
            self._lost.remove(known)
            with tempfile.TemporaryDirectory(dir=Path(job.out).parent) as place:
                out, scratch = Path(place, "out"), Path(place, "scratch")
                out.mkdir()
                scratch.mkdir()
                self._done(replace(job, out=str(out), scratch=str(scratch)), None)
                assert digests.digests(out) == digests.digests(Path(job.out)), known
            self.compared += 1
        (Path(job.scratch) / RECEIPT).write_text("{}")

    def _done(self, job: Job, kill: float | None) -> None:
        told = Path(job.scratch) / "job.json"
        told.write_text(json.dumps([job.function, job.config, job.inputs, job.out]))
        peak = Path(job.scratch) / "peak"
        argv = [sys.executable, "-c", DO, str(told), str(peak)]
        environment = os.environ | {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        process = os.posix_spawn(sys.executable, argv, environment)
        timer = None
        if kill is not None:
            timer = threading.Timer(kill, os.kill, (process, signal.SIGKILL))
            timer.start()
        _, status = os.waitpid(process, 0)
        if timer:
            timer.cancel()
        if os.WIFSIGNALED(status):
            self.killed += 1
            raise MakerLost("killed")
        if status:
            raise MakingFailed(f"{job.function} failed")
        self.peak = max(self.peak, int(peak.read_text()))


def step(do: str, inputs: dict[str, str], folder: Path, processes: Processes, workers: int) -> Path:
    """Make a step; after each loss another maker goes on. Returns its output."""
    for generation in range(1, 10_000):
        out = folder / f"{generation}-maker"
        out.mkdir(parents=True)
        scratch = out.with_name(f"{out.name}.scratch")
        scratch.mkdir()
        job = Job(
            function=BUILT_IN[do].function,
            config=STEPS[do],
            inputs={**inputs},
            out=str(out),
            scratch=str(scratch),
            code="",
            devices=KINDS["cpu"],
        )
        try:
            with ThreadPoolExecutor(workers) as pool:
                shard_jobs.make(do, job, processes, map, pool.map)
        except MakerLost:
            shutil.rmtree(out)
            continue
        for other in folder.glob("*.scratch"):
            shutil.rmtree(other)
        return out
    raise AssertionError("it was killed too often")


def through(text: Path, folder: Path, processes: Processes, workers: int) -> dict[str, str]:
    """{step: the digest of its output} of all steps, each of which takes the last text."""
    found, made = dict[str, str](), dict[str, Path]()
    for do in STEPS:
        inputs = {key: str(made[of]) for key, of in BESIDE.get(do, {}).items()}
        out = step(do, {"text": str(text), **inputs}, folder / do, processes, workers)
        made[do] = out
        text = out if BUILT_IN[do].makes == TEXT else text
        found[do] = digests.sha256(digests.digests(out))
        if do == "dedup":
            report = json.loads((out / "report.json").read_text())
            print(json.dumps(report["left_out"] | report["counted"]), flush=True)
    return found


def table(results: dict[str, Any]) -> str:
    """The figures in Markdown."""
    return (
        f"{results['gigabytes']:g} GB of generated text through {', '.join(STEPS)}, with two "
        f"processes at a time: {results['seconds']:,.0f} s, and at most "
        f"{results['peak'] / 1e9:.2f} GB of memory in a process. {results['killed']} processes "
        f"were killed. {results['compared']} outputs that were made again are the same as without "
        "a kill.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--place", type=Path, default=None, help="with five times the space")
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    processes = Processes(seed=0, share=0.1, after=5)
    with tempfile.TemporaryDirectory(dir=options.place) as place:
        folder = Path(place)
        generate(folder / "text", int(options.gigabytes * 1e9))
        began = time.monotonic()
        through(folder / "text", folder / "made", processes, 2)
        seconds = time.monotonic() - began
    counted = {key: getattr(processes, key) for key in ("peak", "killed", "compared")}
    results = {
        **{"machine": machine("rensa"), "gigabytes": options.gigabytes},
        **{"seconds": round(seconds, 1), **counted},
    }
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "large_text.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "large_text.md").write_text(table(results))
    print(table(results))
    if processes.peak > LIMIT:
        sys.exit(f"a process had more than {LIMIT:,} bytes of memory")


if __name__ == "__main__":
    main()
