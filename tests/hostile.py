"""Files as a hostile job writes them, for property tests: an honest file, of which figures, words,
lists or the whole are something else."""

import json
import os
import shutil
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

SPARSE = 3 << 30  # bytes, of which none is on the disk


class Raw(str):
    """JSON as it is written, which `json.dumps` would not write."""


NUMBERS = (
    *("-1", "0", "-0.0", "1", "5e-324", "1e-320", "1e-3", "0.5", "1e39", "1e40", "-1e40", "3.5e38"),
    *("1e308", "-1e308", "1e999", "NaN", "Infinity", "-Infinity", "1" + "0" * 320, "9" * 5_000),
    *(str(2**31), str(2**63 - 1), str(2**63), str(-(2**63)), "1" + "0" * 60, "true", "null"),
)
OTHERS = (
    *('"1"', '"\\ud800"', '"\\u0000"', '"\\u001b[2J\\u202e<script>{{ 7 * 7 }}"', "{}", "[]"),
    *("[" * 100_000, "[" * 900 + "]" * 900, '{"a": 1, "a": 2}', '"' + "x" * 600_000 + '"'),
    *("[" + "[]," * 100_000 + "[]]", "{" + ",".join(f'"{n}": "x"' for n in range(5_000)) + "}"),
)
LEAVES = st.one_of(
    st.sampled_from(NUMBERS).map(Raw),
    st.sampled_from(OTHERS).map(Raw),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
)
WHOLES = ("as it is", "empty", "cut", "twice", "key twice", "utf-16", "no utf-8", "sparse", "gone")
PLACES = ("a folder", "a pipe", "a link")  # in its place


def emitted(value: Any) -> str:
    """JSON with what is `Raw` in it."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict):
        inner = (f"{json.dumps(key)}: {emitted(one)}" for key, one in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(emitted, value)) + "]"
    return json.dumps(value)


def spoiled(draw: Any, value: Any) -> Any:
    """The value with something in it replaced."""
    inner = list(value) if isinstance(value, dict) else range(len(value) if is_list(value) else 0)
    if not inner or draw(st.integers(0, 9)) == 0:
        return draw(LEAVES)
    at = draw(st.sampled_from(inner))
    other = dict(value) if isinstance(value, dict) else list(value)
    if isinstance(other, dict) and draw(st.integers(0, 19)) == 0:
        del other[at]
        return other
    other[at] = spoiled(draw, value[at])
    return other


def filled(value: Any, number: str, accepted: Callable[[Any], bool], but: Container[str]) -> Any:
    """The value with this number wherever there is one and it is accepted there, but not at these
    keys."""
    found = value
    for path in list(_numbers(value, but)):
        other = _with(found, path, Raw(number))
        found = other if accepted(other) else found
    return found


def _numbers(value: Any, but: Container[str]) -> Iterator[tuple[Any, ...]]:
    """Where in a value numbers are."""
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in inner:
            if key not in but:
                yield from ((key, *rest) for rest in _numbers(one, but))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield ()


def _with(value: Any, path: tuple[Any, ...], leaf: Any) -> Any:
    if not path:
        return leaf
    other = dict(value) if isinstance(value, dict) else list(value)
    other[path[0]] = _with(value[path[0]], path[1:], leaf)
    return other


def is_list(value: Any) -> bool:
    return isinstance(value, list)


def spoil(draw: Any, path: Path, *, places: bool = True) -> None:
    """Make a file of JSON, or of JSON in lines, hostile."""
    lines = [line for line in path.read_text().splitlines() if line]
    if lines and path.suffix in (".json", ".jsonl"):
        for _ in range(draw(st.integers(0, 2))):
            at = draw(st.integers(0, len(lines) - 1))
            try:
                lines[at] = emitted(spoiled(draw, json.loads(lines[at])))
            except (ValueError, RecursionError):  # it is spoiled already
                continue
    whole = ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    # Most files stay files: what is refused at once is looked at no further.
    how = draw(st.sampled_from(("as it is",) * 12 + WHOLES + (PLACES if places else ())))
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how == "a pipe":
        os.mkfifo(path)
    elif how == "a link":
        path.symlink_to("/etc/hostname")
    elif how == "sparse":
        path.touch()
        os.truncate(path, SPARSE if places else 80 << 20)  # which is read where it is digested
    elif how != "gone":
        path.write_bytes(
            {
                "empty": b"",
                "cut": whole[: len(whole) // 2],
                "twice": whole * 2,
                "key twice": whole.replace(b"{", b'{"step": 1, "step": 2, "bpb": 1.0,', 1),
                "utf-16": whole.decode("utf-8", "replace").encode("utf-16"),
                "no utf-8": whole.replace(b'"', b'"\xff', 1),
            }.get(how, whole)
        )


def spoil_some(draw: Any, folder: Path, *, places: bool = True) -> None:
    """Make some files below a folder hostile."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "checkpoints" not in path.parts and draw(st.booleans()):
            spoil(draw, path, places=places)
    if places and draw(st.integers(0, 9)) == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.write_bytes(b"")
