"""A declaration, from its text to the graph that it stands for. Reading is not running: a
stranger's file goes through here, so nothing in it is executed, and every complaint names file,
line, field and, where there is one, the near miss.

It goes one way, stage by stage, each of which tells all that it finds wrong:

    text → Document → Experiment → Graph → Plan

The text's keys and values have lines in a `Document`; an `Experiment` (`runner.spec.experiment`) is
what the author said; the `Graph` (`runner.spec.graph`) has all that this stands for, written out;
and the `Plan` (`runner.planning.planner`) what is to run, with its fingerprints and its cost.
"""

from collections.abc import Callable
from pathlib import Path

from runner.lib import problems
from runner.lib.problems import BadExperiment, Document, Problem
from runner.schema import lab_config
from runner.schema.lab_config import LabConfig
from runner.spec.experiment import checked
from runner.spec.graph import Graph, written_out

FILE_NAME = "experiment.yaml"
PYTHON_NAME = "experiment.py"  # declares an experiment by running; see `runner.planning.lockfile`
LOCK_NAME = "experiment.lock.yaml"  # what that said, as data


def load(path: Path) -> Graph:
    """What the folder (or file) `path` declares in the lab whose checkout it is in. Raises
    BadExperiment."""
    document = find(path)
    return written_out(document, checked(document), lab_config.find(path))


def parse(text: str, file: str, lab: LabConfig | None = None) -> Graph:
    """What the text of an experiment.yaml declares in a lab (None: one that decides nothing);
    `file` is how complaints call it. Raises BadExperiment with every problem found, in the order of
    their lines."""
    document = read(text, file)
    return written_out(document, checked(document), lab or lab_config.defaults())


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
            raise BadExperiment([Problem(f"{folder}/{name}", 1, "", f"it {words}")])
    return LOCK_NAME


def read(text: str, file: str) -> Document:
    """The keys and values of a text, with their lines. Raises BadExperiment."""
    return problems.read(text, file, "`title`, `model` and `train`")
