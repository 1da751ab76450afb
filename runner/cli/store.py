"""`regatta store ls | du | gc`: what lies in a store, how much of it, and what may go.

The store is a folder or gs://bucket/prefix. None of these makes one, and only `gc --yes` changes
anything. Exit codes: 0 done, 1 failed, 2 bad input.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.filesize import decimal as size
from rich.table import Table
from rich.text import Text

from runner.lib.untrusted_files import printable
from runner.store import gc
from runner.store.store import Entry, Store, StoreError

FAILED, BAD_INPUT = 1, 2
BAR = 20  # characters of the longest bar
FIGURES = ("files", "size", "pieces")  # columns that are aligned to the right

app = typer.Typer(help="What lies in the store, and what may go.", no_args_is_help=True)

ThePlace = Annotated[
    str,
    typer.Option("--store", envvar="REGATTA_STORE", help="A folder, or gs://bucket/prefix."),
]
TheJobs = Annotated[
    str | None,
    typer.Option("--jobs", envvar="REGATTA_JOBS", help="Where jobs write, if that is apart."),
]
TheFolder = Annotated[str, typer.Argument(metavar="[FOLDER]", help="Of the store; all of it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


@app.command()
def ls(
    folder: TheFolder = "", store: ThePlace = "store", jobs: TheJobs = None, as_json: AsJson = False
) -> None:
    """List what is directly in a folder of the store."""
    opened, folder = _open(store, jobs), folder.strip("/")
    with _words("listing"):
        found = sorted(opened.walk(folder, deep=False))
    _must_hold(opened, folder, found)
    if as_json:
        _print([_entry(entry) for entry in found])
        return
    table = _table("name", "size", "written")
    for entry in found:
        name = entry.name.rpartition("/")[2]
        if entry.folder:
            _row(table, f"{name}/", "", "")
        else:
            _row(table, name, size(entry.size), _when([entry]))
    Console().print(table)


@app.command()
def du(
    folder: TheFolder = "", store: ThePlace = "store", jobs: TheJobs = None, as_json: AsJson = False
) -> None:
    """Add up the files and bytes in each part of the store, or of a folder of it."""
    opened, folder = _open(store, jobs), folder.strip("/")
    with _words("adding up"):
        found = list(opened.walk(folder))
    _must_hold(opened, folder, found)
    depth = folder.count("/") + 1 if folder else 0
    parts: dict[str, list[Entry]] = defaultdict(list)
    for entry in found:
        parts[entry.name.split("/")[depth]].append(entry)
    ordered = sorted(parts.items(), key=lambda part: (-_bytes(part[1]), part[0]))
    if as_json:
        sizes = [
            {"name": name, "files": len(entries), "bytes": _bytes(entries)}
            for name, entries in ordered
        ]
        _print({"store": str(opened.root), "folder": folder, "parts": sizes})
        return
    most = _bytes(ordered[0][1]) or 1
    table = _table("part", "files", "size", "last written", "")
    for name, entries in ordered:
        bar = "█" * round(BAR * _bytes(entries) / most)
        _row(table, name, f"{len(entries):,}", size(_bytes(entries)), _when(entries), bar)
    table.add_section()
    _row(table, "all", f"{len(found):,}", size(_bytes(found)), _when(found), "")
    Console().print(table)


@app.command("gc")
def collect(
    store: ThePlace = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
    yes: Annotated[bool, typer.Option("--yes", help="Free it, after showing it.")] = False,
    older_than: Annotated[
        float, typer.Option(metavar="HOURS", min=0.0, help="Free nothing written since then.")
    ] = gc.HOUR / 3600,
) -> None:
    """Show what no record, pin or unfinished work needs, and free it with --yes.

    A pin is a file pins/NAME.json in the store:
    {"path": "work/x0123456789abcdef.t1-89ab", "reason": "for the paper"}
    """
    opened = _open(store, jobs)
    with _words("looking at all of the store"):
        pieces = gc.plan(gc.look(opened, time.time()), older_than * 3600)
    going = [piece for piece in pieces if piece.verdict == "free"]
    staying = [piece for piece in pieces if piece.verdict == "keep"]
    if not as_json:
        _show(going, staying)
    if yes:
        with _words("freeing"):
            gc.free(opened, going)
    if as_json:
        of = {"free": [_piece(piece) for piece in going], "keep": [_piece(p) for p in staying]}
        _print({"store": str(opened.root), "freed": yes, **of})
    elif going:
        freed = size(sum(piece.size for piece in going))
        print(f"{freed} freed." if yes else "Nothing was freed; --yes does it.")


def _show(going: Iterable[gc.Piece], staying: Iterable[gc.Piece]) -> None:
    """What may go, piece by piece, and what stays, added up."""
    out = Console()
    freed = sorted(going, key=lambda piece: (-piece.size, piece.name))
    if freed:
        table = _table("may go", "files", "size", "why")
        for piece in freed:
            _row(table, piece.name, f"{len(piece.entries):,}", size(piece.size), piece.why)
        table.add_section()
        _row(table, "all", *_sum(freed), "")
        out.print(table)
    else:
        out.print("Nothing may go.")
    kept: dict[tuple[str, str], list[gc.Piece]] = defaultdict(list)
    for piece in staying:
        kept[piece.name.split("/")[0], piece.why].append(piece)
    table = _table("stays", "pieces", "files", "size", "why")
    for (top, why), pieces in kept.items():
        _row(table, top, f"{len(pieces):,}", *_sum(pieces), why)
    out.print(table)


# ── Words and figures ────────────────────────────────────────────────────────────────────────


def _open(place: str, jobs: str | None) -> Store:
    try:
        return Store(place, jobs=jobs, make=False)
    except StoreError as error:
        _stop(BAD_INPUT, str(error))


@contextmanager
def _words(doing: str) -> Iterator[None]:
    """Say on stderr what is being done, and in a sentence what cannot be done."""
    try:
        with Console(stderr=True).status(doing):
            yield
    except StoreError as error:
        _stop(FAILED, str(error))


def _must_hold(store: Store, folder: str, found: Iterable[Entry]) -> None:
    if not found:
        _stop(BAD_INPUT, f"{store.root} has no folder {folder}; `regatta store ls` lists them.")


def _stop(code: int, words: str) -> NoReturn:
    print(words, file=sys.stderr)
    sys.exit(code)


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(name, justify="right" if name in FIGURES else "left", overflow="fold")
    return table


def _row(table: Table, *cells: str) -> None:
    table.add_row(*(Text(printable(cell)) for cell in cells))  # a name's [brackets] are no markup


def _when(entries: Iterable[Entry]) -> str:
    at = max(entry.at for entry in entries)
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _bytes(entries: Iterable[Entry]) -> int:
    return sum(entry.size for entry in entries)


def _sum(pieces: Iterable[gc.Piece]) -> tuple[str, str]:
    """How many files, of which size."""
    entries = [entry for piece in pieces for entry in piece.entries]
    return f"{len(entries):,}", size(_bytes(entries))


def _entry(entry: Entry) -> dict[str, Any]:
    if entry.folder:
        return {"name": entry.name, "folder": True}
    written = datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="seconds")
    return {"name": entry.name, "folder": False, "bytes": entry.size, "written": written}


def _piece(piece: gc.Piece) -> dict[str, Any]:
    files = len(piece.entries)
    return {"name": piece.name, "files": files, "bytes": piece.size, "why": piece.why}


def _print(answer: Any) -> None:
    print(json.dumps(answer, indent=2))
