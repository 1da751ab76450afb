"""Problems in a declaration, as its author sees them: file, line, field and a did-you-mean.
Translates pydantic's errors into sentences."""

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from runner.lib import yaml_lines

NAMED = {
    "arms": "an arm; use a–z, 0–9, `_` and `-`",
    "steps": "a step; use a–z, 0–9, `_` and `-`, a letter first",
    "pools": "a pool; use up to 80 characters that can be shown",
    "tracks": "a track; use a–z, 0–9 and `-`",
    "data": "a text; use a–z, 0–9 and `-`",
    "devices": "a kind of device; use a–z and 0–9",
    "inputs": "an input; use a–z, 0–9 and `_`, a letter first",
    "weights": "an input; use a–z, 0–9 and `_`, a letter first",
}
Said = Iterator[tuple[yaml_lines.Path, str]]  # where in a file, and the message
M = TypeVar("M", bound=BaseModel)
MUST_BE = {
    **dict.fromkeys(
        ("model_type", "dict_type", "model_attributes_type"), "a mapping of keys to values"
    ),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **{"string_type": "text", "tuple_type": "a list"},
}
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # of models, and of dataclasses
MAX_PROBLEMS = 50  # per file; the others appear after the first are fixed


@dataclass(frozen=True)
class Problem:
    """One problem in a file, for its author."""

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
    """An experiment cannot be read; `problems` has everything that was found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Document(yaml_lines.Document):
    """A text that a person wrote: its keys and values, each with its line."""

    file: str  # the name for messages

    def problem(self, path: yaml_lines.Path, message: str) -> Problem:
        """A problem with the value at `path`."""
        return Problem(self.file, self.line(path), dotted(path), message)


def text_of(file: Path, missing: str) -> str:
    """The text of a file. Raises BadExperiment, with the message `missing` if there is no file."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadExperiment([Problem(str(file), 1, "", missing)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadExperiment([Problem(str(file), 1, "", f"it cannot be read: {error}")]) from error


def read(text: str, file: str, keys: str, example: str = "") -> Document:
    """Parse a file's text, which must be a mapping; errors describe it by `keys` and may end with
    `example`. Raises BadExperiment."""
    try:
        found = yaml_lines.read(text)
    except yaml_lines.BadYaml as error:
        raise BadExperiment([Problem(file, error.line, "", f"{error}{example}")]) from error
    if not isinstance(found.value, dict):
        words = f"it must be a mapping with keys such as {keys}"
        raise BadExperiment([Problem(file, 1, "", words)])
    return Document(found.value, found.lines, file)


class Complaints:
    """Collects the problems that one stage of reading finds in a document, each once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._problems: dict[Problem, None] = {}
        self._told: set[tuple[yaml_lines.Path, str]] = set()

    @property
    def enough(self) -> bool:
        """Whether MAX_PROBLEMS are found, so that looking further is useless."""
        return len(self._problems) > MAX_PROBLEMS

    def say(self, path: yaml_lines.Path, message: str) -> None:
        """Add a problem with the value at `path`."""
        self._problems[self._document.problem(path, message)] = None

    def say_all(self, *said: Said) -> None:
        """Add all of these problems."""
        for path, message in chain(*said):
            self.say(path, message)

    def tell(
        self,
        schema: type[BaseModel],
        error: ValidationError,
        at: Callable[[yaml_lines.Path], yaml_lines.Path] = lambda place: place,
    ) -> None:
        """Add the errors of `schema`; `at` maps their places to those in the document."""
        for detail in _telling(error.errors(include_url=False)):
            path = at(_place(detail))
            if (path, detail["type"]) not in self._told and not self.enough:
                self._told.add((path, detail["type"]))
                self._problems[told(self._document, schema, detail, path)] = None

    def validated(self, schema: type[M]) -> M:
        """Validate the whole document with `schema`. Raises BadExperiment."""
        try:
            return schema.model_validate(self._document.value, by_name=False, by_alias=True)
        except ValidationError as error:
            self.tell(schema, error)
            raise BadExperiment(self.found) from error

    @property
    def found(self) -> list[Problem]:
        """All problems by line; at most MAX_PROBLEMS, and then a note that there are more."""
        problems = sorted(self._problems, key=lambda problem: problem.line)
        if len(problems) <= MAX_PROBLEMS:
            return problems
        last = problems[MAX_PROBLEMS - 1]
        words = f"more is wrong than these {MAX_PROBLEMS} problems; mend them first"
        return [*problems[:MAX_PROBLEMS], Problem(last.file, last.line, "", words)]

    def end(self) -> None:
        """Raise BadExperiment if there are any problems."""
        if self._problems:
            raise BadExperiment(self.found)


def _telling(found: list[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Pydantic's errors without those that only follow from another one."""
    unknown: dict[yaml_lines.Path, list[str]] = {}
    for detail in found:
        if detail["type"] in UNKNOWN:
            unknown.setdefault(detail["loc"][:-1], []).append(str(detail["loc"][-1]))
    for detail in found:
        *parent, key = detail["loc"] or ("",)
        misspelt = unknown.get(tuple(parent), [])[:MAX_PROBLEMS]
        if detail["type"] == "missing" and near(str(key), misspelt):
            continue
        if detail["type"] != "too_short" or not detail["input"]:
            yield detail


def _place(detail: ErrorDetails) -> yaml_lines.Path:
    return tuple(part for part in detail["loc"] if part != "[key]")


def told(
    document: Document, schema: type[BaseModel], detail: ErrorDetails, path: yaml_lines.Path
) -> Problem:
    """Pydantic's error as a sentence about the value at `path`."""
    place = _place(detail)
    kind, given, line = detail["type"], detail.get("input"), document.line(path)
    if kind in UNKNOWN:
        message = f"unknown key{near(str(place[-1]), _keys(schema, place[:-1]))}"
    elif kind == "missing":
        message, line = "is missing; it has no default", document.line(path[:-1])
    elif kind in MUST_BE:
        message = f"must be {MUST_BE[kind]}, not {quoted(given)}"
    elif kind == "literal_error":
        known = detail["ctx"]["expected"].replace("'", "`")
        message = f"must be {known}, not {quoted(given)}"
    elif kind == "string_pattern_mismatch" and detail["loc"][-1] == "[key]":
        message = f"{quoted(given)} is not a name of {NAMED[str(place[-2])]}"
    elif kind == "too_long" and isinstance(given, list):
        message = f"must have at most {detail['ctx']['max_length']} entries"
    elif kind in ("cannot_work", "form"):
        message = detail["msg"]
    elif given in ([], {}) or (isinstance(given, str) and not given.strip()):
        message = "must not be empty"
    else:
        words = re.sub("^(Input|String) should", "it should", detail["msg"])
        message = f"{words}, not {quoted(given)}"
    return Problem(document.file, line, dotted(path), message)


def _keys(schema: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """The keys that `schema` knows at `path`."""
    known: Any = schema
    for part in path:
        if isinstance(known, type) and issubclass(known, BaseModel):
            field = known.model_fields.get(str(part))
            known = field.annotation if field else None
        else:  # a mapping from names to further models, or a list of them
            known = (*get_args(known), None, None)[1 if get_origin(known) is dict else 0]
        if isinstance(known, UnionType):  # an optional value
            known = get_args(known)[0]
    if isinstance(known, type) and dataclasses.is_dataclass(known):
        return [field.name for field in dataclasses.fields(known)]
    found = isinstance(known, type) and issubclass(known, BaseModel)
    return [field.alias or name for name, field in known.model_fields.items()] if found else []


def near(word: str, known: Iterable[str]) -> str:
    """A did-you-mean for `word`, as the end of a sentence; empty if no known word is similar."""
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean `{match[0]}`?" if match else ""


def quoted(value: object) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "nothing"
    written = str(value).lower() if isinstance(value, bool) else str(value)
    text = " ".join(written.split()).replace("`", "ʼ")
    return f"`{text}`" if len(text) <= 60 else f"`{text[:59]}…`"


def dotted(path: yaml_lines.Path) -> str:
    return ".".join(" ".join(str(part).split()).replace("`", "ʼ")[:60] for part in path)
