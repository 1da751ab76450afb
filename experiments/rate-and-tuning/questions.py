"""Questions about Python's own library with one right answer, as conversations."""

import ast
import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

HELD_OUT = 10  # one conversation in so many is for validation


def conversations(config: dict[str, int], inputs: dict[str, Path], out: Path) -> None:
    """Writes `train.jsonl` and `validation.jsonl`, which share no file of the library."""
    drawn = random.Random(config["seed"])
    assert not inputs
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    drawn.shuffle(files)
    with (out / "train.jsonl").open("w") as train, (out / "validation.jsonl").open("w") as held_out:
        for number, path in enumerate(files):
            file = train if number % HELD_OUT else held_out
            for question, answer in list(_asked(path))[: config["most_of_a_file"]]:
                said = [
                    {"role": "user", "content": question},
                    {"role": "assistant", "content": answer},
                ]
                file.write(json.dumps({"messages": said}) + "\n")


def _asked(path: Path) -> Iterator[tuple[str, str]]:
    """Which arguments does a function take, and which classes does a class extend?"""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef) and node.args.args:
            names = ", ".join(one.arg for one in node.args.args)
            if len(names) <= 60:
                yield f"arguments of {node.name}?", names
        elif isinstance(node, ast.ClassDef) and node.bases:
            bases = ", ".join(ast.unparse(one) for one in node.bases)
            if len(bases) <= 60:
                yield f"bases of {node.name}?", bases
