"""How long the site of a lab with ten thousand runs takes: `python -m tests.bench.site`. Executions
of two arms and three seeds, as `tests.synthetic` makes them; each build is a process of its own,
and is counted from opening the store, by the clock and in processor time (on a shared machine only
the second says what it costs). Of all but the full build, the median of five counts. "As the bot"
builds once more in a process that has built before. Writes `results/site.json` and `site.md`."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from bot.site.facts.memory import Memory
from bot.site.pages.build import build
from runner.store.store import Store
from tests import synthetic
from tests.bench.cpu import RESULTS, machine

RUNS_EACH = 6  # of an execution
TURNS = 5  # of each build but the full one; the median counts
GOALS = {"full": 60.0, "one more run": 2.0, "as the bot": 2.0}  # seconds
MOST_BYTES = 300_000  # of a page with the styles and scripts that it loads itself
SHARED = ("style.css", "site.js", "charts.js", "rows.js", "compare.js")


def fill(folder: Path, executions: int) -> None:
    """A lab, written without waiting for the disk."""
    Store.create = synthetic.create_at_once  # type: ignore[method-assign]
    synthetic.board(Store(folder), executions)


def more(folder: Path, n: int) -> None:
    """One more execution, after all others."""
    Store.create = synthetic.create_at_once  # type: ignore[method-assign]
    at, rng = synthetic.START + timedelta(days=5_000, minutes=n), random.Random(n)
    plan = synthetic.plan(title=f"One more, {n}", predictions=[synthetic.prediction()])
    figures = synthetic.figures(*([2.9 + rng.gauss(0, 0.03) for _ in range(3)] for _ in range(2)))
    execution = synthetic.execution(plan, f"more {n}", pull=100_000 + n, at=at)
    synthetic.finish(Store(folder), execution, figures)


def turn(store: Path, site: Path, kind: str, n: int) -> dict[str, Any]:
    """One build, the `n`th, or as the bot a second one in the same process."""
    memory = None
    if kind == "as the bot":
        memory = Memory(site)
        build(Store(store), site, remembered=memory)
        more(store, TURNS + n)  # "one more run" has made those before
    clock, before = time.perf_counter(), os.times()
    summary = build(Store(store), site, remembered=memory)
    after = os.times()
    return {
        "seconds": round(time.perf_counter() - clock, 2),
        "user": round(after.user - before.user, 2),
        "system": round(after.system - before.system, 2),
        "drawn": len(summary.drawn),
    }


def sizes(site: Path) -> dict[str, Any]:
    """The largest page of each folder and the largest script, in bytes."""
    shared = sum((site / name).stat().st_size for name in SHARED)
    pages: dict[str, int] = {}
    scripts: dict[str, int] = {}
    for path in site.rglob("*"):
        folder = path.relative_to(site).parts[0] if path.parent != site else path.name
        size = path.stat().st_size if path.is_file() else 0
        if path.suffix == ".html":
            pages[folder] = max(pages.get(folder, 0), size)
        elif path.suffix == ".js" and path.name != "vega.js":
            scripts[folder] = max(scripts.get(folder, 0), size)
    return {"shared": shared, "pages": pages, "scripts": scripts}


def table(results: dict[str, Any]) -> str:
    """The figures in Markdown."""
    lines = [
        "| build | by the clock | processor time | files drawn |",
        "| --- | ---: | ---: | ---: |",
    ]
    for kind, found in results["builds"].items():
        spent = found["user"] + found["system"]
        lines.append(f"| {kind} | {found['seconds']:.1f} s | {spent:.1f} s | {found['drawn']:,} |")
    lines += ["", "| largest page in | HTML, with its own styles and scripts |", "| --- | ---: |"]
    found = results["sizes"]
    for folder, size in sorted(found["pages"].items()):
        lines.append(f"| {folder} | {(size + found['shared']) / 1000:.0f} kB |")
    return "\n".join(lines) + "\n"


def missed(results: dict[str, Any]) -> list[str]:
    """Which goals are not reached, in sentences."""
    found = results["sizes"]
    return [
        f"{kind}: {results['builds'][kind]['seconds']} s, and {goal} s is the goal"
        for kind, goal in GOALS.items()
        if results["builds"][kind]["seconds"] > goal
    ] + [
        f"{folder}: a page has {size + found['shared']:,} bytes"
        for folder, size in found["pages"].items()
        if size + found["shared"] > MOST_BYTES
    ]


def measure(executions: int, folder: Path) -> dict[str, Any]:
    """All builds and sizes of one lab."""
    store, site = folder / "store", folder / "site"
    fill(store, executions)
    results: dict[str, Any] = {"runs": executions * RUNS_EACH, "builds": {}}
    for kind in ("full", "nothing new", "one more run", "as the bot"):
        command = [sys.executable, "-m", "tests.bench.site", "turn", str(store), str(site), kind]
        turns = []
        for n in range(1 if kind == "full" else TURNS):
            if kind == "one more run":
                more(store, n)
            answer = subprocess.run([*command, str(n)], check=True, stdout=subprocess.PIPE)
            turns.append(json.loads(answer.stdout))
        turns.sort(key=lambda one: one["seconds"])
        results["builds"][kind] = turns[len(turns) // 2]
        print(kind, results["builds"][kind], flush=True)
    results["sizes"] = sizes(site)
    results["load"] = os.getloadavg()[0]
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(-(-options.runs // RUNS_EACH), Path(folder))
    results = {"machine": machine("pydantic", "jinja2"), **found}
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "site.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "site.md").write_text(table(results))
    print(table(results))
    if words := missed(results):
        sys.exit("\n".join(words))


if __name__ == "__main__":
    if sys.argv[1:2] == ["turn"]:
        store, site, kind, n = sys.argv[2:]
        print(json.dumps(turn(Path(store), Path(site), kind, int(n))))
    else:
        main()
