"""Plans a stranger's declaration in a child with bounded time and memory
(`runner.isolation.limited`). What a plan costs does not follow from the declaration's size, nor
does what it makes a parser raise: either is a problem in words.
"""

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
from runner.spec.step_types import BUILT_IN, logical

LIMITS = limited.Limits(seconds=20.0, memory=256 << 20)
MAX_RECORD = 4 << 20  # bytes of a plan's record


class Outline(NamedTuple):
    """What a declaration needs before it can be planned."""

    preregistration: int | None
    own: bool  # whether a step runs the experiment's own code
    short: bool  # whether it has arms and seeds
    files: Sequence[tuple[list[str], Place]]  # its own texts, prompts and tasks; what names them


class Loss(NamedTuple):
    """Files that could not be laid into the folder, for what is at a place of the declaration."""

    place: Place
    message: str


def outline(text: str, file: str, lab: LabConfig) -> Outline:
    """What the declaration in this text needs. Raises BadExperiment."""
    needs, own, short, files = _call(file, _outline, text, file, lab)
    return Outline(needs, own, short, [(names, tuple(place)) for names, place in files])


def _outline(text: str, file: str, lab: LabConfig) -> Outline:
    graph = declaration.drafted(declaration.read(text, file), lab)
    return Outline(
        graph.experiment.preregistration,
        any(node.own for node in graph.nodes.values()),
        graph.experiment.data is not None,
        [
            (names, graph.source(name))
            for name, node in graph.nodes.items()
            if (names := planned_steps.files_of(node))
        ],
    )


def plan(
    text: str,
    file: str,
    lab: LabConfig,
    folder: Path,
    kept: Path,
    *,
    sealed: Preregistration | None = None,
    rung: int = 1,
    losses: Sequence[Loss] = (),
    problems: Sequence[Problem] = (),
) -> tuple[Plan, dict[str, Path]]:
    """The plan of the declaration in this text, and {name in the store: file below `kept`} of what
    its jobs need. `folder` has its own modules and texts, but for the `losses`; further `problems`
    are reported with those of the declaration. Raises BadExperiment."""
    arguments = text, file, lab, folder, kept, sealed, rung, losses, problems
    record, names = _call(file, _plan, *arguments)
    return Plan.model_validate_json(record), {name: kept / str(n) for n, name in enumerate(names)}


def _plan(
    text: str,
    file: str,
    lab: LabConfig,
    folder: Path,
    kept: Path,
    sealed: Preregistration | None,
    rung: int,
    losses: Sequence[Loss],
    problems: Sequence[Problem],
) -> tuple[str, list[str]]:
    graph = declaration.drafted(declaration.read(text, file), lab)
    for place, message in losses:
        graph.complaints.lose(place, message)
    for problem in problems:
        graph.complaints.add(problem)
    if sealed is None and (number := graph.experiment.preregistration) is not None:
        words = (
            f"#{number} is not a sealed preregistration of this repository; open one with "
            "the experiment form, wait for its seal, then push to this branch again"
        )
        graph.complaints.say(("preregistration",), words)
    called = str(Path(file).parent)
    found = planner.make_plan(graph, folder, called=called, sealed=sealed, rung=rung)
    record = found.model_dump_json()
    if (size := len(record)) > MAX_RECORD:
        words = (
            f"its plan of {len(found.steps):,} steps has {size:,} bytes, and {MAX_RECORD:,} is the "
            "most; take steps out, or declare them in several experiments"
        )
        graph.complaints.say(graph.experiment.arms_at, words)
        graph.complaints.end()
    contents = planner.contents(found, folder)
    for number, content in enumerate(contents.values()):
        (kept / str(number)).write_bytes(content)
    return record, list(contents)


def _call(file: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function answers in a child. Raises BadExperiment."""
    try:
        value, problems = limited.call(
            _reported, function, arguments, limits=LIMITS, prepare=prepare
        )
    except limited.Refused as error:
        words = f"it cannot be planned: {error}"
        words += "" if error.kind == "raised" else "; make it smaller"
        raise BadExperiment([Problem(file, None, "", words)]) from error
    if problems:
        raise BadExperiment([Problem(*problem) for problem in problems])
    return value


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
