"""A scripted agent on copies of Python's own library: its commands run, and their outputs are real.

Each trace asks one thing about one file. The agent looks, may edit and compile, and answers.
"""

import ast
import json
import random
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

HELD_OUT = 8  # one file in so many is for validation
BROKEN = 0.3  # of the edits; they lose the parenthesis after the name
Message = dict[str, str]


def traces(config: dict[str, int], inputs: dict[str, Path], out: Path) -> None:
    """Writes `train.jsonl` and `validation.jsonl`, which share no file of the library."""
    assert not inputs
    drawn = random.Random(config["seed"])
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    drawn.shuffle(files)
    with (
        tempfile.TemporaryDirectory() as room,
        (out / "train.jsonl").open("w") as train,
        (out / "validation.jsonl").open("w") as held_out,
    ):
        for number, path in enumerate(files[: config["files"]]):
            here = Path(room) / path.name
            here.write_bytes(path.read_bytes())
            for messages in _about(here, drawn, config["of_a_file"]):
                file = train if number % HELD_OUT else held_out
                file.write(json.dumps({"messages": messages}) + "\n")


def _about(path: Path, drawn: random.Random, most: int) -> Iterator[list[Message]]:
    """Traces about one file: its length, where names are defined, new names."""
    found = {
        x.name for x in ast.walk(ast.parse(path.read_bytes())) if isinstance(x, ast.FunctionDef)
    }
    names = sorted(name for name in found if 4 <= len(name) <= 20 and not name.startswith("__"))
    drawn.shuffle(names)
    yield _count(path)
    for number, name in enumerate(names[:most]):
        yield _rename(path, name, drawn) if number % 2 else _find(path, name)


def _count(path: Path) -> list[Message]:
    command = f"wc -l {path.name}"
    seen = _run(command, path)
    return [
        _user(f"How long is {path.name}?"),
        *_did(command, seen),
        _assistant(f"It has {seen.split()[0]} lines."),
    ]


def _find(path: Path, name: str) -> list[Message]:
    command = f"grep -n 'def {name}' {path.name} | head -1 | cut -c -70"
    seen = _run(command, path)
    return [
        _user(f"Where is {name} in {path.name}?"),
        *_did(command, seen),
        _assistant(f"In line {seen.split(':')[0]}."),
    ]


def _rename(path: Path, name: str, drawn: random.Random) -> list[Message]:
    """The definition gets a new name; the file is then as before."""
    before = path.read_text(encoding="utf-8", errors="surrogateescape")
    new = f"new_{name}" if drawn.random() >= BROKEN else f"new {name}"
    look = f"grep -n 'def {name}(' {path.name} | head -1 | cut -c -70"
    seen = _run(look, path)
    after = before.replace(f"def {name}(", f"def {new}(", 1)
    copy = path.with_suffix(".new")
    copy.write_text(after, encoding="utf-8", errors="surrogateescape")
    lines = _run(f"diff -U0 {path.name} {copy.name} | tail -n +3 | cut -c -90", path)
    copied = copy.rename(path.with_name(f"edited_{path.name}"))
    check = f"python3 -m py_compile edited_{path.name} 2>&1 | tail -1 | cut -c -60"
    failed = _run(check, path)
    copied.unlink()
    return [
        _user(f"Rename {name} in {path.name}."),
        *_did(look, seen),
        _assistant(f"```diff\n{lines}\n```"),
        {"role": "tool", "content": failed or "compiled", "label": "outcome"},
        _assistant("It does not compile." if failed else "Done."),
    ]


def _run(command: str, path: Path) -> str:
    ran = subprocess.run(
        command, shell=True, cwd=path.parent, capture_output=True, text=True, errors="replace"
    )
    return ran.stdout.strip()


def _did(command: str, seen: str) -> list[Message]:
    return [_assistant(f"```bash\n{command}\n```"), {"role": "tool", "content": seen}]


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}
