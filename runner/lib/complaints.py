"""Collects the problems of a document. After a mistake, reading continues with what was probably
meant, or without the unreadable part. So all mistakes are reported at once, each once, and without
those that only follow from another."""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from runner.lib import problems
from runner.lib.problems import MAX_PROBLEMS, MUST_BE, BadExperiment, Document, Problem, Said
from runner.lib.yaml_lines import Path

MAX_ROUNDS = 4  # of correcting one document
M = TypeVar("M", bound=BaseModel)
Moved = dict[Path, Path | None]  # {path when read: path in the text, or None if it is unreadable}


class Read(NamedTuple, Generic[M]):
    """A value after reading."""

    checked: M | None  # None: it has problems
    value: Any  # with corrected keys, and without unreadable parts
    lost: frozenset[Path]


class Complaints:
    """The problems of a document, each once, through all stages of reading."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._problems: dict[Problem, None] = {}
        self._told: set[tuple[Path, str]] = set()
        self._moved: Moved = {}
        for path, line in document.twice[: MAX_PROBLEMS + 1]:
            words = f"this key is here twice; keep this or that of line {document.line(path)}"
            self.add(Problem(document.file, line, problems.dotted(path), words))

    @property
    def any(self) -> bool:
        """Whether there are any problems."""
        return bool(self._problems)

    @property
    def enough(self) -> bool:
        """Whether MAX_PROBLEMS are found, so that looking further is useless."""
        return len(self._problems) > MAX_PROBLEMS

    def add(self, problem: Problem) -> None:
        """Add a problem, which may be in another file."""
        self._problems[problem] = None

    def say(self, path: Path, message: str) -> None:
        """Add a problem with the value at `path`, unless it is unreadable, which is already
        reported."""
        written = _written(path, self._moved)
        if written is not None:
            self.add(self._document.problem(written, message))

    def say_all(self, *said: Said) -> None:
        """Add all of these problems."""
        for path, message in chain(*said):
            self.say(path, message)

    def lose(self, path: Path, message: str) -> None:
        """Add a problem with the value at `path`, and mark the value as unreadable."""
        self.say(path, message)
        self._moved[path] = None

    def lost(self, path: Path) -> bool:
        """Whether the value at `path` is unreadable."""
        return _written(path, self._moved) is None

    def tell(
        self,
        schema: type[BaseModel],
        error: ValidationError,
        at: Callable[[Path], Path | None] = lambda place: place,
    ) -> list[ErrorDetails]:
        """Add the errors of `schema`; `at` maps their paths to those in the document. Returns the
        reported errors."""
        found = []
        for detail in _telling(error.errors(include_url=False)):
            if self.enough:
                break
            found.append(detail)
            place = at(problems.place_of(detail))
            path = None if place is None else _written(place, self._moved)
            if path is not None and (path, detail["type"]) not in self._told:
                self._told.add((path, detail["type"]))
                self.add(problems.told(self._document, schema, detail, path))
        return found

    def read(
        self,
        schema: type[M],
        value: Any,
        at: Callable[[Path], Path] = lambda place: place,
        context: Mapping[str, Any] | None = None,
    ) -> Read[M]:
        """Read `value` with `schema`, with corrected keys. Adds all problems."""
        moved: Moved = {}
        for _ in range(MAX_ROUNDS):
            try:
                checked = schema.model_validate(value, **_AS_WRITTEN, context=context)
                return Read(checked, value, frozenset())
            except ValidationError as error:
                found = self.tell(schema, error, lambda place: _at(place, moved, at))
                if not (fresh := _meant(schema, value, found, moved)):
                    value = _without(value, found, moved)
                    lost = (place for place, there in moved.items() if there is None)
                    return Read(None, value, frozenset(lost))
                value = fresh
        return Read(None, {}, frozenset([()]))

    def whole(self, schema: type[M], instead: Mapping[str, Any]) -> M | None:
        """Read the whole document with `schema`, and add all problems; unreadable parts are left
        out, and `instead` {key: value} replaces missing ones. None if too little is left."""
        value = self._document.value
        for _ in range(MAX_ROUNDS):
            try:
                return schema.model_validate(value, **_AS_WRITTEN)
            except ValidationError as error:
                found = self.tell(schema, error)
                fresh = _meant(schema, value, found, self._moved)
                value = fresh or _without(value, found, self._moved, instead)
        return None

    def validated(self, schema: type[M]) -> M:
        """Validate the whole document with `schema`. Raises BadExperiment."""
        read = self.read(schema, self._document.value)
        self.end()
        if read.checked is None:
            raise AssertionError("what cannot be read is complained of")
        return read.checked

    @property
    def found(self) -> list[Problem]:
        """All problems by line; at most MAX_PROBLEMS, and then a note that there are more."""
        found = sorted(self._problems, key=lambda problem: problem.line or 0)
        if len(found) <= MAX_PROBLEMS:
            return found
        last = found[MAX_PROBLEMS - 1]
        words = f"more is wrong than these {MAX_PROBLEMS} problems; mend them first"
        return [*found[:MAX_PROBLEMS], Problem(last.file, last.line, "", words)]

    def end(self) -> None:
        """Raise BadExperiment if there are any problems."""
        if self._problems:
            raise BadExperiment(self.found)


_AS_WRITTEN: Mapping[str, Any] = {"by_name": False, "by_alias": True}


def _telling(found: list[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Pydantic's errors without those that only follow from another one."""
    unknown: dict[Path, list[str]] = {}
    for detail in found:
        if detail["type"] == "extra_forbidden":
            unknown.setdefault(detail["loc"][:-1], []).append(str(detail["loc"][-1]))
    for detail in found:
        *parent, key = detail["loc"] or ("",)
        misspelt = unknown.get(tuple(parent), [])[:MAX_PROBLEMS]
        if detail["type"] == "missing" and problems.near(str(key), misspelt):
            continue
        if detail["type"] != "too_short" or not detail["input"]:
            yield detail


# ── Going on ─────────────────────────────────────────────────────────────────────────────────


def _written(path: Path, moved: Moved) -> Path | None:
    """The path in the text of what is read at `path`; None if it is unreadable."""
    for n in range(len(path), 0, -1):
        if path[:n] in moved:
            base = moved[path[:n]]
            return None if base is None else (*base, *path[n:])
    return path


def _at(place: Path, moved: Moved, at: Callable[[Path], Path]) -> Path | None:
    written = _written(place, moved)
    return None if written is None else at(written)


def _inside(value: Any, path: Path) -> Any:
    """The value at `path`; None if there is none."""
    for part in path:
        inside = isinstance(value, dict) and part in value
        inside |= isinstance(value, list) and isinstance(part, int) and part < len(value)
        if not inside:
            return None
        value = value[part]
    return value


def _meant(schema: type[BaseModel], value: Any, found: list[ErrorDetails], moved: Moved) -> Any:
    """The value with corrected keys, whose original paths are added to `moved`, and without unknown
    keys; None if all keys are known."""
    fresh, changed = copy.deepcopy(value), False
    for detail in found:
        *parent, key = problems.place_of(detail) or ("",)
        around = _inside(fresh, tuple(parent))
        if not isinstance(around, dict) or key not in around:
            continue
        if detail["type"] == "extra_forbidden":
            meant = problems.nearest(str(key), problems.keys_at(schema, tuple(parent)))
        elif detail["loc"][-1:] == ("[key]",):
            meant = re.sub(r"[^a-z0-9_]+", "-", str(key).lower()).strip("-_")[:40] or "x"
        else:
            continue
        inner, changed = around.pop(key), True
        if meant is not None and meant not in around:
            around[meant] = inner
            moved[(*parent, meant)] = _written((*parent, key), moved)
    return fresh if changed else None


def _without(
    value: Any,
    found: list[ErrorDetails],
    moved: Moved,
    instead: Mapping[str, Any] | None = None,
) -> Any:
    """The value without its wrong parts, which count as unreadable; `instead` replaces missing
    ones."""
    fresh = copy.deepcopy(value)
    left_out: dict[Path, set[int]] = {}
    for detail in found:
        *parent, key = place = problems.place_of(detail) or ("",)
        around = _inside(fresh, tuple(parent))
        if detail["type"] == "form":  # of several keys, none of which is wrong alone
            continue
        if isinstance(around, dict):
            around.pop(key, None)
            if MUST_BE.get(detail["type"]) == MUST_BE["dict_type"]:
                around[key] = {}
            elif detail["type"] == "missing" and instead and key in instead:
                around[key] = instead[str(key)]
            moved[place] = None
        elif isinstance(around, list) and isinstance(key, int):
            left_out.setdefault(tuple(parent), set()).add(key)
    for path, gone in left_out.items():
        around = _inside(fresh, path)
        kept = [n for n in range(len(around)) if n not in gone]
        written = [_written((*path, n), moved) for n in kept]
        around[:] = [around[n] for n in kept]
        if not kept or instead is None:
            moved[path] = None  # also because the number of the others is unknown
        moved.update({(*path, n): there for n, there in enumerate(written)})
    return fresh
