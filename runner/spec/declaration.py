"""A declaration, from its text to the graph that it stands for. Reading is not running: a
stranger's file goes through here, so nothing in it is executed, and every complaint names file,
line, field and, where there is one, the near miss.

It goes one way, stage by stage, each of which tells all that it finds wrong:

    text → Document → Experiment → Graph → Plan

The text's keys and values have lines in a `Document`; an `Experiment` (`runner.spec.experiment`) is
what the author said; the `Graph` (`runner.spec.graph`) has all that this stands for, written out;
and the `Plan` (`runner.planning.planner`) what is to run, with its fingerprints and its cost.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runner.lib import problems, yaml_lines
from runner.lib.complaints import Complaints
from runner.lib.format import flow
from runner.lib.problems import BadExperiment, Document, Problem
from runner.spec.experiment import checked
from runner.spec.graph import Graph, written_out
from runner.spec.step_types import Own

FILE_NAME = "experiment.yaml"
PYTHON_NAME = "experiment.py"  # declares an experiment by running; see `runner.planning.lockfile`
LOCK_NAME = "experiment.lock.yaml"  # what that said, as data
STARTERS = Path(__file__).parent / "starters"  # experiments to begin with
OTHERS = {  # examples of what the first starter does not have
    "preregistration": "1",
    "count": "1",
    "ceiling_hours": "2",
    "do": "train",
    "function": "texts:shorten",
    "inputs": "{tokens: tokenize}",
    "config": "{source: stdlib}",
    "steps": "{tokenize: {do: tokenize, config: {source: stdlib}}}",
    "weights": "{prose: 2, code: 1}",
    "own": '{model: "model:Transformer"}',
    **{f"own.{key}": f"model:{key}" for key in Own.model_fields},
    "inputs.tokens": "tokenize",
    "inputs.models": "train",
    "phases.tokens": "tokens",
    "tokens": "16384",
    "ladder": "{floor: 0.6, exponent: 0.1, rungs: [{baseline: a, variant: b}]}",
    "floor": "0.6",
    "exponent": "0.1",
    "rungs": "[{baseline: small, variant: small-new}, {baseline: large, variant: large-new}]",
    "baseline": "small",
    "variant": "small-new",
    "speedrun": "{track: small-cost, author: {name: Ada Lovelace}}",
    "track": "small-cost",
    "author": "{name: Ada Lovelace}",
}


def load(path: Path) -> Graph:
    """What the folder (or file) `path` declares. Raises BadExperiment."""
    return _sound(drafted(find(path)))


def parse(text: str, file: str) -> Graph:
    """What the text of an experiment.yaml declares; `file` is how complaints call it. Raises
    BadExperiment with every problem found, in the order of their lines."""
    return _sound(drafted(read(text, file)))


def drafted(document: Document) -> Graph:
    """What a document declares as far as it can be read, with what is wrong so far, which a plan
    adds to. Raises BadExperiment where too little can be read."""
    complaints = Complaints(document)
    return written_out(document, checked(document, complaints), complaints)


def _sound(graph: Graph) -> Graph:
    graph.complaints.end()
    return graph


def find(path: Path) -> Document:
    """The declaration in the folder (or file) `path`. Raises BadExperiment."""
    file = path
    if path.is_dir():
        file = path / declaring(str(path), lambda name: (path / name).is_file())
    words = f"there is no such file; an experiment is a folder with an `{FILE_NAME}`"
    return read(problems.text_of(file, words), str(file))


def is_lock(document: Document) -> bool:
    """Whether it was made from an `experiment.py`."""
    return Path(document.file).name == LOCK_NAME


def declaring(folder: str, has: Callable[[str], bool]) -> str:
    """Which of a folder's files declares its experiment: `experiment.yaml`, or the lock of an
    `experiment.py`. Raises BadExperiment where they are in each other's way."""
    if not has(PYTHON_NAME):
        return FILE_NAME
    for name, words in (
        (FILE_NAME, f"lies beside {PYTHON_NAME}, and only one of them can declare; remove one"),
        (LOCK_NAME, f"is missing; `regatta compile {folder}` makes it from {PYTHON_NAME}"),
    ):
        if has(name) == (name == FILE_NAME):
            raise BadExperiment([Problem(f"{folder}/{name}", None, "", f"it {words}")])
    return LOCK_NAME


def read(text: str, file: str) -> Document:
    """The keys and values of a text, with their lines. Raises BadExperiment."""
    return problems.read(text, file, "`title`, `model` and `train`", examples=_examples())


@cache
def _examples() -> Mapping[str, str]:
    """{key: a value, as one writes it}, from the experiment that people begin with."""
    text = (STARTERS / "plain" / FILE_NAME).read_text(encoding="utf-8")
    starter: dict[str, Any] = yaml_lines.read(text).value
    inner = (value for value in starter.values() if isinstance(value, dict))
    whole = {key: value for one in (*inner, starter) for key, value in one.items()}
    return {key: flow(value) for key, value in whole.items()} | OTHERS
