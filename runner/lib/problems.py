"""What is wrong with a declaration, told to the person who wrote it: file, line, field, and where
there is one the near miss. Pydantic's complaints become sentences here.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from runner.lib import yaml_lines

NAMED = {
    "arms": "an arm; use a–z, 0–9, `_` and `-`",
    "steps": "a step; use a–z, 0–9, `_` and `-`, a letter first",
    "pools": "a pool; use up to 80 characters that can be shown",
    "inputs": "an input; use a–z, 0–9 and `_`, a letter first",
    "weights": "an input; use a–z, 0–9 and `_`, a letter first",
}
MUST_BE = {  # by the kind of pydantic's complaint
    **dict.fromkeys(
        ("model_type", "dict_type", "model_attributes_type"), "a mapping of keys to values"
    ),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "text",
    "tuple_type": "a list",
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


def telling(
    found: list[tuple[yaml_lines.Path, ErrorDetails]], misspelt: list[str]
) -> list[tuple[yaml_lines.Path, ErrorDetails]]:
    """Pydantic's complaints, less those that only follow from another one."""
    unknown = [str(detail["loc"][-1]) for _, detail in found if detail["type"] == "extra_forbidden"]
    unknown = [*misspelt, *unknown[:MOST_PROBLEMS]]
    return [
        (under, detail)
        for under, detail in found
        if not (detail["type"] == "missing" and near(str(detail["loc"][-1]), unknown))
        and not (detail["type"] == "too_short" and detail["input"])
    ]


def told(
    file: str,
    document: yaml_lines.Document,
    schema: type[BaseModel],
    detail: ErrorDetails,
    under: yaml_lines.Path = (),
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
            file, document.line(path[:-1]), dotted(path), "is missing; it has no default"
        )
    elif kind in MUST_BE:
        message = f"must be {MUST_BE[kind]}, not {quoted(given)}"
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
