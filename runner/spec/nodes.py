"""The graph of an experiment: its nodes, and where the file declares each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from runner.lib.complaints import Complaints
from runner.lib.problems import Document
from runner.lib.yaml_lines import Path
from runner.schema.lab_config import LabConfig
from runner.schema.record import Resources, arm_named
from runner.spec.experiment import Experiment
from runner.spec.step_types import TASKED
from runner.spec.steps import Point
from runner.spec.training_steps import Train


@dataclass(frozen=True)
class Node:
    """A step, or one point of its sweep as `step/label`."""

    do: str
    own: tuple[str, ...]  # module:function of the experiment's folder that it calls
    config: dict[str, Any]
    inputs: dict[str, tuple[str, ...]]  # {input: nodes}
    resources: Resources
    checked: BaseModel | None = None  # the configuration of a built-in, validated
    alias: str = ""
    unread: bool = False  # its configuration has problems


@dataclass(frozen=True)
class Graph:
    """Everything that an experiment runs, each node after its inputs."""

    document: Document  # for lines in errors
    experiment: Experiment
    nodes: Mapping[str, Node]
    complaints: Complaints  # the problems so far
    lab: LabConfig  # in which it is declared

    @property
    def arms(self) -> dict[str, Train]:
        """The arms that its nodes train, in the order of declaration."""
        found: dict[str, Train] = {}
        for name, node in self.nodes.items():
            if isinstance(node.checked, Train):
                found.setdefault(arm_named(name), node.checked)
        return found

    @property
    def unread(self) -> set[str]:
        """The arms whose configurations are unreadable."""
        nodes = self.nodes.items()
        return {arm_named(name) for name, node in nodes if node.do == "train" and node.unread}

    def place(self, node: str, inside: Path = ()) -> Path:
        """Where the file has the part `inside` of a node."""
        step, _, label = node.partition("/")
        return self.experiment.place(step, inside, Point(label))

    def source(self, node: str) -> Path:
        """Where the declaration names what a node reads: a text, a corpus, prompts, or tasks."""
        of = self.nodes[node]
        keys = {
            "generate": "file",
            "corpus": "corpus",
            "tokenizer": "corpus" if of.config.get("corpus") else "file",
            **dict.fromkeys(TASKED, "tasks"),
        }
        return self.place(node, ("config", keys.get(of.do, "source")))
