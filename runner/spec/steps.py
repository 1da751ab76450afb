"""`steps:` of an experiment → nodes of a graph: each step with its whole configuration, a sweep as
many nodes. Like all of a declaration it is read and not run: what is wrong is said with its line.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationError,
)

from engine.config import memory
from engine.config.phases import InputName
from engine.config.schema import MeshConfig, refusal
from runner.lib import yaml_lines
from runner.lib.canonical_json import to_json
from runner.lib.problems import Problem, dotted, near, told
from runner.schema import devices as schema_devices
from runner.schema import step_graph
from runner.schema.record import Resources
from runner.spec.step_inputs import CHECKS, read_by, unfit
from runner.spec.step_types import BUILT_IN, FUNCTION, Own, Train, logical, own_of, schema_of

APART = "declare the point that is meant as a step of its own"
NO_OWN, ONE_DEVICE = Own(), MeshConfig()
MOST_NODES = 10_000
MOST_LABEL = 100  # bytes of a point's name, which becomes part of names of files
MOST_DEPTH = 10  # sections that a key of a sweep leads through
MOST_BYTES = 8_000_000  # of all configurations, as the points of sweeps multiply them
MOST_INPUTS = 200_000  # that the points of one step take together

StepName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
SEEDS = 2**31  # a seed is less
Seed = Annotated[int, Field(ge=0, lt=SEEDS, strict=True)]


def _sweep(value: Any) -> dict[str, list[Any]] | list[dict[str, Any]]:
    points = value if isinstance(value, list) else [value]
    for key in (key for one in points if isinstance(one, dict) for key in one):
        if str(key).count(".") >= MOST_DEPTH:
            raise refusal("a key leads through {most} sections at most", most=MOST_DEPTH)
    if isinstance(value, dict) and "name" in value:
        raise refusal("`name` names a point of a list; in a grid it varies nothing")
    if isinstance(value, dict) and all(isinstance(x, list) and x for x in value.values()):
        return value
    if isinstance(value, list) and all(isinstance(x, dict) and x for x in value):
        return value
    raise refusal(
        "a sweep is a grid, such as {grid}, or a list of points, such as {points}",
        grid="{seed: [0, 1], train.learning_rate: [0.1, 0.2]}",
        points="[{name: wide, model.hidden_dim: 96}]",
    )


def _alias(name: str) -> str:
    if name and not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name):
        raise refusal(
            "an alias has a–z, 0–9, `.`, `_` and `-`, at most 64, a letter or digit first; write "
            "one such as fineweb-2026-11"
        )
    return name


AliasName = Annotated[str, AfterValidator(_alias)]


class Step(BaseModel):
    """A step as it is declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True)

    do: str
    config: dict[str, Any] = {}
    inputs: dict[InputName, str] = {}
    sweep: Annotated[dict[str, list[Any]] | list[dict[str, Any]], PlainValidator(_sweep)] = {}
    seeds: tuple[Seed, ...] = ()  # of each point of the sweep, where the step has a seed
    resources: Resources | None = None
    alias: AliasName = Field(default="", alias="as")


@dataclass(frozen=True)
class Node:
    """One thing to make: a step, or one point of its sweep as `step/label`."""

    do: str
    function: str  # module:function that makes it
    own: tuple[str, ...]  # module:function of the experiment's folder that it reaches
    config: dict[str, Any]
    inputs: dict[str, tuple[str, ...]]  # {input: nodes}
    resources: Resources
    checked: BaseModel | None = None  # the configuration of a built-in, as its schema read it
    alias: str = ""


def nodes(
    steps: Mapping[str, Step],
    resources: Resources,
    file: str,
    document: yaml_lines.Document,
) -> tuple[dict[str, Node], list[Problem]]:
    """Every node, each after its inputs, and what is wrong with the steps."""
    reader = _Reader(steps, resources, file, document)
    if (count := sum(map(_combinations, steps.values()))) > MOST_NODES:
        words = f"{count:,} steps are more than the {MOST_NODES:,} that one experiment may have"
        return {}, [reader.problem((), words)]
    counts = {name: _combinations(step) for name, step in steps.items()}
    for name, step in steps.items():
        size = len(str(step.config)) * counts[name] + _swept_bytes(step, counts[name])
        if size > MOST_BYTES:
            words = f"its points make {size:,} bytes of configuration; {MOST_BYTES:,} is the most"
            return {}, [reader.problem((name, "sweep"), words)]
    for name, step in steps.items():
        taken = counts[name] * sum(counts.get(of, 0) for of in step.inputs.values())
        if taken > MOST_INPUTS:
            words = (
                f"its {counts[name]:,} points take {taken:,} inputs together, and {MOST_INPUTS:,} "
                "is the most; a point takes all points of a sweep that it has as input"
            )
            return {}, [reader.problem((name, "inputs"), words)]
    found = {name: dict(reader.points(name)) for name in steps}
    if reader.problems:
        return {}, reader.problems
    try:
        sequence = step_graph.order(
            {name: set(step.inputs.values()) for name, step in steps.items()}
        )
    except step_graph.BadGraph as error:
        return {}, [reader.problem((error.steps[0], "inputs"), str(error))]
    made: dict[str, Node] = {}
    for name in sequence:
        step = steps[name]
        for node, (config, checked) in found[name].items():
            read = read_by(step.do, config, step.inputs)
            inputs = {key: tuple(found[of]) for key, of in step.inputs.items() if key in read}
            made[node] = Node(
                do=step.do,
                function=logical(step.do),
                own=own_of(step.do, config) or tuple(_own_models(step.do, inputs, made)),
                config=config,
                inputs=inputs,
                resources=step.resources or resources,
                checked=checked,
                alias=step.alias,
            )
    return made, []


class _Reader:
    """Reads steps one by one and collects what is wrong."""

    def __init__(
        self,
        steps: Mapping[str, Step],
        resources: Resources,
        file: str,
        document: yaml_lines.Document,
    ) -> None:
        self._steps, self._resources = steps, resources
        self._file, self._document = file, document
        self.problems: list[Problem] = []

    def problem(self, path: yaml_lines.Path, message: str) -> Problem:
        path = ("steps", *path)
        return Problem(self._file, self._document.line(path), dotted(path), message)

    def points(self, name: str) -> Iterator[tuple[str, tuple[dict[str, Any], BaseModel | None]]]:
        """The nodes of a step and their configurations; of a built-in's as its schema reads it."""
        step = self._steps[name]
        self._check(name, step)
        points, many = step_graph.points(step.sweep, step.seeds), bool(step.sweep or step.seeds)
        if many and len(points) < _combinations(step):
            self._say((name, "sweep"), "two of its points have the same name; name them in a list")
        idle = set(step.inputs)
        inputs = {key: self._parts(of) for key, of in step.inputs.items()}
        made = {
            key: (of, self._steps[of].do) for key, of in step.inputs.items() if of in self._steps
        }
        read: dict[str, tuple[dict[str, Any], BaseModel]] = {}  # by all that varies but the seed
        for label, values in points.items():
            if len(label.encode()) > MOST_LABEL:
                words = f"a point would be called `{label[:40]}…`, which is too long; name it"
                self._say((name, "sweep"), f"{words} in a list, as {{name: wide, …}}")
                return
            node = f"{name}/{label}" if many else name
            arm = repr({key: value for key, value in values.items() if key != "seed"})
            seed = values.get("seed")
            if arm in read and type(seed) is int and 0 <= seed < SEEDS:
                config, of_arm = read[arm]
                yield node, ({**config, "seed": seed}, of_arm.model_copy(update={"seed": seed}))
                continue
            try:
                config = step_graph.merged(step.config, values)
            except KeyError as error:
                words = f"`{error.args[0]}` leads through something that is no mapping"
                self._say((name, "sweep"), words)
                return
            checked, known = None, step.do in BUILT_IN
            if known and (checked := self._checked(name, step, config, values)) is None:
                return
            if not known and not self._is_finite(name, config):
                return
            config = checked.model_dump(mode="json") if checked else config
            for path, words in unfit(step.do, config, made) if known else ():
                self._say((name, *path), words)
            if step.do == "tokenize" and (config["source"] is None) != ("text" in step.inputs):
                words = "`tokenize` needs the input `text` or a `source`, and not both"
                self._say((name,), words)
                return
            given = step.do == "tokenize" and config["tokenizer"] == "given"
            if step.do == "tokenize" and given != ("tokenizer" in step.inputs):
                words = "`tokenizer: given` and the input `tokenizer` go together; write both"
                self._say((name,), words)
            for path, words in CHECKS[step.do](config, inputs) if step.do in CHECKS else ():
                self._say((name, *path), words)
            idle -= read_by(step.do, config, step.inputs)
            if isinstance(checked, Train):
                read[arm] = config, checked
            yield node, (config, checked)
        for key in sorted(idle):
            words = f"no phase has `{key}` as its `tokens`, so that it would not be trained on"
            self._say((name, "inputs", key), words + near(key, ("tokens",)))

    def _parts(self, name: str) -> tuple[str, ...] | None:
        """The parts of the mixture that a step makes; none if a built-in makes no mixture."""
        step = self._steps.get(name)
        if step is None or step.do not in BUILT_IN:
            return None
        return tuple(step.inputs) if step.do == "mix" else ()

    def _check(self, name: str, step: Step) -> None:
        if (asked := step.resources) and (
            wrong := schema_devices.misfit(asked.kind, asked.count, trains=step.do == "train")
        ):
            self._say((name, "resources", wrong[0]), wrong[1])
        if step.alias:
            first = next(one for one, other in self._steps.items() if other.alias == step.alias)
            if first != name:
                words = f"`{step.alias}` is the alias of `{first}` already; write another one"
                self._say((name, "as"), words)
            if (count := _combinations(step)) > 1:
                words = f"an alias names one output, and this sweep makes {count:,}; take it out"
                self._say((name, "as"), words)
        for key, of in step.inputs.items():
            if of not in self._steps:
                self._say((name, "inputs", key), self._missing(of))
        if len(set(step.seeds)) != len(step.seeds):
            self._say((name, "seeds"), "a seed stands twice; each is one run")
        if re.fullmatch(FUNCTION, step.do):
            return
        if (built_in := BUILT_IN.get(step.do)) is None:
            known = ", ".join(f"`{one}`" for one in BUILT_IN)
            words = f"there is no built-in `{step.do}`; there are {known}, or write module:function"
            self._say((name, "do"), words + near(step.do, BUILT_IN))
            return
        takes = (*built_in.inputs, *built_in.optional)
        for key, of in step.inputs.items():
            if key not in takes and not built_in.others:
                words = f"`{step.do}` takes {_listed(takes)}{near(key, takes)}"
                self._say((name, "inputs", key), words)
            elif self._is_sweep(of) and key not in built_in.sweeps:
                words = f"`{of}` is a sweep, and `{step.do}` takes one output here; {APART}"
                self._say((name, "inputs", key), words)
        for key in built_in.inputs:
            if key not in step.inputs:
                self._say((name,), f"`{step.do}` needs the input `{key}`")

    def _is_sweep(self, name: str) -> bool:
        step = self._steps.get(name)
        return step is not None and bool(step.sweep or step.seeds)

    def _missing(self, of: str) -> str:
        """What to say of an input that is no step: it may be meant for a point of a sweep."""
        step = of.partition("/")[0]
        if step != of and self._is_sweep(step):
            return f"`{of}` would be one point of `{step}`, and an input is a whole step; {APART}"
        return f"there is no step `{of}`{near(step, self._steps)}"

    def _is_finite(self, name: str, config: dict[str, Any]) -> bool:
        """Whether no number of an own function's configuration is infinite or none at all."""
        try:
            to_json(config)
        except ValueError:
            self._say((name, "config"), "it has a number that is not finite")
            return False
        return True

    def _checked(
        self, name: str, step: Step, config: dict[str, Any], values: Mapping[str, Any]
    ) -> BaseModel | None:
        """A built-in's configuration at the point of its sweep that has these values, with every
        default filled in."""
        schema = schema_of(step.do, config)
        try:
            return self._spread(name, schema.model_validate(config))
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                where = ("steps", name, "config")
                found = told(self._file, self._document, schema, detail, where)
                if swept := _swept(step, values, detail["loc"]):
                    found = self.problem((name, "sweep", *swept), found.message)
                if found not in self.problems:
                    self.problems.append(found)
            return None

    def _spread(self, name: str, config: BaseModel) -> BaseModel:
        """Over all devices of the step: as it says, or else each with a part of the batch."""
        if not isinstance(config, Train):
            return config
        devices = (self._steps[name].resources or self._resources).count
        if config.own != NO_OWN:
            if devices > 1:
                words = "functions of one's own train on one device so far; write `count: 1`"
                self._say((name, "resources", "count"), words)
            return config
        compute = config.compute
        if devices == 1 and compute.mesh == ONE_DEVICE:
            return config
        if compute.mesh == ONE_DEVICE:
            compute = compute.model_copy(update={"mesh": MeshConfig(data=devices)})
        for wrong in memory.misfits(
            compute.mesh, devices=devices, model=config.model, train=config.train
        ):
            place = (name, "config", *wrong.field.split("."))
            if self.problem(place, wrong.words) not in self.problems:
                self._say(place, wrong.words)
        return config.model_copy(update={"compute": compute})

    def _say(self, path: yaml_lines.Path, words: str) -> None:
        if (found := self.problem(path, words)) not in self.problems:
            self.problems.append(found)


def _swept(step: Step, values: Mapping[str, Any], place: yaml_lines.Path) -> yaml_lines.Path:
    """Where in the step's sweep the value at `place` of a point's configuration is written; empty
    where it is not of the sweep."""
    for key, value in values.items():
        parts = tuple(key.split("."))
        if place[: len(parts)] != parts:
            continue
        below = tuple(part for part in place[len(parts) :] if part != "[key]")
        if isinstance(step.sweep, dict):
            written = step.sweep.get(key, [])  # which lacks the step's `seeds`
            return next(((key, n, *below) for n, one in enumerate(written) if one is value), ())
        for number, point in enumerate(step.sweep):
            if key in point and all(values[x] is y for x, y in point.items() if x != "name"):
                return (number, key, *below)
    return ()


def _own_models(
    do: str, inputs: Mapping[str, tuple[str, ...]], made: Mapping[str, Node]
) -> list[str]:
    """The functions that a step calls to score models of the experiment's own: those of the steps
    that trained them, also where own steps have changed the models since."""
    found: dict[str, None] = {}
    waiting = list(inputs["models"]) if do == "evaluate" else []
    seen = set(waiting)
    for name in waiting:  # which grows while we walk it
        node = made[name]
        if node.do == "train":
            found[node.config["own"].get("model", "")] = None
        elif node.do not in BUILT_IN:
            fresh = {other for these in node.inputs.values() for other in these} - seen
            seen |= fresh
            waiting += sorted(fresh)
    return list(filter(None, found))


def _combinations(step: Step) -> int:
    seeds = len(step.seeds) or 1
    if isinstance(step.sweep, list):
        return (len(step.sweep) or 1) * seeds
    return math.prod(map(len, step.sweep.values())) * seeds


def _swept_bytes(step: Step, count: int) -> int:
    """How long the values are that a sweep puts into its points."""
    if isinstance(step.sweep, list):
        return len(str(step.sweep)) * (len(step.seeds) or 1)
    return sum(len(str(values)) * count // len(values) for values in step.sweep.values())


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(f"`{name}`" for name in names) or "no inputs"
