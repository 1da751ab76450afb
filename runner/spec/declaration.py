"""Turns the text of a declaration into a graph of steps. Nothing in it is executed, because it may
come from a stranger. Every error names file, line, field and a did-you-mean if there is one.

There are four stages; each reports all problems that it finds:

    text → Document → Experiment → Graph → Plan

A `Document` has the text's keys and values with their lines. An `Experiment`
(`runner.spec.experiment`) is the declaration, checked. The `Graph` (`runner.spec.graph`) has every
short form written out. The `Plan` (`runner.planning.planner`) is what will run, with fingerprints
and cost.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runner.lib import problems, yaml_lines
from runner.lib.complaints import Complaints
from runner.lib.format import flow
from runner.lib.problems import BadExperiment, Document, Problem
from runner.schema import lab_config
from runner.schema.lab_config import LabConfig
from runner.spec.experiment import checked
from runner.spec.graph import Graph, written_out
from runner.spec.training_steps import Own

FILE_NAME = "experiment.yaml"
PYTHON_NAME = "experiment.py"  # declares an experiment in Python; see `runner.planning.lockfile`
LOCK_NAME = "experiment.lock.yaml"  # the same declaration as data
STARTERS = Path(__file__).parent / "starters"  # first experiments
OTHERS = {  # examples of keys that the first starter does not have
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
    "samples.tokens": "64",
    "tokens": "16384",
    "ladder": "{floor: 0.6, exponent: 0.1, rungs: [{baseline: a, variant: b}]}",
    "floor": "0.6",
    "exponent": "0.1",
    "rungs": "[{baseline: small, variant: small-new}, {baseline: large, variant: large-new}]",
    "baseline": "small",
    "variant": "small-new",
    "ablate": "{sizes: {s: {…}, l: {…}}, hold_one_out: {qk-norm: {model: {qk_norm: none}}}}",
    "isoflop": "{budgets: [1e12, 4e12], sizes: {small: {…}, middle: {…}, large: {…}}}",
    "sizes": "{small: {model: {hidden_dim: 32}}, large: {model: {hidden_dim: 64}}}",
    "hold_one_out": "{qk-norm: {model: {qk_norm: none}}}",
    "add_one": "{soap: {train: {optimizer: soap}}}",
    "budgets": "[1e12, 4e12]",
    "ahead": "[1e15]",
    "tune": "{trials: 24, seeds: [100, 101], times: {learning_rate: [0.5, 1, 2]}}",
    "trials": "24",
    "search": "{trials: 24, seeds: [100, 101], times: {learning_rate: [0.5, 1, 2]}}",
    "tune.search": "coordinate",
    "values": "{weight_decay: [0.0, 0.1, 0.2]}",
    "times": "{learning_rate: [0.25, 0.5, 1, 2, 4]}",
    "tokens_per_parameter": "[2, 250]",
    "speedrun": "{track: small-cost, author: {name: Ada Lovelace}}",
    "track": "small-cost",
    "author": "{name: Ada Lovelace}",
}


def load(path: Path) -> Graph:
    """The graph that the folder (or file) `path` declares, in the lab whose checkout it is in.
    Raises BadExperiment."""
    return _sound(drafted(find(path), lab_config.find(path)))


def parse(text: str, file: str, lab: LabConfig | None = None) -> Graph:
    """The graph that the text of an experiment.yaml declares in a lab (None: one with the
    defaults); errors name the file as `file`. Raises BadExperiment with every problem, by line."""
    return _sound(drafted(read(text, file), lab or lab_config.defaults()))


def drafted(document: Document, lab: LabConfig) -> Graph:
    """The graph of a document in a lab as far as it is readable, with the problems so far; planning
    adds further ones. Raises BadExperiment if too little is readable."""
    complaints = Complaints(document)
    return written_out(document, checked(document, complaints), complaints, lab)


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
    """Whether an `experiment.py` generated it."""
    return Path(document.file).name == LOCK_NAME


def declaring(folder: str, has: Callable[[str], bool]) -> str:
    """Which file of a folder declares its experiment: `experiment.yaml`, or the lock of an
    `experiment.py`. Raises BadExperiment if there are both."""
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
    """{key: an example value}, from the first starter."""
    text = (STARTERS / "plain" / FILE_NAME).read_text(encoding="utf-8")
    starter: dict[str, Any] = yaml_lines.read(text).value
    inner = (value for value in starter.values() if isinstance(value, dict))
    whole = {key: value for one in (*inner, starter) for key, value in one.items()}
    return {key: flow(value) for key, value in whole.items()} | OTHERS
