"""experiment.yaml → Experiment: one declared experiment, every default filled in.

Reading is not running: a stranger's file goes through here, so nothing in it is executed and
every complaint names file, line, field and, where there is one, the near miss.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from engine.config import DataConfig, EvalConfig, ModelConfig, TrainConfig
from runner import yaml12
from runner.hardware import KINDS
from runner.record import Resources

FILE_NAME = "experiment.yaml"
MOST_RUNS = 256
MOST_PROBLEMS = 50  # told of one file; who mends these is told the rest

C = TypeVar("C", ModelConfig, TrainConfig)

ARM_NAME = r"[a-z0-9_-]{1,40}"
ArmName = Annotated[str, StringConstraints(pattern=f"^{ARM_NAME}$")]
Seed = Annotated[int, Field(ge=0, lt=2**31, strict=True)]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a file, for the person who wrote it."""

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}"
        return (
            f"{where}, `{self.field}`: {self.message}" if self.field else f"{where}: {self.message}"
        )


class BadExperiment(Exception):
    """An experiment that cannot be read; `problems` says all that was found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class _Arm(BaseModel):
    """What an arm changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: dict[str, Any] = {}
    train: dict[str, Any] = {}


class _Declaration(BaseModel):
    """experiment.yaml as it is written. `model` and `train` are completed by each arm."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
    preregistration: Annotated[int, Field(ge=1, strict=True)] | None = None
    data: DataConfig
    model: dict[str, Any]
    train: dict[str, Any]
    eval: EvalConfig = EvalConfig()
    resources: Resources
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    arms: Annotated[dict[ArmName, _Arm], Field(min_length=1)] = {"main": _Arm()}


@dataclass(frozen=True)
class Experiment:
    """A declared experiment, resolved: each arm with its whole configuration."""

    title: str
    preregistration: int | None
    data: DataConfig
    eval: EvalConfig
    resources: Resources
    seeds: tuple[int, ...]
    arms: Mapping[str, tuple[ModelConfig, TrainConfig]]
    file: str
    document: yaml12.Document  # to say where something stands

    def problem(self, path: yaml12.Path, message: str) -> Problem:
        """A complaint about the value at `path` of this experiment's file."""
        return Problem(self.file, self.document.line(path), _dotted(path), message)


def load(path: Path) -> Experiment:
    """Read the experiment in the folder (or file) `path`. Raises BadExperiment."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        words = f"there is no such file; an experiment is a folder with an `{FILE_NAME}`"
        raise BadExperiment([Problem(str(file), 1, "", words)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadExperiment([Problem(str(file), 1, "", f"it cannot be read: {error}")]) from error
    return parse(text, str(file))


def parse(text: str, file: str) -> Experiment:
    """Read the text of an experiment.yaml; `file` is how complaints call it.

    Raises BadExperiment with every problem found, in the order of their lines.
    """
    try:
        document = yaml12.read(text)
    except yaml12.BadYaml as error:
        raise BadExperiment([Problem(file, error.line, "", str(error))]) from error
    if not isinstance(document.value, dict):
        words = "it must be a mapping with keys such as `title`, `model` and `train`"
        raise BadExperiment([Problem(file, 1, "", words)])
    try:
        declared = _Declaration.model_validate(document.value)
    except ValidationError as error:
        details: list[tuple[yaml12.Path, ErrorDetails]]
        details = [((), detail) for detail in error.errors(include_url=False)]
        found = [
            _problem(file, document, _Declaration, detail)
            for _, detail in _telling(details, [])[: MOST_PROBLEMS + 1]
        ]
        raise BadExperiment(_in_order(found)) from error
    if (runs := len(declared.seeds) * len(declared.arms)) > MOST_RUNS:
        place: yaml12.Path = ("seeds",) if len(declared.seeds) > 1 else ("arms",)
        words = f"{runs} runs are more than the {MOST_RUNS} that one experiment may have"
        raise BadExperiment([Problem(file, document.line(place), _dotted(place), words)])
    problems: dict[Problem, None] = {}  # in the order they were found, each once
    models = _resolved(file, document, ModelConfig, "model", declared, problems)
    trains = _resolved(file, document, TrainConfig, "train", declared, problems)
    arms = {
        name: (models[name], trains[name])
        for name in declared.arms
        if name in models and name in trains
    }
    experiment = Experiment(
        title=declared.title,
        preregistration=declared.preregistration,
        data=declared.data,
        eval=declared.eval,
        resources=declared.resources,
        seeds=declared.seeds,
        arms=arms,
        file=file,
        document=document,
    )
    problems.update(dict.fromkeys(_sense(experiment)))
    if problems:
        raise BadExperiment(_in_order(list(problems)))
    return experiment


def _sense(experiment: Experiment) -> list[Problem]:
    """What is well formed and still makes no sense."""
    found = []
    kind = experiment.resources.kind
    if kind not in KINDS:
        known = ", ".join(f"`{name}`" for name in KINDS)
        words = f"the lab has no devices of kind `{kind}`; it has {known}"
        found.append(experiment.problem(("resources", "kind"), words + near(kind, KINDS)))
    elif experiment.resources.count != 1:
        words = "a run trains on one device so far; write `count: 1`"
        found.append(experiment.problem(("resources", "count"), words))
    if len(set(experiment.seeds)) != len(experiment.seeds):
        found.append(experiment.problem(("seeds",), "a seed stands twice; each is one run"))
    for name, (model, _) in experiment.arms.items():
        if model.vocab_size < 256:
            words = f"{model.vocab_size} rows are too few: the byte tokenizer has ids up to 255"
            overridden = ("arms", name, "model", "vocab_size")
            path = overridden if overridden in experiment.document.lines else overridden[2:]
            problem = experiment.problem(path, words)
            found += [problem] if problem not in found else []
    return found


def _resolved(
    file: str,
    document: yaml12.Document,
    schema: type[C],
    section: Literal["model", "train"],
    declared: _Declaration,
    problems: dict[Problem, None],
) -> dict[str, C]:
    """The section of each arm, but for those with problems, which are noted where they stand.

    What all arms share is looked at once: a file's length bounds the work, and not its square.
    """
    base: dict[str, Any] = getattr(declared, section)
    shared = {key: value for key, value in base.items() if key in schema.model_fields}
    unknown = {key: value for key, value in base.items() if key not in shared}
    misspelt = list(unknown)[:MOST_PROBLEMS]
    told: set[tuple[object, ...]] = set()
    found = {}
    for name, arm in declared.arms.items():
        override: dict[str, Any] = getattr(arm, section)
        try:
            # The keys that no arm may have are told with the first one.
            found[name] = schema.model_validate({**shared, **unknown, **override})
        except ValidationError as error:
            fresh: list[tuple[yaml12.Path, ErrorDetails]] = []
            for detail in error.errors(include_url=False):
                key = str(detail["loc"][0]) if detail["loc"] else ""
                under: yaml12.Path = ("arms", name) if key in override else ()
                written = (*under, section)
                if (written, detail["loc"], detail["type"]) not in told:
                    told.add((written, detail["loc"], detail["type"]))
                    fresh.append((written, detail))
            for place, detail in _telling(fresh, misspelt):
                if len(problems) > MOST_PROBLEMS:
                    break
                problems[_problem(file, document, schema, detail, place)] = None
        unknown = {}
    return found


def _telling(
    found: list[tuple[yaml12.Path, ErrorDetails]], misspelt: list[str]
) -> list[tuple[yaml12.Path, ErrorDetails]]:
    """Pydantic's complaints, less those that only follow from another one."""
    unknown = [str(detail["loc"][-1]) for _, detail in found if detail["type"] == "extra_forbidden"]
    unknown = [*misspelt, *unknown[:MOST_PROBLEMS]]
    return [
        (under, detail)
        for under, detail in found
        if not (detail["type"] == "missing" and near(str(detail["loc"][-1]), unknown))
        and not (detail["type"] == "too_short" and detail["input"])
    ]


def _problem(
    file: str,
    document: yaml12.Document,
    schema: type[BaseModel],
    detail: ErrorDetails,
    under: yaml12.Path = (),
) -> Problem:
    """Pydantic's complaint as a sentence at the right line."""
    place = tuple(part for part in detail["loc"] if part != "[key]")
    path = (*under, *place)
    key, kind = str(place[-1]) if place else "", detail["type"]
    given = detail.get("input")
    if kind == "extra_forbidden":
        message = f"unknown key{near(key, _keys(schema, place[:-1]))}"
    elif kind == "missing":
        return Problem(
            file, document.line(path[:-1]), _dotted(path), "is missing; it has no default"
        )
    elif kind in ("model_type", "dict_type", "model_attributes_type"):
        message = f"must be a mapping of keys to values, not {_quoted(given)}"
    elif kind in ("int_type", "int_parsing", "int_from_float"):
        message = f"must be a whole number, not {_quoted(given)}"
    elif kind in ("float_type", "float_parsing"):
        message = f"must be a number, not {_quoted(given)}"
    elif kind == "string_type":
        message = f"must be text, not {_quoted(given)}"
    elif kind == "tuple_type":
        message = f"must be a list, not {_quoted(given)}"
    elif kind == "bool_type":
        message = f"must be true or false, not {_quoted(given)}"
    elif kind == "literal_error":
        known = detail["ctx"]["expected"].replace("'", "`")
        message = f"must be {known}, not {_quoted(given)}"
    elif kind == "string_pattern_mismatch":
        message = f"{_quoted(given)} is not a name of an arm; use a–z, 0–9, `_` and `-`"
    elif kind == "cannot_work":
        message = detail["msg"]
    elif given in ([], {}) or (isinstance(given, str) and not given.strip()):
        message = "must not be empty"
    else:
        words = re.sub("^(Input|String) should", "it should", detail["msg"])
        message = f"{words}, not {_quoted(given)}"
    return Problem(file, document.line(path), _dotted(path), message)


def _keys(schema: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """The keys that `schema` knows at `path`."""
    for part in path:
        field = schema.model_fields.get(str(part))
        inner = field.annotation if field else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            schema = inner
        elif schema is _Declaration:  # an arm's name, or what the arm changes
            schema = _Arm
    return list(schema.model_fields)


def near(word: str, known: Iterable[str]) -> str:
    """A did-you-mean for `word`, to end a sentence with; empty where nothing is near."""
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean `{match[0]}`?" if match else ""


def _quoted(value: object) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "nothing"
    written = str(value).lower() if isinstance(value, bool) else str(value)
    text = " ".join(written.split()).replace("`", "ʼ")
    return f"`{text}`" if len(text) <= 60 else f"`{text[:59]}…`"


def _dotted(path: yaml12.Path) -> str:
    return ".".join(" ".join(str(part).split()).replace("`", "ʼ")[:60] for part in path)


def _in_order(problems: list[Problem]) -> list[Problem]:
    """By line; of very many the first ones, and that there are more."""
    found = sorted(problems, key=lambda problem: problem.line)
    if len(found) <= MOST_PROBLEMS:
        return found
    last = found[MOST_PROBLEMS - 1]
    words = f"more is wrong than these {MOST_PROBLEMS} problems; mend them first"
    return [*found[:MOST_PROBLEMS], Problem(last.file, last.line, "", words)]
