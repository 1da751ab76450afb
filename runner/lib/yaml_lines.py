"""YAML 1.2 scalars, with the line of every value.

PyYAML's safe loader implements YAML 1.1, in which `3e-4` is text and `on` is true. Here scalars
follow YAML 1.2's core schema. Every value's line is kept for messages. Keys that are equal after
Unicode's normalisation (NFKC) are one key.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml

MOST_BYTES = 100_000
MOST_DEPTH = 20
MOST_DIGITS = 400

Path = tuple[str | int, ...]
_UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")


class BadYaml(Exception):
    """The text is not YAML; has the line (1-based)."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Document:
    """The parsed value, and the line of each part."""

    value: Any
    lines: Mapping[Path, int]

    def line(self, path: Path) -> int:
        """The line of `path`, or of its nearest parent in the text."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with YAML 1.2's core schema for scalars. Refuses the confusing parts of
    YAML: aliases, tags, deep nesting."""

    yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {}  # type: ignore[misc]
    _depth = -1

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise BadYaml("an alias (`*name`) is not read here; write the value out", line)
        if event.tag is not None:
            raise BadYaml(f"the tag {event.tag!r} is not read here; write a plain value", line)
        if self._depth >= MOST_DEPTH:
            raise BadYaml(f"it is nested deeper than {MOST_DEPTH} levels", line)
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


for tag, pattern, first in (
    ("null", r"~|null|", ["~", "n", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), first)


def _number(
    kind: Callable[[str], int | float],
) -> Callable[[yaml.SafeLoader, yaml.ScalarNode], Any]:
    return lambda loader, node: kind(loader.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _number(int))
_Loader.add_constructor("tag:yaml.org,2002:float", _number(float))


def _refuse_twice(path: Path, line: int) -> None:
    raise BadYaml(f"the key `{_short(str(path[-1]))}` stands twice", line)


def read(text: str, twice: Callable[[Path, int], None] = _refuse_twice) -> Document:
    """Read one YAML document. Raises BadYaml with the line of the problem. `twice` is called for a
    duplicate key with its path and line; unless it raises, the first one counts."""
    if len(text.encode(errors="replace")) > MOST_BYTES:
        raise BadYaml(f"it is longer than {MOST_BYTES:,} bytes; split or shorten it", 1)
    lines: dict[Path, int] = {}
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise BadYaml("it is empty", 1)
        _check(node, (), lines, twice)
        return Document(loader.construct_document(node), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = error.problem or error.context or "it cannot be read"
        raise BadYaml(f"it is not YAML: {words}", mark.line + 1 if mark else 1) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise BadYaml(
            f"it holds a character that YAML forbids (#x{error.character:04x})", line
        ) from error
    except (ValueError, OverflowError) as error:  # PyYAML does not catch those of `int`, `chr`
        line = loader.line + 1 if loader else 1
        raise BadYaml("it is not YAML: a number or an escape is too large", line) from error


def _check(
    node: yaml.Node, path: Path, lines: dict[Path, int], twice: Callable[[Path, int], None]
) -> None:
    """Note every value's line; refuse what would be confusing or could not be stored."""
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if isinstance(node, yaml.ScalarNode):
        _check_text(node)
        if len(node.value) > MOST_DIGITS and node.tag.endswith((":int", ":float")):
            raise BadYaml(f"a number has more than {MOST_DIGITS} digits", line)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        kept = []
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise BadYaml("a key must be a plain word", line)
            _check_text(key)
            # Two spellings of one word look the same; only one could count.
            if (meant := unicodedata.normalize("NFKC", key.value)) in seen:
                twice((*path, meant), line)
                continue
            seen.add(meant)
            kept.append((key, value))
            key.tag = "tag:yaml.org,2002:str"  # so that an arm may be called `1` or `true`
            lines[(*path, key.value)] = line
            _check(value, (*path, key.value), lines, twice)
        node.value = kept
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _check(value, (*path, index), lines, twice)


def _check_text(node: yaml.ScalarNode) -> None:
    """Refuse characters that escapes can write but text must not contain (`"\\ud800"`, `"\\0"`)."""
    if _UNWRITABLE.search(node.value):
        raise BadYaml("it holds a character that no text may hold", node.start_mark.line + 1)


def _short(key: str) -> str:
    words = " ".join(key.split()).replace("`", "ʼ")
    return words if len(words) <= 60 else words[:59] + "…"
