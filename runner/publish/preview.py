"""Previews of outputs: the first records of what a step wrote.

Outputs are untrusted, and a file may be made to break its decoder. So everything except plain text
is decoded by a child (`runner.publish.preview_child`), one per file, with little memory and time,
under bubblewrap if that works. The child asks for the bytes it needs, within limits. So it works
the same for a disk and a bucket, and reads only the beginning of a file of any size. The child's
answer is untrusted, too: its form is checked, known secrets are removed, unprintable characters are
made visible, and everything is cut to the size of a page.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Literal

from pydantic import BaseModel, ConfigDict

from runner.isolation import bubblewrap
from runner.lib import bounds, redact
from runner.lib.bounds import Whole
from runner.publish import preview_child

MODULE = "runner.publish.preview_child"
Kind = Literal["lines", "text", "parquet", "tokens"]
SECONDS, MEMORY = 20.0, 2 << 30  # limits of a child; bytes of its address space
MOST_READ: Mapping[Kind, int] = {  # bytes of one output
    "lines": 1 << 20,
    "text": 1 << 20,
    "parquet": 32 << 20,
    "tokens": 80 << 20,  # mostly for a tokenizer
}
MOST_SAID = 1 << 20  # bytes of a child's answer
ROOM = 6_000  # characters of a preview
VALUE, NAME = 1_000, 100  # characters of a value, and of its name
LINES_SHOWN = 40
RECORDS, TOKENS = 6, 250
LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
TEXTS = (".txt", ".md", ".csv", ".tsv", ".json", ".yaml", ".yml", ".log")
PLAIN = (".jsonl", *TEXTS)
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
OUTSIDE = {  # the environment if there is no box
    **ENVIRONMENT,
    "PATH": os.defpath,
    "LANG": "C.UTF-8",
    "PYTHONPATH": str(bubblewrap.LAB),
    "PYTHONDONTWRITEBYTECODE": "1",
}
STORE = ("manifest.json", "tokenizer.json", "tokens/zarr.json", "tokens/c/0", "offsets/zarr.json")

Read = Callable[[str, int, int], bytes]  # (path in the output, start, length) → bytes


class Preview(BaseModel):
    """What is shown of a part of an output; `why` says what is not."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    why: str = ""
    about: str = ""
    records: list[list[tuple[str, str]]] = []  # the fields of each: name and value
    text: str | None = None
    tokens: list[tuple[list[Whole], str]] = []  # ids, and the text that they add


@dataclass(frozen=True)
class Part:
    """A part of an output that has a preview: a file, or the folder of a token store."""

    name: str
    kind: Kind
    files: Mapping[str, str]  # {name for the child: path in the output}


def parts(files: Mapping[str, int]) -> list[Part]:
    """The parts of an output that have a preview, by path: every token store, the first shard of
    each split, and texts. Pure."""
    found: dict[str, Part] = {}
    for path in files:
        top = path.removesuffix(STORE[2])
        if (top == "" or top.endswith("/")) and all(f"{top}{name}" in files for name in STORE):
            named = {name: f"{top}{name}" for name in STORE}
            found[top] = Part(top.rstrip("/") or "tokens", "tokens", named)
    stores, seen = frozenset(found), set()
    for path in sorted(files):
        kind = _kind(path)
        if kind is None or any(above in stores for above in _above(path)):
            continue
        of = PurePosixPath(path)
        split = of.parent / of.name.partition(".")[0]
        if kind == "text" or (kind, split) not in seen:
            found[path] = Part(path, kind, {of.name: path})
        seen.add((kind, split))
    order = ("tokens", "lines", "parquet", "text")
    return sorted(found.values(), key=lambda part: (order.index(part.kind), part.name))


def _above(path: str) -> Iterator[str]:
    """The folders around a file, each with its `/`, and "" for the top."""
    yield ""
    yield from (path[: at + 1] for at, x in enumerate(path) if x == "/")


def _kind(path: str) -> Kind | None:
    name = path.rpartition("/")[2]
    if name.endswith(LINES):
        return "lines"
    if name.endswith(".parquet"):
        return "parquet"
    return "text" if name.endswith(TEXTS) and name != "zarr.json" else None


# ── What a child says ────────────────────────────────────────────────────────────────────────


def look(part: Part, sizes: Mapping[str, int], read: Read, seconds: float = SECONDS) -> Preview:
    """The preview of a part; `sizes` and `read` access the output. Problems with the files are part
    of the preview; what `read` raises is raised."""
    named = {name: sizes[path] for name, path in part.files.items()}
    if part.kind in ("lines", "text") and part.name.endswith(PLAIN):
        # Without a child, because it is safe and a hundred times as fast.
        return printable(_here(part, named, read))
    asked = {"kind": part.kind, "files": named, "memory": MEMORY}
    until = time.monotonic() + seconds
    with _child() as process:
        assert process.stdin
        assert process.stdout
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            said = _serve(process.stdin, process.stdout, asked, part, read)
        finally:
            timer.cancel()
    if said is None:
        late = time.monotonic() >= until
        return Preview(why=f"it took longer than {seconds:.0f} s" if late else BROKEN)
    return printable(said)


def _here(part: Part, sizes: Mapping[str, int], read: Read) -> Preview:
    ((name, path),) = part.files.items()
    head = read(path, 0, preview_child.HEAD) if sizes[name] else b""
    given = preview_child.Given(name, sizes[name], lambda _, at, length: head[at : at + length])
    return Preview.model_validate_json(json.dumps(preview_child.shown(part.kind, {name: given})))


BROKEN = "what reads it broke down over it, or took too much memory or time"


def _serve(
    into: IO[bytes], out: IO[bytes], asked: object, part: Part, read: Read
) -> Preview | None:
    """Answer a child's requests until it sends its result; None if it never does."""
    left = MOST_READ[part.kind]
    try:
        _write(into, json.dumps(asked).encode() + b"\n")
        while line := out.readline(MOST_SAID):
            word = bounds.parse(_Word, line)
            if word.shown is not None:
                return word.shown
            if word.read is None:
                return None
            name, start, length = word.read
            left -= length
            if name not in part.files or start < 0 or length < 1 or left < 0:
                _write(into, b"no\n")
                continue
            data = read(part.files[name], start, length)[:length]
            _write(into, b"%d\n" % len(data) + data)
    except (BrokenPipeError, ValueError):
        return None
    return None


class _Word(BaseModel):
    """A line from a child."""

    model_config = ConfigDict(extra="forbid", strict=True)

    read: tuple[str, Whole, Whole] | None = None
    shown: Preview | None = None


def _write(into: IO[bytes], data: bytes) -> None:
    into.write(data)
    into.flush()


@contextlib.contextmanager
def _child() -> Iterator["subprocess.Popen[bytes]"]:
    """A child that reads, killed at the end."""
    argv = [sys.executable, "-P", "-m", MODULE]
    with contextlib.ExitStack() as stack:
        calls: tuple[int, ...] = ()
        if not bubblewrap.probe():
            calls = stack.enter_context(bubblewrap.filtered())
            argv = bubblewrap.command(bubblewrap.Box(environment=ENVIRONMENT), argv, *calls)
        stack.enter_context(contextlib.suppress(BrokenPipeError))  # when its pipes are closed
        process = stack.enter_context(
            subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=OUTSIDE,  # a box sets its own
                cwd="/",
                pass_fds=calls,
            )
        )
        stack.callback(process.kill)
        yield process


# ── What is shown of it ──────────────────────────────────────────────────────────────────────


def printable(said: Preview) -> Preview:
    """The preview without known secrets, with unprintable characters made visible, and cut to size.
    Pure except for the registered secrets."""
    room = ROOM

    def fit(words: str, most: int) -> str:
        nonlocal room
        found = cut(visible(redact.clean(words)), min(most, room))
        room -= len(found)
        return found

    return Preview(
        why=fit(said.why, VALUE),
        about=fit(said.about, 2 * VALUE),
        records=[
            [(fit(name, NAME), fit(value, VALUE)) for name, value in record]
            for record in said.records[:RECORDS]
            if room > 0
        ],
        text=None if said.text is None else fit(said.text, ROOM),
        tokens=_tokens(said.tokens[:TOKENS]),
    )


def _tokens(said: list[tuple[list[int], str]]) -> list[tuple[list[int], str]]:
    """A secret may span many tokens, so if there is one, all tokens become one piece."""
    whole = "".join(words for _, words in said)
    if (shown := redact.clean(whole)) != whole:
        return [([], cut(visible(shown), ROOM))]
    found, room = [], ROOM
    for ids, words in said:
        found.append((ids[:GROUP], cut(visible(words), max(0, min(VALUE, room)))))
        room -= len(found[-1][1])
        if room <= 0:
            break
    return found


GROUP = 8  # ids per piece


def visible(words: str) -> str:
    """The text with unprintable characters made visible: `\\x1b`, `\\u202e`. Line breaks, tabs and
    spaces stay. Pure."""
    return "".join(
        x if x.isprintable() or x in "\n\t" or unicodedata.category(x) == "Zs" else _escape(x)
        for x in words
    )


def _escape(x: str) -> str:
    return x.encode("ascii", "backslashreplace").decode() if ord(x) > 127 else f"\\x{ord(x):02x}"


def cut(words: str, most: int) -> str:
    """At most so many characters on at most LINES_SHOWN lines, and `…` if there were more."""
    few = "\n".join(words.split("\n", LINES_SHOWN)[:LINES_SHOWN])[: max(0, most)]
    return words if few == words else few[: max(0, most - 1)] + "…"
