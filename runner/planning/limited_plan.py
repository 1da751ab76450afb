"""Plans a stranger's declaration in a child with bounded time and memory
(`runner.isolation.limited`). What a plan costs does not follow from the declaration's size, nor
does what it makes a parser raise: either is a problem in words.

Most plans take milliseconds. The caller waits for a second; what takes longer begins anew beside
it, so that nobody else's plan or command waits for that.
"""

import pickle
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

from runner.isolation import limited
from runner.lib.problems import BadExperiment, Problem
from runner.lib.yaml_lines import Path as Place
from runner.planning import planned_steps, planner
from runner.schema.lab_config import LabConfig
from runner.schema.record import Plan, Preregistration
from runner.spec import declaration
from runner.spec.graph import Graph
from runner.spec.step_types import BUILT_IN, logical

LIMITS = limited.Limits(seconds=20.0, memory=256 << 20)
MAX_RECORD = 4 << 20  # bytes of a plan's record
QUICK = 1.0  # seconds for which the caller waits
MAX_BESIDE = 50  # plans that take longer, with those that wait; as many answers are kept
KEPT_FOR = 600.0  # seconds for which an answer is kept
AGAIN = (2.0, 60.0)  # least and most seconds after which one asks again
MAX_SLOW = 1000  # questions that are known to take longer


class Unfinished(Exception):
    """The plan takes longer: ask again in so many seconds. A question costs requests."""

    def __init__(self, message: str, began: float) -> None:
        super().__init__(message)
        self.wait = min(max(time.monotonic() - began, AGAIN[0]), AGAIN[1])


class DeclaredText(NamedTuple):
    """A declaration's text, with the name of its file in messages, in a lab. `tree` names all files
    beside it."""

    text: str
    file: str
    lab: LabConfig
    tree: str = ""

    def graph(self) -> Graph:
        return declaration.drafted(declaration.read(self.text, self.file), self.lab)


class Outline(NamedTuple):
    """What a declaration needs before it can be planned."""

    preregistration: int | None
    own: bool  # whether a step runs the experiment's own code
    short: bool  # whether it has arms and seeds
    files: Sequence[tuple[list[str], Place]]  # its own texts, prompts and tasks; what names them


class Needed(NamedTuple):
    """What was found of that."""

    folder: Path  # with its own modules and texts
    losses: Sequence[tuple[Place, str]] = ()  # of these, why they are not there
    problems: Sequence[Problem] = ()  # others, to be reported with those of the declaration
    sealed: Preregistration | None = None


def outline(declared: DeclaredText) -> Outline:
    """What a declaration needs. Raises BadExperiment and Unfinished."""
    needs = Outline(*_in_child(_outline, declared)[0])
    return needs._replace(files=[(names, tuple(place)) for names, place in needs.files])


def _outline(_: Path, declared: DeclaredText) -> Outline:
    graph = declared.graph()
    files = {name: planned_steps.files_of(node) for name, node in graph.nodes.items()}
    return Outline(
        graph.experiment.preregistration,
        any(node.own for node in graph.nodes.values()),
        graph.experiment.data is not None,
        [(names, graph.source(name)) for name, names in files.items() if names],
    )


def plan(declared: DeclaredText, needed: Needed, rung: int) -> tuple[Plan, dict[str, bytes]]:
    """The plan of a declaration (of a ladder, of this rung), and the content of each name in the
    store that its jobs need. Raises BadExperiment and Unfinished."""
    (record, names), contents = _in_child(_plan, declared, needed, rung)
    return Plan.model_validate_json(record), dict(zip(names, contents, strict=True))


def _plan(kept: Path, declared: DeclaredText, needed: Needed, rung: int) -> tuple[str, list[str]]:
    """The plan's record, and the names of the contents, which it writes to the folder."""
    graph = declared.graph()
    say, folder, sealed = graph.complaints.say, needed.folder, needed.sealed
    for place, message in needed.losses:
        graph.complaints.lose(place, message)
    for problem in needed.problems:
        graph.complaints.add(problem)
    if sealed is None and (number := graph.experiment.preregistration) is not None:
        words = f"#{number} is not a sealed preregistration of this repository; open one with "
        words += "the experiment form, wait for its seal, then push to this branch again"
        say(("preregistration",), words)
    called = str(Path(declared.file).parent)
    found = planner.make_plan(graph, folder, called=called, sealed=sealed, rung=rung)
    if (size := len(record := found.model_dump_json())) > MAX_RECORD:
        words = f"its plan of {len(found.steps):,} steps has {size:,} bytes, and {MAX_RECORD:,} is "
        say(graph.experiment.arms_at, f"{words}the most; take steps out, or make two experiments")
        graph.complaints.end()
    contents = planner.contents(found, folder)
    for number, content in enumerate(contents.values()):
        (kept / str(number)).write_bytes(content)
    return record, list(contents)


# ── Children ─────────────────────────────────────────────────────────────────────────────────


class _Asked(NamedTuple):
    """What a child is asked: its function gets a folder for files, and this."""

    function: Callable[..., Any]
    declared: DeclaredText
    needed: Needed | None = None
    rung: int = 1

    def key(self) -> bytes:
        """The same for the same question with the same answer."""
        placeless = self.needed and self.needed._replace(folder=Path())
        return pickle.dumps((self._replace(needed=placeless), LIMITS, QUICK))

    def answer(self, seconds: float, lane: str = "") -> tuple[Any, list[bytes]]:
        """The function's value, and the contents of the files that it wrote. Raises BadExperiment
        and limited.Refused."""
        with tempfile.TemporaryDirectory() as folder:
            given = (self.declared, self.needed, self.rung) if self.needed else (self.declared,)
            value, problems = limited.call(
                *(_reported, self.function, (Path(folder), *given)),
                limits=LIMITS._replace(seconds=seconds),
                prepare=prepare,
                lane=lane,
            )
            if problems:
                raise BadExperiment([Problem(*problem) for problem in problems])
            files = sorted(Path(folder).iterdir(), key=lambda file: int(file.name))
            return value, [file.read_bytes() for file in files]


class _Job:
    """A question that is answered beside the caller, with files of its own."""

    def __init__(self, asked: _Asked) -> None:
        self.answer, self.until = Future[Any](), float("inf")  # when it is forgotten
        self.began = time.monotonic()
        self._own, self._asked = tempfile.TemporaryDirectory(), asked
        if needed := asked.needed:
            own = Path(self._own.name, needed.folder.name)
            shutil.copytree(needed.folder, own, symlinks=True)
            self._asked = asked._replace(needed=needed._replace(folder=own))
        threading.Thread(target=self._run, name="plan", daemon=True).start()

    def _run(self) -> None:
        try:
            with self._own:
                answer = self._asked.answer(LIMITS.seconds, "beside")
        except BaseException as error:  # whoever asks again gets it
            self._forget_later()
            self.answer.set_exception(error)
        else:
            self._forget_later()
            self.answer.set_result(answer)

    def _forget_later(self) -> None:
        self.until = time.monotonic() + KEPT_FOR


_BESIDE: dict[bytes, _Job] = {}
_SLOW: dict[bytes, float] = {}  # since when; it is not tried again before there is a place


def _in_child(*question: Any) -> tuple[Any, list[bytes]]:
    """The answer to a question (`_Asked`). Raises BadExperiment and Unfinished."""
    asked, now = _Asked(*question), time.monotonic()
    answered = [known for known, job in _BESIDE.items() if job.answer.done()]
    for n, known in enumerate(reversed(answered)):
        if n >= MAX_BESIDE or _BESIDE[known].until < now:
            del _BESIDE[known]
    key = asked.key()
    try:
        if key not in _BESIDE:
            if key not in _SLOW:
                try:
                    return asked.answer(min(QUICK, LIMITS.seconds))
                except limited.Refused as refused:
                    if refused.kind != "seconds" or LIMITS.seconds <= QUICK:
                        raise
                _SLOW[key] = now
            if sum(not job.answer.done() for job in _BESIDE.values()) >= MAX_BESIDE:
                while len(_SLOW) > MAX_SLOW:
                    del _SLOW[next(iter(_SLOW))]
                raise Unfinished("many declarations are being planned", _SLOW.get(key, now))
            del _SLOW[key]
            _BESIDE[key] = _Job(asked)
        job = _BESIDE[key]
        if not job.answer.done():
            raise Unfinished(f"{asked.declared.file} is being planned", job.began)
        return job.answer.result()
    except limited.Refused as error:
        if error.kind == "start":  # the machine's fault
            _BESIDE.pop(key, None)
            raise Unfinished(
                f"{asked.declared.file} cannot be planned now: {error}", now
            ) from error
        words = f"it cannot be planned: {error}"
        words += "" if error.kind == "raised" else "; make it smaller"
        raise BadExperiment([Problem(asked.declared.file, None, "", words)]) from error


def _reported(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The value of the function, or every problem."""
    try:
        return function(*arguments), []
    except BadExperiment as error:
        return None, list(map(astuple, error.problems))


def prepare() -> None:
    """Import what planning needs, and fill its caches."""
    planner.plan_folder(declaration.STARTERS / "plain")
    for do in BUILT_IN:
        planned_steps.code_of(logical(do), (), declaration.STARTERS)
