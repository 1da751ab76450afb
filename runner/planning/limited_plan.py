"""Plans a stranger's declaration in a child with bounded time and memory
(`runner.isolation.limited`). What a plan costs does not follow from the declaration's size, nor
does what it makes a parser raise: either is a problem in words.
"""

import pickle
import time
from collections.abc import Callable, Sequence
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
LONG, AGAIN = 3.0, 600.0  # seconds; until what was refused after so long is tried again
MAX_REFUSED = 100
_REFUSED: dict[bytes, tuple[list[Problem], float]] = {}  # by the declaration: why, until when


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
    """What a declaration needs. Raises BadExperiment."""
    needs = Outline(*_in_child(_outline, declared))
    return needs._replace(files=[(names, tuple(place)) for names, place in needs.files])


def _outline(declared: DeclaredText) -> Outline:
    graph = declared.graph()
    files = {name: planned_steps.files_of(node) for name, node in graph.nodes.items()}
    return Outline(
        graph.experiment.preregistration,
        any(node.own for node in graph.nodes.values()),
        graph.experiment.data is not None,
        [(names, graph.source(name)) for name, names in files.items() if names],
    )


def plan(
    declared: DeclaredText, needed: Needed, rung: int, kept: Path
) -> tuple[Plan, dict[str, Path]]:
    """The plan of a declaration (of a ladder, of this rung), and {name in the store: file in the
    folder `kept`} of what its jobs need. Raises BadExperiment."""
    record, names = _in_child(_plan, declared, needed, rung, kept)
    return Plan.model_validate_json(record), {name: kept / str(n) for n, name in enumerate(names)}


def _plan(declared: DeclaredText, needed: Needed, rung: int, kept: Path) -> tuple[str, list[str]]:
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


def _in_child(function: Callable[..., Any], declared: DeclaredText, *more: Any) -> Any:
    """What the function answers in a child. Raises BadExperiment. What was refused after long is
    not tried again for a while, because each comment on its thread would hold up all others."""
    key, began = pickle.dumps((declared, LIMITS)), time.monotonic()
    known, until = _REFUSED.get(key, ([], 0.0))
    if began < until:
        raise BadExperiment(known)
    try:
        arguments = _reported, function, (declared, *more)
        value, problems = limited.call(*arguments, limits=LIMITS, prepare=prepare)
        found = [Problem(*problem) for problem in problems]
    except limited.Refused as error:
        words = f"it cannot be planned: {error}"
        words += "" if error.kind == "raised" else "; make it smaller"
        found = [Problem(declared.file, None, "", words)]
    if not found:
        return value
    if (now := time.monotonic()) - began > LONG:
        if len(_REFUSED) >= MAX_REFUSED:
            _REFUSED.clear()
        _REFUSED[key] = found, now + AGAIN
    raise BadExperiment(found)


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
