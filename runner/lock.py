"""`experiment.py` → `experiment.lock.yaml`: the same declaration as data. The Python file is run by
its author; whoever only reads pull requests reads the lock. An experiment in Python is a module
with a variable `experiment`:

    from runner.spec import Declaration, Step

    experiment = Declaration(
        title="…",
        resources={"kind": "cpu"},
        steps={"tokens": Step(do="tokenize", config={"source": "stdlib"})},
    )

A lock names the code that it was made from by a digest, so that who reads it sees without running
anything when that was edited since.
"""

import contextlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import yaml

from runner import closure, graph, isolate, yaml12
from runner.complaints import BadExperiment, Problem
from runner.spec import LOCK_NAME, PYTHON_NAME, Declaration

HEAD = f"# Made by `regatta compile` from {PYTHON_NAME}, and read in its place. Do not edit.\n"
MAY_TAKE = 60.0  # seconds to declare an experiment
MOST_LOCK = 16 << 20  # bytes


def compiled(folder: Path, *, isolated: bool = False) -> str:
    """The text of the lock of the experiment in `folder`, from running its `experiment.py` in a
    process of its own, which reaches nothing else where it is `isolated`. Raises BadExperiment, and
    isolate.CannotIsolate."""
    python = folder / PYTHON_NAME
    if not python.is_file():
        raise _bad(python, "there is no such file, and so nothing to compile")
    try:
        source = _source(folder)  # before it runs: what is edited meanwhile is seen afterwards
    except closure.BadCode as error:
        _declared(python, isolated)  # which says more, where it fails as well
        raise _bad(python, str(error)) from error
    return HEAD + source + _declared(python, isolated)


def _source(folder: Path) -> str:
    """The line that names the code which declares: `experiment.py` and what it imports in its
    folder, without comments and docstrings. Raises closure.BadCode."""
    code = closure.reach(Path(PYTHON_NAME).stem, folder, isolate.LAB)
    own = {name: sha256 for name, sha256 in code.items() if not name.startswith("lab:")}
    return f"# Its source: {graph.code_sha256(own)}\n"


def _declared(python: Path, isolated: bool) -> str:
    """What the file declares, from running it."""
    if isolated:
        return _isolated(python)
    command = [sys.executable, "-m", "runner.lock", str(python.resolve())]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=MAY_TAKE, check=False
        )
    except subprocess.TimeoutExpired:
        raise _bad(
            python,
            f"it took longer than {MAY_TAKE:.0f} s; a declaration only says what is to be done",
        ) from None
    if ended.returncode:
        raise _bad(python, ended.stderr.strip().rpartition("\n")[2] or "it ended without a word")
    return ended.stdout


def _isolated(python: Path) -> str:
    said: list[bytes] = []
    ended = isolate.run(
        isolate.Box(reads=(python.parent.resolve(),)),
        ["runner.lock", str(python.resolve())],
        isolate.Limits(seconds=MAY_TAKE, file=MOST_LOCK, printed=MOST_LOCK),
        keep=said.append,
        stderr=False,  # it is not the lock, and nobody else reads it
    )
    if ended.why or ended.code:
        raise _bad(python, ended.why or f"isolated, it ended with {ended.code} and made no lock")
    return b"".join(said).decode(errors="replace")


def check(folder: Path, *, isolated: bool = False) -> None:
    """Raises BadExperiment where the lock in `folder` is not what its `experiment.py` says now, and
    isolate.CannotIsolate."""
    python, locked = folder / PYTHON_NAME, folder / LOCK_NAME
    if not (python.is_file() and locked.is_file()):
        return  # reading the declaration says what is missing
    said = re.sub(r"\A(#.*\n)*", "", locked.read_text(encoding="utf-8"))
    if said != _declared(python, isolated):
        words = f"{PYTHON_NAME} says something else now; run `regatta compile {folder}` and look"
        raise _bad(locked, words)


def check_source(folder: Path, called: str) -> None:
    """Raises BadExperiment where the lock in `folder`, which its author knows as `called`, was made
    from another `experiment.py` than the one beside it. Nothing is run."""
    locked = Path(called, LOCK_NAME)
    try:
        source = _source(folder)
    except closure.BadCode as error:
        raise _bad(locked, str(error).replace(str(folder), called)) from error
    if source not in (folder / LOCK_NAME).read_text(encoding="utf-8"):
        words = f"it was not made from {PYTHON_NAME} as that is now; run `regatta compile {called}`"
        raise _bad(locked, words)


def _bad(path: Path, words: str) -> BadExperiment:
    return BadExperiment([Problem(str(path), 1, "", words)])


def main(python: Path) -> None:
    """Run the file and print what it declares."""
    sys.path.insert(0, str(python.parent))
    with contextlib.redirect_stdout(sys.stderr):
        declared = runpy.run_path(str(python)).get("experiment")
    if not isinstance(declared, Declaration):
        sys.exit("it has no variable `experiment` that is a runner.spec.Declaration")
    value = declared.model_dump(mode="json", exclude_unset=True, by_alias=True)
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    if yaml12.read(text).value != value:
        sys.exit("it has a text that YAML would read as a number; write it in another way")
    sys.stdout.write(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
