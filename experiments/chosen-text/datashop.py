"""The data of this experiment: what to choose from, and what the choice is judged by."""

import ast
import hashlib
import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HELD_OUT = 8  # one module in so many is for validation
MOST = 20_000  # characters of a document


def pages(config: dict[str, Any], inputs: dict[str, Path], out: Path) -> None:
    """Python's standard library in pieces: each docstring is a document, and so is the code of each
    function without it. The same modules always give the same documents."""
    _write(out, ((name, text) for name, _, text in _pieces()))


def target(config: dict[str, Any], inputs: dict[str, Path], out: Path) -> None:
    """What the model should be good at: the docstrings alone."""
    _write(out, ((name, text) for name, is_docstring, text in _pieces() if is_docstring))


def shuffled(text: str) -> str:
    """The same characters in another order, from which nothing can be learnt but their counts."""
    return "".join(random.Random(text).sample(text, len(text)))


def _pieces() -> Iterator[tuple[str, bool, str]]:
    """The name of each piece, whether it is a docstring, and its text."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        module = path.relative_to(root).as_posix()
        if "site-packages" in module or "/test" in f"/{module}" or module.startswith("_sysconfig"):
            continue
        try:
            content = path.read_text(encoding="utf-8")
            found, lines = ast.walk(ast.parse(content)), content.splitlines()
        except (UnicodeDecodeError, SyntaxError):
            continue
        for node in found:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                continue
            where = f"{module}:{getattr(node, 'lineno', 0)}"
            docstring = ast.get_docstring(node)
            if docstring and len(docstring) > 80:
                yield f"{where}:docstring", True, docstring[:MOST]
            body = node.body[1:] if docstring else node.body
            if isinstance(node, ast.FunctionDef) and body:
                code = "\n".join(lines[body[0].lineno - 1 : body[-1].end_lineno])
                if len(code) > 80:
                    yield f"{where}:code", False, code[:MOST]


def _write(out: Path, pieces: Iterator[tuple[str, str]]) -> None:
    splits = {name: (out / f"{name}.jsonl").open("w") for name in ("train", "validation")}
    for name, text in pieces:
        module = name.partition(":")[0]
        held_out = hashlib.sha256(module.encode()).digest()[0] % HELD_OUT == 0
        about = {"id": name, "source": module.partition("/")[0], "licence": "PSF-2.0"}
        line = json.dumps({**about, "text": text}) + "\n"
        splits["validation" if held_out else "train"].write(line)
    for file in splits.values():
        file.close()
