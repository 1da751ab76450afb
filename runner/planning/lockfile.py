"""`experiment.py` → `experiment.lock.yaml`: the same declaration as data. The author runs the
Python file; the lab reads only the lock. An experiment in Python is a module with a variable
`experiment`:

    from runner.api import Declaration, Step

    experiment = Declaration(
        title="…",
        resources={"kind": "cpu"},
        steps={"tokens": Step(do="tokenize", config={"source": "stdlib"})},
    )

A lock has a digest of the code that made it, so a reader sees a later edit without running
anything.
"""

import ast
import json
import os
import re
import runpy
import secrets
import subprocess
import sys
import traceback
from dataclasses import astuple
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from engine.config.schema import ModelConfig, TrainConfig
from runner.isolation import bubblewrap
from runner.lib import yaml_lines
from runner.lib.complaints import Complaints
from runner.lib.problems import BadExperiment, Document, Problem
from runner.lib.untrusted_files import printable
from runner.planning import code_digest
from runner.schema import step_graph
from runner.spec.declaration import LOCK_NAME, PYTHON_NAME
from runner.spec.experiment import Declaration
from runner.spec.steps import Step
from runner.store.backends import in_words

HEAD = f"# Made by `regatta compile` from {PYTHON_NAME}, and read in its place. Do not edit.\n"
SCHEMAS = {one.__name__: one for one in (Declaration, Step, ModelConfig, TrainConfig)}
SOURCE = "# Its source: "
TOLD = os.EX_DATAERR  # exit code of a process that has printed problems instead of a declaration
MAY_TAKE = 60.0  # seconds to declare an experiment
MOST_LOCK = 16 << 20  # bytes


def compiled(folder: Path, *, isolated: bool = False) -> str:
    """The text of the lock for the experiment in `folder`, from running its `experiment.py` in a
    process of its own, with `isolated` in a box. Raises BadExperiment and
    bubblewrap.CannotIsolate."""
    python = folder / PYTHON_NAME
    if not python.is_file():
        raise _bad(python, "there is no such file, and so nothing to compile")
    try:
        source = _source(folder)  # before it runs, so that a concurrent edit is detected
    except code_digest.BadCode as error:
        _declared(python, isolated)  # if this fails, too, its error says more
        raise _bad(python, str(error)) from error
    return HEAD + source + _declared(python, isolated)


def _source(folder: Path) -> str:
    """The line of the lock with the digest of the code: `experiment.py` and everything that it
    reaches in its folder. Raises BadCode."""
    return f"{SOURCE}{step_graph.code_sha256(code_digest.reach(Path(PYTHON_NAME).stem, folder))}\n"


def _declared(python: Path, isolated: bool) -> str:
    """Run the file and return what it declares."""
    if isolated:
        return _isolated(python)
    command = [sys.executable, "-m", "runner.planning.lockfile", str(python.resolve())]
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=MAY_TAKE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _bad(
            python,
            f"it took longer than {MAY_TAKE:.0f} s; a declaration only says what is to be done",
        ) from None
    if ended.returncode == TOLD and ended.stdout:
        raise BadExperiment(
            [
                Problem(str(python.parent / name), line, printable(field), printable(words))
                for name, line, field, words in json.loads(ended.stdout)
            ]
        )
    if ended.returncode or not ended.stdout:
        last = ended.stderr.strip().rpartition("\n")[2]
        raise _bad(python, printable(last) or "it ended without a report")
    return ended.stdout


def _isolated(python: Path) -> str:
    said: list[bytes] = []
    ended = bubblewrap.run(
        bubblewrap.Box(reads=(python.parent.resolve(),)),
        ["runner.planning.lockfile", str(python.resolve())],
        bubblewrap.Limits(seconds=MAY_TAKE, file=MOST_LOCK, printed=MOST_LOCK),
        keep=said.append,
        stderr=False,  # not part of the lock
    )
    if ended.why or ended.code:
        raise _bad(python, ended.why or f"isolated, it ended with {ended.code} and made no lock")
    return b"".join(said).decode(errors="replace")


def check(folder: Path, *, isolated: bool = False) -> None:
    """Raise BadExperiment if the lock in `folder` differs from what its `experiment.py` declares
    now, and bubblewrap.CannotIsolate."""
    python, locked = folder / PYTHON_NAME, folder / LOCK_NAME
    if not (python.is_file() and locked.is_file()):
        return  # reading the declaration reports what is missing
    said = re.sub(r"\A(#.*\n)*", "", locked.read_text(encoding="utf-8"))
    if said != _declared(python, isolated):
        words = f"{PYTHON_NAME} says something else now; run `regatta compile {folder}` and look"
        raise _bad(locked, words)


def check_source(folder: Path, called: str) -> None:
    """Raise BadExperiment if the lock in `folder` (`called` in errors) was made from another
    `experiment.py` than the one beside it. Runs nothing."""
    locked = Path(called, LOCK_NAME)
    try:
        source = _source(folder)
    except code_digest.BadCode as error:
        raise _bad(locked, str(error).replace(str(folder), called)) from error
    said = (folder / LOCK_NAME).read_text(encoding="utf-8")
    if source not in said:
        words = f"it was not made from {PYTHON_NAME} and its imports as they are now"
        if SOURCE not in said:
            words = "it does not say from which code it was made"
        raise _bad(locked, f"{words}; run `regatta compile {called}`")


def write(text: str, folder: Path) -> bool:
    """Write the lock atomically. Returns whether it changed. Raises StoreError."""
    locked, data = folder / LOCK_NAME, text.encode()
    draft = folder / f".{LOCK_NAME}.{secrets.token_hex(6)}.tmp"
    with in_words(f"{locked} was not written"):
        if locked.is_file() and locked.read_bytes() == data:
            return False
        try:
            draft.write_bytes(data)
            draft.replace(locked)
        finally:
            draft.unlink(missing_ok=True)
    return True


def line_of(python: Path) -> int:
    """The line on which the file assigns `experiment`."""
    nodes = ast.walk(ast.parse(python.read_bytes()))
    names = (x for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store))
    return max((x.lineno for x in names if x.id == "experiment"), default=1)


def _bad(path: Path, words: str) -> BadExperiment:
    return BadExperiment([Problem(str(path), 1, "", words)])


# ── In the process of its own ────────────────────────────────────────────────────────────────


def main(python: Path) -> None:
    """Run the file and print its declaration, or its problems."""
    answer, code = os.dup(sys.stdout.fileno()), 0
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # also for processes that the file starts
    sys.path.insert(0, str(python.parent))
    sys.dont_write_bytecode = True  # leave no files beside it
    sys.pycache_prefix = os.devnull  # read none either, because no digest covers them
    try:
        text = _written(_ran(python), line_of(python))
    except BadExperiment as error:
        text, code = json.dumps([astuple(problem) for problem in error.problems]), TOLD
    with os.fdopen(answer, "w", encoding="utf-8") as file:
        file.write(text)
    sys.exit(code)


def _ran(python: Path) -> object:
    """The value of `experiment` after running the file. Raises BadExperiment."""
    try:
        return runpy.run_path(str(python)).get("experiment")
    except (Exception, SystemExit) as error:
        file, line = _place(error, python.parent)
        raise BadExperiment(_told(error, file, line)) from error


def _place(error: BaseException, folder: Path) -> tuple[str, int]:
    """The file (relative to the folder) and the line that the error comes from."""
    found: list[tuple[str, int | None]] = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    if isinstance(error, SyntaxError):
        found.append((error.filename or "", error.lineno))
    own = [(file, line) for file, line in found if Path(file).is_relative_to(folder)]
    file, line = own[-1] if own else (str(folder / PYTHON_NAME), 1)
    return str(Path(file).relative_to(folder)), line or 1


def _told(error: BaseException, file: str, line: int) -> list[Problem]:
    document = Document(None, {(): line}, file)
    if not isinstance(error, ValidationError):
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        words = ": ".join(filter(None, [type(error).__name__, " ".join(said.split())]))
        return [document.problem((), words)]
    complaints = Complaints(document)
    if schema := SCHEMAS.get(error.title):
        complaints.tell(schema, error)
    else:  # an error in other code
        for one in error.errors(include_url=False):
            complaints.say(one["loc"], one["msg"])
    return complaints.found


def _written(declared: object, line: int) -> str:
    """The declaration as YAML. Raises BadExperiment."""
    if not isinstance(declared, Declaration):
        words = "it has no variable `experiment` that is a runner.api.Declaration"
        raise BadExperiment([Problem(PYTHON_NAME, line, "", words)])
    try:
        value = declared.model_dump(mode="json", exclude_unset=True, by_alias=True)
        text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
        read: dict[str, Any] = yaml_lines.read(text).value
    except (yaml_lines.BadYaml, ValueError, RecursionError) as error:
        raise BadExperiment([Problem(PYTHON_NAME, line, "", str(error))]) from error
    if read != value:
        words = "no finite number, or a text that YAML would read as one; write it in another way"
        other = step_graph.differing(step_graph.leaves(value), step_graph.leaves(read))
        raise BadExperiment([Problem(PYTHON_NAME, line, key, words) for key, *_ in other])
    return text


if __name__ == "__main__":
    main(Path(sys.argv[1]))
