"""What is wrong with a declaration, told to the person who wrote it: file, line, field, and where
there is one the near miss. Pydantic's complaints become sentences here.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from runner.lib import yaml_lines

NAMED = {
    "arms": "an arm; use a–z, 0–9, `_` and `-`",
    "steps": "a step; use a–z, 0–9, `_` and `-`, a letter first",
    "pools": "a pool; use up to 80 characters that can be shown",
    "inputs": "an input; use a–z, 0–9 and `_`, a letter first",
    "weights": "an input; use a–z, 0–9 and `_`, a letter first",
}
MOST_PROBLEMS = 50  # told of one file; who mends these is told the rest


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


@dataclass(frozen=True)
class Document(yaml_lines.Document):
    """A text that somebody wrote: its keys and values, each with its line."""

    file: str  # as complaints call it

    def problem(self, path: yaml_lines.Path, message: str) -> Problem:
        """A complaint about the value at `path`."""
        return Problem(self.file, self.line(path), dotted(path), message)


class Complaints:
    """What one stage of reading finds wrong with a document, each thing once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._problems: dict[Problem, None] = {}
        self._told: set[tuple[yaml_lines.Path, str]] = set()

    @property
    def enough(self) -> bool:
        """Whether there are as many as are told; looking for more would be for nothing."""
        return len(self._problems) > MOST_PROBLEMS

    def say(self, path: yaml_lines.Path, message: str) -> None:
        """Complain of the value at `path`."""
        self._problems[self._document.problem(path, message)] = None

    def tell(
        self,
        schema: type[BaseModel],
        error: ValidationError,
        at: Callable[[yaml_lines.Path], yaml_lines.Path] = lambda place: place,
    ) -> None:
        """Complain of what `schema` refused, whose places were written `at` others."""
        fresh = []
        for detail in error.errors(include_url=False):
            path = at(_place(detail))
            if (path, detail["type"]) not in self._told:
                self._told.add((path, detail["type"]))
                fresh.append((path, detail))
        for path, detail in telling(fresh):
            if self.enough:
                return
            found = told(self._document.file, self._document, schema, detail, path)
            self._problems[found] = None

    def end(self) -> None:
        """Raise BadExperiment where there are any."""
        if self._problems:
            raise BadExperiment(in_order(list(self._problems)))


def telling(
    found: list[tuple[yaml_lines.Path, ErrorDetails]],
) -> list[tuple[yaml_lines.Path, ErrorDetails]]:
    """Pydantic's complaints, less those that only follow from another one."""
    unknown: dict[yaml_lines.Path, list[str]] = {}
    for _, detail in found:
        if detail["type"] == "extra_forbidden":
            unknown.setdefault(detail["loc"][:-1], []).append(str(detail["loc"][-1]))
    return [
        (path, detail)
        for path, detail in found
        if not (
            detail["type"] == "missing"
            and near(str(detail["loc"][-1]), unknown.get(detail["loc"][:-1], [])[:MOST_PROBLEMS])
        )
        and not (detail["type"] == "too_short" and detail["input"])
    ]


def _place(detail: ErrorDetails) -> yaml_lines.Path:
    return tuple(part for part in detail["loc"] if part != "[key]")


def told(
    file: str,
    document: yaml_lines.Document,
    schema: type[BaseModel],
    detail: ErrorDetails,
    path: yaml_lines.Path | None = None,
) -> Problem:
    """Pydantic's complaint as a sentence at the right line: of `path`, where that is not the place
    in the schema."""
    place = _place(detail)
    path = place if path is None else path
    key, kind = str(place[-1]) if place else "", detail["type"]
    given = detail.get("input")
    if kind == "extra_forbidden":
        message = f"unknown key{near(key, _keys(schema, place[:-1]))}"
    elif kind == "missing":
        return Problem(
            file, document.line(path[:-1]), dotted(path), "is missing; it has no default"
        )
    elif kind in ("model_type", "dict_type", "model_attributes_type"):
        message = f"must be a mapping of keys to values, not {quoted(given)}"
    elif kind in ("int_type", "int_parsing", "int_from_float"):
        message = f"must be a whole number, not {quoted(given)}"
    elif kind in ("float_type", "float_parsing"):
        message = f"must be a number, not {quoted(given)}"
    elif kind == "string_type":
        message = f"must be text, not {quoted(given)}"
    elif kind == "tuple_type":
        message = f"must be a list, not {quoted(given)}"
    elif kind in ("bool_type", "bool_parsing"):
        message = f"must be true or false, not {quoted(given)}"
    elif kind == "literal_error":
        known = detail["ctx"]["expected"].replace("'", "`")
        message = f"must be {known}, not {quoted(given)}"
    elif kind == "string_pattern_mismatch" and detail["loc"][-1] == "[key]":
        message = f"{quoted(given)} is not a name of {NAMED[str(place[-2])]}"
    elif kind == "cannot_work":
        message = detail["msg"]
    elif given in ([], {}) or (isinstance(given, str) and not given.strip()):
        message = "must not be empty"
    else:
        words = re.sub("^(Input|String) should", "it should", detail["msg"])
        message = f"{words}, not {quoted(given)}"
    return Problem(file, document.line(path), dotted(path), message)


def _keys(schema: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """The keys that `schema` knows at `path`."""
    known: Any = schema
    for part in path:
        if isinstance(known, type) and issubclass(known, BaseModel):
            field = known.model_fields.get(str(part))
            known = field.annotation if field else None
        else:  # a mapping from names to what is below them, or a list of it
            known = (*get_args(known), None, None)[1 if get_origin(known) is dict else 0]
        if isinstance(known, UnionType):  # with None
            known = get_args(known)[0]
    found = isinstance(known, type) and issubclass(known, BaseModel)
    return [field.alias or name for name, field in known.model_fields.items()] if found else []


def near(word: str, known: Iterable[str]) -> str:
    """A did-you-mean for `word`, to end a sentence with; empty where nothing is near."""
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


def in_order(problems: list[Problem]) -> list[Problem]:
    """By line; of very many the first ones, and that there are more."""
    found = sorted(problems, key=lambda problem: problem.line)
    if len(found) <= MOST_PROBLEMS:
        return found
    last = found[MOST_PROBLEMS - 1]
    words = f"more is wrong than these {MOST_PROBLEMS} problems; mend them first"
    return [*found[:MOST_PROBLEMS], Problem(last.file, last.line, "", words)]
