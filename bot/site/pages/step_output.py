"""The data pages: the output of a step, its files, its report, and previews of its first records.

A page is drawn, and the store read for it, only once, until the output changes or is gone.
"""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bot.site.base.files import File, made_from
from bot.site.facts.lab import Lab
from bot.site.facts.outputs import Output, outputs, pages_of
from bot.site.pages.templating import Look
from runner.lib import bounds, redact
from runner.publish import preview
from runner.publish.preview import Part, Preview
from runner.schema import data_report
from runner.schema.data_report import REPORT, DataReport
from runner.store import artifacts
from runner.store.store import BadName, Store

MAX_FILES = 200  # in a page's table
MAX_PARTS = 6  # with a preview
MAX_NAMED = 60  # inputs, and keys of its config
SECONDS = 60.0  # for the previews of a page
NAME = 160  # characters of a path


def files(facts: Lab, look: Look, store: Store) -> Iterator[File]:
    """All data pages."""
    every = outputs(facts)
    there = {name: _listed(name, store) for name in {one.step.store for one in every.values()}}
    for path, one in every.items():
        # Identifies the output and whether it exists, without reading its files. For a bucket that
        # would be a request per folder.
        made = f"{one.end.output_sha256} {_is_there(store, one.end.folder)}"
        if one.step.fingerprint[:16] not in there[one.step.store]:
            made = "gone"
        # Not the whole plan, which may have many steps.
        told = (one.called, one.entry.execution.id, one.entry.plan.title, one.step, one.end)
        yield File(path, partial(_page, path, one, look, store), made_from(look.told, made, *told))


def _listed(name: str, store: Store) -> set[str]:
    """The existing outputs of a function. Jobs write in that folder, so its content is
    untrusted."""
    try:
        return set(store.list(f"steps/{name}"))
    except OSError:
        return set()


def _is_there(store: Store, folder: str) -> bool:
    where = store.at(folder)
    return os.path.isdir(where) if isinstance(where, Path) else True  # noqa: PTH112  raises nothing


# ── What lies in the store ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Found:
    """The files of an output in the store."""

    manifest: artifacts.Manifest | None
    wrong: str | None = None  # why there are no previews
    shown: tuple[tuple[Part, Preview], ...] = ()
    left_out: int = 0  # further parts that could have a preview
    report: DataReport | None = None  # of a step that changed a text


def find(one: Output, store: Store) -> Found:
    """Read the store. Problems of an output are part of the result; raises StoreError only if a
    bucket does not answer."""
    manifest = None
    try:
        manifest = artifacts.said(store, one.step.store, one.step.fingerprint)
        if manifest is None:
            return Found(None)
        if not _is_there(store, manifest.folder):
            return Found(manifest, "its files have been removed, and this is what they were")
        artifacts.Made(store, manifest).verify(digests=False)
    except (artifacts.BadOutput, BadName, OSError) as error:
        return Found(manifest, _words(error, one, store))
    sizes = {path: of.bytes for path, of in manifest.files.items()}
    report = _report(manifest, store)
    parts = [part for part in preview.parts(sizes) if report is None or part.name != REPORT]
    shown = tuple(_decoded(parts[:MAX_PARTS], sizes, one, manifest.folder, store))
    return Found(manifest, None, shown, len(parts) - len(shown), report)


def _report(manifest: artifacts.Manifest, store: Store) -> DataReport | None:
    """The step's report; None if it has none, or a file of this name in another form, which is
    shown as text."""
    if manifest.files.get(REPORT) is None:
        return None
    try:
        data = store.peek(f"{manifest.folder}/{REPORT}", data_report.MAX_BYTES + 1)
        return bounds.parse(DataReport, data or b"", data_report.MAX_BYTES)
    except ValueError:
        return None


def _decoded(
    parts: list[Part], sizes: Mapping[str, int], one: Output, folder: str, store: Store
) -> Iterator[tuple[Part, Preview]]:
    until = time.monotonic() + SECONDS

    def read(path: str, start: int, length: int) -> bytes:
        return store.peek(f"{folder}/{path}", length, start) or b""

    for part in parts:
        left = until - time.monotonic()
        if left <= 0:
            return
        try:
            yield part, preview.look(part, sizes, read, min(left, preview.SECONDS))
        except (BadName, OSError) as error:
            yield part, Preview(why=_words(error, one, store))


def _words(error: Exception, one: Output, store: Store) -> str:
    """The problem, without the store's path on this machine."""
    said = str(error).replace(str(store.place(one.place)), one.place)
    said = said.replace(str(store.root), "the store").partition(". Remove ")[0]
    return printable(said.removesuffix("."), 500)


def printable(said: str, most: int = NAME) -> str:
    """A stranger's text on one line, cut to size."""
    return preview.cut(preview.visible(redact.clean(said)).replace("\n", "\\n"), most)


# ── The page ─────────────────────────────────────────────────────────────────────────────────


def _page(path: str, one: Output, look: Look, store: Store) -> str:
    found = find(one, store)
    listed = sorted(found.manifest.files.items()) if found.manifest else []
    step = one.step
    needs = step.needs[:MAX_NAMED]
    pages = pages_of(one.entry, needs)
    return look.render(
        path,
        "data.html",
        one=one,
        entry=one.entry,
        step=step,
        takes={name: pages.get(name) for name in needs},
        config=list(step.config.items())[:MAX_NAMED],
        found=found,
        listed=listed[:MAX_FILES],
        rest=listed[MAX_FILES:],
        bytes=sum(of.bytes for _, of in listed),
        printable=printable,
        kept=data_report.kept,
    )
