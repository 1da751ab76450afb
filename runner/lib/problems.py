"""Problems in a declaration, as its author sees them: file, line, field and a did-you-mean.
Translates pydantic's errors into sentences."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from runner.lib import yaml_lines

NAMED = {
    "arms": "an arm; use a–z, 0–9, `_` and `-`",
    "sizes": "a size; use a–z, 0–9, `_` and `-`",
    "hold_one_out": "a part; use a–z, 0–9, `_` and `-`",
    "add_one": "a part; use a–z, 0–9, `_` and `-`",
    "steps": "a step; use a–z, 0–9, `_` and `-`, a letter first",
    "pools": "a pool; use up to 80 characters that can be shown",
    "tracks": "a track; use a–z, 0–9 and `-`",
    "data": "a text; use a–z, 0–9 and `-`",
    "devices": "a kind of device; use a–z and 0–9",
    "corpora": "a corpus; write name@version, such as web@2026-11",
    "inputs": "an input; use a–z, 0–9 and `_`, a letter first",
    "weights": "an input; use a–z, 0–9 and `_`, a letter first",
    "most_epochs": "an input; use a–z, 0–9 and `_`, a letter first",
}
Said = Iterator[tuple[yaml_lines.Path, str]]  # where in a file, and the message
MUST_BE = {
    **dict.fromkeys(
        ("model_type", "dict_type", "model_attributes_type"), "a mapping of keys to values"
    ),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **{"string_type": "text", "tuple_type": "a list"},
}
_AS_SAID = re.compile(
    r"((?:experiments|\.github)/[^,:`]+)(?:, line ([0-9]{1,9}))?(?:, `([^`]+)`)?: (.+)", re.DOTALL
)
MAX_PROBLEMS = 50  # per file; the others appear after the first are fixed
MAX_COMPARED, MAX_WORD = 500, 200  # known words, and characters of a word, for a did-you-mean
MAX_KEYS = 8  # known keys that an error lists


@dataclass(frozen=True)
class Problem:
    """One problem in a file, for its author."""

    file: str
    line: int | None  # None: the whole file
    field: str
    message: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}, line {self.line}"
        return (
            f"{where}, `{self.field}`: {self.message}" if self.field else f"{where}: {self.message}"
        )

    @staticmethod
    def read(said: str) -> "Problem":
        """The inverse of `str`; a text of another form is a message alone."""
        found = _AS_SAID.fullmatch(said)
        if found is None:
            return Problem("", None, "", said)
        line = int(found[2]) if found[2] else None
        return Problem(found[1], line, found[3] or "", found[4])


class BadExperiment(Exception):
    """An experiment cannot be read; `problems` has everything that was found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Document(yaml_lines.Document):
    """A text that a person wrote: its keys and values, each with its line."""

    file: str  # the name for messages
    twice: tuple[tuple[yaml_lines.Path, int], ...] = ()  # duplicate keys, each with the second line
    examples: Mapping[str, str] = field(default_factory=dict)  # {key: an example value}

    def problem(self, path: yaml_lines.Path, message: str) -> Problem:
        """A problem with the value at `path`."""
        return Problem(self.file, self.line(path), dotted(path), message)


def text_of(file: Path, missing: str) -> str:
    """The text of a file. Raises BadExperiment, with the message `missing` if there is no file."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadExperiment([Problem(str(file), None, "", missing)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadExperiment(
            [Problem(str(file), None, "", f"it cannot be read: {error}")]
        ) from error


def parsed(
    text: str, file: str, example: str = "", examples: Mapping[str, str] | None = None
) -> Document:
    """Parse a file's text. An error that it is not YAML ends with `example`, and others quote one
    of the `examples` {key: value}. Raises BadExperiment."""
    twice: list[tuple[yaml_lines.Path, int]] = []
    try:
        found = yaml_lines.read(text, lambda path, line: twice.append((path, line)))
    except yaml_lines.BadYaml as error:
        raise BadExperiment([Problem(file, error.line, "", f"{error}{example}")]) from error
    return Document(found.value, found.lines, file, tuple(twice), examples or {})


def read(
    text: str,
    file: str,
    keys: str,
    example: str = "",
    examples: Mapping[str, str] | None = None,
) -> Document:
    """The same for a file that must be a mapping; errors describe it by `keys`."""
    found = parsed(text, file, example, examples)
    if not isinstance(found.value, dict):
        words = f"it must be a mapping with keys such as {keys}"
        raise BadExperiment([Problem(file, 1, "", words)])
    return found


def place_of(detail: ErrorDetails) -> yaml_lines.Path:
    """The path in the value at which pydantic found an error."""
    place = tuple(part for part in detail["loc"] if part != "[key]")
    return (*place, detail["ctx"]["key"]) if detail["type"] == "form" else place


def told(
    document: Document, schema: type[BaseModel], detail: ErrorDetails, path: yaml_lines.Path
) -> Problem:
    """Pydantic's error as a sentence about the value at `path`, with what to write."""
    place = place_of(detail)
    kind, given, line = detail["type"], detail.get("input"), document.line(path)
    instead = _instead(document, schema, place)
    end = f"; {instead}" if instead else ""
    if kind == "extra_forbidden":
        known = keys_at(schema, place[:-1])
        message = f"unknown key{near(str(place[-1]), known) or _one_of(known)}"
    elif kind == "missing":
        line = document.line(path[:-1])
        message = f"is missing; {instead or 'it has no default'}"
    elif kind in MUST_BE:
        message = f"must be {MUST_BE[kind]}, not {quoted(given)}{end}"
    elif kind == "literal_error":
        expected = detail["ctx"]["expected"]
        known = expected.replace("'", "`")
        message = f"must be {known}, not {quoted(given)}{near(str(given), choices(detail))}"
    elif kind == "string_pattern_mismatch" and detail["loc"][-1:] == ("[key]",):
        message = f"{quoted(given)} is not a name of {NAMED.get(str(place[-2]), NAMED['arms'])}"
    elif kind == "too_long" and isinstance(given, list):
        message = f"must have at most {detail['ctx']['max_length']} entries; take some out"
    elif kind in ("cannot_work", "form"):
        message = detail["msg"]
    elif given in ([], {}) or (isinstance(given, str) and not given.strip()):
        message = f"must not be empty{end}"
    else:
        words = re.sub("^(Input|String) should", "it should", detail["msg"])
        message = f"{words}, not {quoted(given)}{end}"
    return Problem(document.file, line, dotted(path), message)


def choices(detail: ErrorDetails) -> list[str]:
    """The words that pydantic accepts."""
    return re.findall(r"'([^']*)'", detail["ctx"]["expected"])


def _one_of(known: Iterable[str]) -> str:
    """What to do about an unknown key that resembles no known one."""
    listed = ", ".join(f"`{key}`" for key in [*known][:MAX_KEYS])
    return f"; take it out{f' (there are {listed})' * bool(listed)}"


def _instead(document: Document, schema: type[BaseModel], place: yaml_lines.Path) -> str:
    """What to write at a place, as a clause: an example, or the default; empty if neither is
    known."""
    while place and isinstance(place[-1], int):
        place = place[:-1]
    named = [str(part) for part in place if not isinstance(part, int)]
    key = named[-1] if named else ""
    for known in (".".join(named[-2:]), key):
        if known in document.examples:
            return f"write `{key}: {document.examples[known]}`"
    found = _field(schema, place)
    if found is None or found.is_required() or found.validate_default:
        return ""
    if isinstance(found.default, bool | int | float | str) and found.default != "":
        return f"write `{key}: {quoted(found.default).strip('`')}`"
    return f"take `{key}` out to have the default"


def keys_at(schema: type[BaseModel], path: yaml_lines.Path) -> list[str]:
    """The keys that `schema` knows at `path`."""
    known = _model(schema, path)
    return [field.alias or name for name, field in known.model_fields.items()] if known else []


def _field(schema: type[BaseModel], path: yaml_lines.Path) -> FieldInfo | None:
    around = _model(schema, path[:-1]) if path else None
    return around.model_fields.get(str(path[-1])) if around else None


def _model(schema: type[BaseModel], path: yaml_lines.Path) -> type[BaseModel] | None:
    """The model of `schema` at `path`; None if there is none."""
    known: Any = schema
    for part in path:
        if isinstance(known, type) and issubclass(known, BaseModel):
            field = known.model_fields.get(str(part))
            known = field.annotation if field else None
        else:  # a mapping from names to further models, or a list of them
            known = (*get_args(known), None, None)[1 if get_origin(known) is dict else 0]
        if isinstance(known, UnionType):  # an optional value
            known = get_args(known)[0]
    return known if isinstance(known, type) and issubclass(known, BaseModel) else None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` probably means, among the first of them."""
    some = list(islice(known, MAX_COMPARED))
    return next(iter(difflib.get_close_matches(word[:MAX_WORD], some, n=1, cutoff=0.6)), None)


def near(word: str, known: Iterable[str]) -> str:
    """A did-you-mean for `word`, as the end of a sentence; empty if no known word is similar."""
    match = nearest(word, known)
    return f"; did you mean `{match}`?" if match else ""


def quoted(value: object) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "nothing"
    written = str(value).lower() if isinstance(value, bool) else str(value)
    text = " ".join(written.split()).replace("`", "ʼ")
    return f"`{text}`" if len(text) <= 60 else f"`{text[:59]}…`"


def dotted(path: yaml_lines.Path) -> str:
    """A path as people write it. For a list, the line shows which entry it is."""
    inner = path[1:] if path and isinstance(path[0], int) else path
    return ".".join(" ".join(str(part).split()).replace("`", "ʼ")[:60] for part in inner)
