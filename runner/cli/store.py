"""`regatta store ls | du | keep | gc`: lists a store, measures it, copies records, and frees space.

The store is a folder or gs://bucket/prefix. None of these creates one or changes anything, except
for `keep`, which makes the folder that it copies to, and `gc --yes`.
Exit codes: 0 done, 1 failed, 2 bad input.
"""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal as size
from rich.table import Table

from runner.cli import options, tables
from runner.cli.commands import App
from runner.cli.ending import print_json, stop, stopping, tell
from runner.cli.options import EXPERIMENTS, AsJson, TheExecution, TheJobs, TheStore
from runner.history import kept_records
from runner.schema import record
from runner.store import gc
from runner.store.store import Entry, Store, StoreError

BAR = 20  # length of the longest bar in characters
FIGURES = ("files", "size", "pieces")  # right-aligned columns

app = App(help="List, measure, copy from and clean up the store.", no_args_is_help=True)

TheFolder = Annotated[
    str, typer.Argument(metavar="[FOLDER]", help="A folder of the store; without it, all of it.")
]


@app.command()
def ls(
    folder: TheFolder = "", store: TheStore = "store", jobs: TheJobs = None, as_json: AsJson = False
) -> None:
    """List what is directly in a folder of the store."""
    opened, folder = _open(store, jobs), folder.strip("/")
    with _doing("listing"):
        found = sorted(opened.walk(folder, deep=False))
    _must_hold(opened, folder, found)
    if as_json:
        print_json([_entry(entry) for entry in found])
        return
    names = (entry.name.rpartition("/")[2] for entry in found)
    rows = (
        (f"{name}/", "", "") if entry.folder else (name, size(entry.size), _when([entry]))
        for name, entry in zip(names, found, strict=True)
    )
    Console().print(_table("name", "size", "written", rows=rows))


@app.command()
def du(
    folder: TheFolder = "", store: TheStore = "store", jobs: TheJobs = None, as_json: AsJson = False
) -> None:
    """Add up the files and bytes in each part of the store, or of a folder of it."""
    opened, folder = _open(store, jobs), folder.strip("/")
    with _doing("adding up"):
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
        print_json({"store": str(opened.root), "folder": folder, "parts": sizes})
        return
    most = _bytes(ordered[0][1]) or 1
    rows = (
        (*_part(name, entries), "█" * round(BAR * _bytes(entries) / most))
        for name, entries in ordered
    )
    table = _table("part", "files", "size", "last written", "", rows=rows)
    table.add_section()
    tables.add(table, *_part("total", found), "")
    Console().print(table)


@app.command("gc")
def collect(
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
    yes: Annotated[bool, typer.Option("--yes", help="Free it.")] = False,
    older_than: Annotated[
        float, typer.Option(metavar="HOURS", min=0.0, help="Free nothing written since then.")
    ] = gc.HOUR / 3600,
) -> None:
    """Show what no record, pin or unfinished work needs, and free it with --yes.

    A pin is a file pins/NAME.json in the store:
    {"path": "work/x0123456789abcdef.t1-89ab", "reason": "for the paper"}
    """
    opened = _open(store, jobs)
    with _doing("reading the store"):
        pieces = gc.plan(gc.look(opened, time.time()), older_than * 3600)
    going = [piece for piece in pieces if piece.verdict == "free"]
    staying = [piece for piece in pieces if piece.verdict == "keep"]
    if not as_json:
        _show(going, staying)
    if yes:
        with _doing("freeing"):
            gc.free(opened, going)
    if as_json:
        of = {"free": [_piece(piece) for piece in going], "keep": [_piece(p) for p in staying]}
        print_json({"store": str(opened.root), "freed": yes, **of})
    elif going:
        freed = size(sum(piece.size for piece in going))
        print(f"{freed} freed." if yes else "Nothing was freed. Use --yes to free it.")


@app.command()
def keep(
    execution: TheExecution,
    folder: Annotated[
        Path, typer.Argument(help="Where to copy them, such as experiments/NAME/records.")
    ],
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
) -> None:
    """Copy the records of an execution, or of a search, without outputs, to a folder of a
    repository.

    `regatta site build` shows what it finds in experiments/*/records beside the store's executions.
    Nothing is copied if another folder there has one of the records with other bytes.
    """
    opened, beside = _open(store, jobs), kept_records.places(EXPERIMENTS)
    with stopping(StoreError):
        if execution in record.names(opened, "searches"):
            name, copied = execution, kept_records.copy_search(opened, execution, folder, beside)
        else:
            name = options.execution(opened, execution).id
            copied = kept_records.copy(opened, name, folder, beside)
    words = f"{folder} has {copied} records of {name}."
    tell(words, as_json, folder=folder, records=copied, execution=name)


def _show(going: Iterable[gc.Piece], staying: Iterable[gc.Piece]) -> None:
    """What would be freed, piece by piece, and totals of what stays."""
    out = Console()
    freed = sorted(going, key=lambda piece: (-piece.size, piece.name))
    if freed:
        rows = ((piece.name, *_sum([piece]), piece.why) for piece in freed)
        table = _table("can be freed", "files", "size", "reason", rows=rows)
        table.add_section()
        tables.add(table, "total", *_sum(freed), "")
        out.print(table)
    else:
        out.print("Nothing to free.")
    kept: dict[tuple[str, str], list[gc.Piece]] = defaultdict(list)
    for piece in staying:
        kept[piece.name.split("/")[0], piece.why].append(piece)
    stays = ((top, f"{len(of):,}", *_sum(of), why) for (top, why), of in kept.items())
    out.print(_table("kept", "pieces", "files", "size", "reason", rows=stays))


# ── Words and figures ────────────────────────────────────────────────────────────────────────


def _open(place: str, jobs: str | None) -> Store:
    with stopping(StoreError):
        return Store(place, jobs=jobs, make=False)


def _doing(words: str) -> AbstractContextManager[object]:
    """Say on stderr what is in progress."""
    return Console(stderr=True).status(words)


def _must_hold(store: Store, folder: str, found: Iterable[Entry]) -> None:
    if not found:
        stop(f"{store.root} has no folder {folder}; `regatta store ls` lists them.")


def _table(*names: str, rows: Iterable[tuple[str, ...]]) -> Table:
    return tables.table(names, rows, right=FIGURES, gap=1)


def _when(entries: Iterable[Entry]) -> str:
    at = max(entry.at for entry in entries)
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _bytes(entries: Iterable[Entry]) -> int:
    return sum(entry.size for entry in entries)


def _sum(pieces: Iterable[gc.Piece]) -> tuple[str, str]:
    """The number of files and their size."""
    entries = [entry for piece in pieces for entry in piece.entries]
    return f"{len(entries):,}", size(_bytes(entries))


def _part(name: str, entries: Collection[Entry]) -> tuple[str, str, str, str]:
    return name, f"{len(entries):,}", size(_bytes(entries)), _when(entries)


def _entry(entry: Entry) -> dict[str, Any]:
    if entry.folder:
        return {"name": entry.name, "folder": True}
    written = datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="seconds")
    return {"name": entry.name, "folder": False, "bytes": entry.size, "written": written}


def _piece(piece: gc.Piece) -> dict[str, Any]:
    files = len(piece.entries)
    return {"name": piece.name, "files": files, "bytes": piece.size, "why": piece.why}
