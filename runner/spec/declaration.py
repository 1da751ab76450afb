"""experiment.yaml → Experiment: one declared experiment, every default filled in.

Reading is not running: a stranger's file goes through here, so nothing in it is executed and
every complaint names file, line, field and, where there is one, the near miss.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from engine.config.schema import (
    ComputeConfig,
    Config,
    DataConfig,
    EvalConfig,
    ModelConfig,
    TrainConfig,
)
from runner.lib import yaml_lines
from runner.lib.problems import MOST_PROBLEMS, dotted, in_order, near, telling, told
from runner.lib.problems import BadExperiment as BadExperiment
from runner.lib.problems import Problem as Problem
from runner.schema import devices as schema_devices
from runner.schema import tracks
from runner.schema.own_model import Options, OwnModel
from runner.schema.record import ARM_NAME, Resources, Speedrun, run_of
from runner.spec import ladder as spec_ladder
from runner.spec import steps as stepping
from runner.spec.ladder import Ladder
from runner.spec.step_types import Own, Train, in_the_way
from runner.spec.steps import Node, StepName
from runner.spec.steps import Step as Step

FILE_NAME = "experiment.yaml"
PYTHON_NAME = "experiment.py"  # declares an experiment by running; see `runner.planning.lockfile`
LOCK_NAME = "experiment.lock.yaml"  # what that said, as data
MOST_RUNS = 256
BYTES = 256  # ids of the byte tokenizer

C = TypeVar("C", bound=Config)

ArmName = Annotated[str, StringConstraints(pattern=f"^{ARM_NAME}$")]
Title = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
Seed = Annotated[int, Field(ge=0, lt=2**31, strict=True)]


class _Arm(BaseModel):
    """What an arm changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: dict[str, Any] = {}
    train: dict[str, Any] = {}
    own: dict[str, Any] = {}
    options: dict[str, Any] = {}
    compute: dict[str, Any] = {}


class Asked(Resources):
    """What an experiment asks for, and what all of it may take at most."""

    ceiling_hours: Annotated[float, Field(gt=0, le=1e6)] | None = None  # device-hours


class _Declaration(BaseModel):
    """experiment.yaml as it is written. `model`, `train`, `own`, `options` and `compute` are
    completed by each arm; they are as in a `train` step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Title
    preregistration: Annotated[int, Field(ge=1, strict=True)] | None = None
    data: DataConfig
    model: dict[str, Any]
    train: dict[str, Any]
    own: dict[str, Any] = {}
    options: dict[str, Any] = {}
    compute: dict[str, Any] = {}
    eval: EvalConfig = EvalConfig()
    resources: Asked
    speedrun: Speedrun | None = None
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    arms: Annotated[dict[ArmName, _Arm], Field(min_length=1)] = {"main": _Arm()}
    ladder: Ladder | None = None


class Declaration(BaseModel):
    """An experiment with steps, which say all that is done themselves, as it is declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    title: Title
    preregistration: Annotated[int, Field(ge=1, strict=True)] | None = None
    resources: Asked
    speedrun: Speedrun | None = None
    steps: Annotated[dict[StepName, Step], Field(min_length=1)]


@dataclass(frozen=True)
class Experiment:
    """A declared experiment, resolved: the nodes of its graph, each with its whole configuration.
    One that was declared as arms and seeds has `data`, too."""

    title: str
    preregistration: int | None
    data: DataConfig | None
    eval: EvalConfig
    resources: Resources
    seeds: tuple[int, ...]
    nodes: Mapping[str, Node]
    file: str
    document: yaml_lines.Document  # to say where something stands
    ceiling_hours: float | None = None
    speedrun: Speedrun | None = None
    ladder: Ladder | None = None

    @property
    def arms(self) -> dict[str, Train]:
        """What its nodes train, by arm, the one declared first in front."""
        found: dict[str, Train] = {}
        for name, node in self.nodes.items():
            run = run_of(name, node.do, node.config)
            if run and isinstance(node.checked, Train):
                found.setdefault(run[0], node.checked)
        return found

    def problem(self, path: yaml_lines.Path, message: str) -> Problem:
        """A complaint about the value at `path` of this experiment's file."""
        return Problem(self.file, self.document.line(path), dotted(path), message)

    def source(self, node: str) -> yaml_lines.Path:
        """Where the text of a `tokenize` node is named."""
        place = self.place(node)
        return (*place, "source") if place == ("data",) else (*place, "config", "source")

    def place(self, node: str) -> yaml_lines.Path:
        """Where a node was declared: at its step, or at what stands for it in the short form."""
        step, _, point = node.partition("/")
        if "steps" in self.document.value:
            return ("steps", step)
        if step == "tokenize":
            return ("data",)
        if step == "evaluate":
            return ("eval",)
        own: yaml_lines.Path = ("arms", point.partition(",")[0], "own")
        return own if own in self.document.lines else own[2:]


def load(path: Path) -> Experiment:
    """Read the experiment in the folder (or file) `path`. Raises BadExperiment."""
    file = path
    if path.is_dir():
        file = path / declaring(str(path), lambda name: (path / name).is_file())
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        words = f"there is no such file; an experiment is a folder with an `{FILE_NAME}`"
        raise BadExperiment([Problem(str(file), 1, "", words)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadExperiment([Problem(str(file), 1, "", f"it cannot be read: {error}")]) from error
    return parse(text, str(file))


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


def parse(text: str, file: str) -> Experiment:
    """Read the text of an experiment.yaml; `file` is how complaints call it.

    Raises BadExperiment with every problem found, in the order of their lines.
    """
    try:
        document = yaml_lines.read(text)
    except yaml_lines.BadYaml as error:
        raise BadExperiment([Problem(file, error.line, "", str(error))]) from error
    if not isinstance(document.value, dict):
        words = "it must be a mapping with keys such as `title`, `model` and `train`"
        raise BadExperiment([Problem(file, 1, "", words)])
    if "steps" in document.value:
        return _with_steps(document, file)
    try:
        declared = _Declaration.model_validate(document.value)
    except ValidationError as error:
        details: list[tuple[yaml_lines.Path, ErrorDetails]]
        details = [((), detail) for detail in error.errors(include_url=False)]
        found = [
            told(file, document, _Declaration, detail)
            for _, detail in telling(details, [])[: MOST_PROBLEMS + 1]
        ]
        raise BadExperiment(in_order(found)) from error
    if (runs := len(declared.seeds) * len(declared.arms)) > MOST_RUNS:
        place: yaml_lines.Path = ("seeds",) if len(declared.seeds) > 1 else ("arms",)
        words = f"{runs} runs are more than the {MOST_RUNS} that one experiment may have"
        raise BadExperiment([Problem(file, document.line(place), dotted(place), words)])
    problems: dict[Problem, None] = {}  # in the order they were found, each once
    everything = document, file, declared, problems
    own = _resolved(*everything, Own, "own", [*declared.arms])
    own_models = [name for name in declared.arms if name in own and own[name].model]
    models = _resolved(
        *everything, ModelConfig, "model", [x for x in declared.arms if x not in own_models]
    )
    _resolved(*everything, OwnModel, "model", own_models)
    _resolved(*everything, Options, "options", [*declared.arms])
    _resolved(*everything, ComputeConfig, "compute", [*declared.arms])
    trains = _resolved(*everything, TrainConfig, "train", [*declared.arms])
    experiment = Experiment(
        title=declared.title,
        preregistration=declared.preregistration,
        data=declared.data,
        eval=declared.eval,
        resources=_devices(declared.resources),
        seeds=declared.seeds,
        nodes={},
        file=file,
        document=document,
        ceiling_hours=declared.resources.ceiling_hours,
        speedrun=declared.speedrun,
        ladder=declared.ladder,
    )
    for sense in (
        _sense_of_ladder(experiment, declared, own),
        _sense(experiment),
        _sense_of_arms(experiment, models, trains),
        _sense_of_own(experiment, declared, own, trains),
    ):
        problems.update(dict.fromkeys(sense))
    if problems:
        raise BadExperiment(in_order(list(problems)))
    return replace(experiment, nodes=_in_steps(experiment, declared))


def _with_steps(document: yaml_lines.Document, file: str) -> Experiment:
    """Read an experiment that declares steps. Raises BadExperiment."""
    if both := sorted(_SHORT & document.value.keys()):
        words = "goes with arms and seeds; where there are `steps`, it belongs into a step's config"
        found = [Problem(file, document.line((key,)), key, words) for key in both]
        raise BadExperiment(in_order(found))
    try:
        declared = Declaration.model_validate(document.value, by_name=False, by_alias=True)
    except ValidationError as error:
        details = error.errors(include_url=False)[: MOST_PROBLEMS + 1]
        raise BadExperiment(
            in_order([told(file, document, Declaration, detail) for detail in details])
        ) from error
    devices = _devices(declared.resources)
    nodes, problems = stepping.nodes(declared.steps, devices, file, document)
    if problems:
        raise BadExperiment(in_order(problems))
    experiment = Experiment(
        title=declared.title,
        preregistration=declared.preregistration,
        data=None,
        eval=EvalConfig(),
        resources=devices,
        seeds=(),
        nodes=nodes,
        file=file,
        document=document,
        ceiling_hours=declared.resources.ceiling_hours,
        speedrun=declared.speedrun,
    )
    if problems := [*_sense(experiment), *_sense_of_nodes(experiment)]:
        raise BadExperiment(in_order(problems))
    return experiment


def _devices(asked: Asked) -> Resources:
    return Resources(kind=asked.kind, count=asked.count)


def _in_steps(experiment: Experiment, declared: _Declaration) -> Mapping[str, Node]:
    """Arms and seeds as the steps that they stand for. Raises BadExperiment, where what stands in
    these is told where the author wrote it."""
    points = [
        {
            "name": name,
            **{
                section: {**getattr(declared, section), **getattr(arm, section)}
                for section in ("model", "train", "own", "options", "compute")
            },
        }
        for name, arm in declared.arms.items()
    ]
    trains = experiment.resources
    others = Resources(kind=schema_devices.beside(trains.kind))
    steps = {
        "tokenize": Step(do="tokenize", config=declared.data.model_dump(), resources=others),
        "train": Step(
            do="train",
            inputs={"tokens": "tokenize"},
            sweep=points,
            seeds=declared.seeds,
            resources=trains,
        ),
        "evaluate": Step(
            do="evaluate",
            inputs={"models": "train", "tokens": "tokenize"},
            config=declared.eval.model_dump(),
            resources=others,
        ),
    }
    nodes, problems = stepping.nodes(steps, trains, experiment.file, experiment.document)
    if problems:
        raise BadExperiment(in_order([_in_short(experiment, one) for one in problems]))
    return nodes


def _in_short(experiment: Experiment, problem: Problem) -> Problem:
    """A complaint about a step, at what the author wrote in its place."""
    _, _, inside = problem.field.partition(".")[2].partition(".")
    path = tuple(inside.removeprefix("config.").split("."))
    while path and path not in experiment.document.lines:
        path = path[:-1]
    return experiment.problem(path, problem.message)


def _sense_of_own(
    experiment: Experiment,
    declared: _Declaration,
    own: Mapping[str, Own],
    trains: Mapping[str, TrainConfig],
) -> Iterator[Problem]:
    """What own code cannot be together with."""
    for name, arm in declared.arms.items():
        if name in own and name in trains and (words := in_the_way(own[name], trains[name])):
            yield experiment.problem(("arms", name, "own") if arm.own else ("own",), words)
        if (declared.options or arm.options) and own.get(name) == Own():
            path: yaml_lines.Path = ("arms", name, "options") if arm.options else ("options",)
            words = f"`options` are for functions of `own`, and the arm `{name}` names none"
            yield experiment.problem(path, words)


def _sense_of_ladder(
    experiment: Experiment, declared: _Declaration, own: Mapping[str, Own]
) -> Iterator[Problem]:
    if declared.ladder:
        for path, words in spec_ladder.problems(
            declared.ladder,
            declared.arms,
            len(declared.seeds),
            own=any(x != Own() for x in own.values()),
        ):
            yield experiment.problem(path, words)


_SHORT = _Declaration.model_fields.keys() - Declaration.model_fields.keys()


def _sense(experiment: Experiment) -> list[Problem]:
    """What is well formed and still makes no sense."""
    found = []
    resources, entered = experiment.resources, experiment.speedrun
    if entered and experiment.ladder:
        words = "a ladder is many plans, and an entry is one; enter what it comes to by itself"
        found.append(experiment.problem(("speedrun",), words))
    if entered and entered.track not in tracks.known():
        words = f"there is no track `{entered.track}`; there are {', '.join(tracks.known())}"
        words += near(entered.track, tracks.known())
        found.append(experiment.problem(("speedrun", "track"), words))
    short = experiment.data is not None
    if wrong := schema_devices.misfit(resources.kind, resources.count, trains=short):
        key, words = wrong
        found.append(experiment.problem(("resources", key), words))
    if len(set(experiment.seeds)) != len(experiment.seeds):
        found.append(experiment.problem(("seeds",), "a seed stands twice; each is one run"))
    return found


def _sense_of_arms(
    experiment: Experiment,
    models: Mapping[str, ModelConfig],
    trains: Mapping[str, TrainConfig],
) -> Iterator[Problem]:
    """What arms cannot say, as all of them train on one text."""
    written = experiment.document.lines
    for name, train in trains.items():
        for number, phase in enumerate(train.phases):
            for key in ("tokens", "weights"):
                if getattr(phase, key) is not None:
                    words = "arms have one text; data can change where there are `steps`"
                    place: yaml_lines.Path = ("train", "phases", number, key)
                    own = ("arms", name, "train", "phases") in written
                    yield experiment.problem(("arms", name, *place) if own else place, words)
    for name, model in models.items():
        place = ("arms", name, "model", "vocab_size")
        if model.vocab_size < BYTES:
            yield experiment.problem(place if place in written else place[2:], _few_rows(model))


def _sense_of_nodes(experiment: Experiment) -> Iterator[Problem]:
    told = set()
    for name, node in experiment.nodes.items():
        model = getattr(node.checked, "model", None)
        step = name.partition("/")[0]
        if isinstance(model, ModelConfig) and model.vocab_size < BYTES and step not in told:
            told.add(step)
            yield experiment.problem(
                ("steps", step, "config", "model", "vocab_size"), _few_rows(model)
            )


def _few_rows(model: ModelConfig) -> str:
    return f"{model.vocab_size} rows are too few: the byte tokenizer has ids up to 255"


def _resolved(
    document: yaml_lines.Document,
    file: str,
    declared: _Declaration,
    problems: dict[Problem, None],
    schema: type[C],
    section: Literal["model", "train", "own", "options", "compute"],
    arms: Collection[str],
) -> dict[str, C]:
    """The section of each of these arms, but for those with problems, which are noted where they
    stand.

    What all arms share is looked at once: a file's length bounds the work, and not its square.
    """
    base: dict[str, Any] = getattr(declared, section)
    free = schema.model_config.get("extra") == "allow"
    shared = {key: value for key, value in base.items() if free or key in schema.model_fields}
    unknown = {key: value for key, value in base.items() if key not in shared}
    misspelt = list(unknown)[:MOST_PROBLEMS]
    known: set[tuple[object, ...]] = set()
    found = {}
    for name in arms:
        override: dict[str, Any] = getattr(declared.arms[name], section)
        try:
            # The keys that no arm may have are told with the first one.
            found[name] = schema.model_validate({**shared, **unknown, **override})
        except ValidationError as error:
            fresh: list[tuple[yaml_lines.Path, ErrorDetails]] = []
            for detail in error.errors(include_url=False):
                key = str(detail["loc"][0]) if detail["loc"] else ""
                here = key in override if key else bool(override)
                under: yaml_lines.Path = ("arms", name) if here else ()
                written = (*under, section)
                if (written, detail["loc"], detail["type"]) not in known:
                    known.add((written, detail["loc"], detail["type"]))
                    fresh.append((written, detail))
            for place, detail in telling(fresh, misspelt):
                if len(problems) > MOST_PROBLEMS:
                    break
                problems[told(file, document, schema, detail, place)] = None
        unknown = {}
    return found
