"""Leaves out of the site what cannot be read or drawn, and builds the rest.

A page that cannot be drawn is replaced by one that says so. If a page about many executions cannot
be drawn, the executions that cause it are searched by halves, and the page is drawn without them.
None of this counts as drawn: the next build tries again.
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NoReturn, TypeVar

from markupsafe import escape

from bot.site.base.files import Drawn, File
from runner.lib import redact
from runner.lib.untrusted_files import printable
from runner.schema.record import BadRecord
from runner.store.backends import BadName, StoreError

MAX_WHY = 300  # characters
MAX_FOUND = 50  # executions
# Errors of the disk or the machine, which say nothing about a page.
OUTSIDE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE)
E = TypeVar("E")


def outside(error: Exception) -> bool:
    """Whether the store, the disk or the machine fails, and not the page. Then the site stays as it
    is."""
    if isinstance(error, BadRecord | BadName):
        return False
    if isinstance(error, StoreError | ConnectionError | TimeoutError):
        return True
    return isinstance(error, OSError) and error.errno in OUTSIDE


def why(error: Exception) -> str:
    """The text of a fault: on one line, printable, without known secrets."""
    told = str(error) if isinstance(error, BadRecord) else f"{type(error).__name__}: {error}"
    return printable(redact.clean(" ".join(told.split())))[:MAX_WHY]


def standing_in(path: str, root: str, fault: str) -> str | None:
    """The page that replaces one that could not be drawn; None for files that are no pages."""
    if not path.endswith(".html"):
        return None
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">\n'
        f'<title>Left out</title>\n<link rel="stylesheet" href="{root}style.css"></head>\n'
        "<body><main>\n<h1>This page could not be built</h1>\n<p>The other pages are not "
        f"affected. The next build tries again.</p>\n<p><code>{escape(fault)}</code></p>\n"
        f'<p><a href="{root}index.html">Front page</a></p>\n</main></body>\n</html>\n'
    )


def drawn(file: File) -> Drawn:
    """The content of a file, or its fault. Raises errors that are `outside`."""
    try:
        return Drawn(file.draw())
    except Exception as error:
        if outside(error):
            raise
        fault = why(error)
        return Drawn(standing_in(file.path, "../" * file.path.count("/"), fault), fault)


def listed(page: str, found: Callable[[], Iterable[File]]) -> Iterator[File]:
    """The files that `found` yields. If it raises, those that it yielded before, and the fault in
    place of `page`."""
    try:
        yield from found()
    except Exception as error:
        if outside(error):
            raise
        yield File(page, partial(_raise, error))


def _raise(error: Exception) -> NoReturn:
    raise error


def most_of(every: Sequence[object]) -> int:
    """How many of these may cause a fault. If more do, the lab's own code is at fault, and they
    stay."""
    return min(MAX_FOUND, max(1, len(every) // 2))


def culprits(
    every: Sequence[E], fault: Callable[[Sequence[E]], str | None], most: int
) -> list[tuple[E, str]]:
    """The items that cause a fault alone, each with the reason; `fault` returns the fault for a set
    of items. Empty if there is a fault without any of them, or if there are more than `most`."""
    if fault([]) is not None:
        return []
    found: list[tuple[E, str]] = []
    parts = [every]
    while parts and len(found) <= most:
        part = parts.pop()
        if (said := fault(part)) is not None:
            half = len(part) // 2
            if half:
                parts += [part[half:], part[:half]]
            else:
                found.append((part[0], said))
    return found if len(found) <= most else []


def fault_of(files: Iterable[File], paths: Mapping[str, str]) -> str | None:
    """The fault of the first of these files with a path in `paths` that cannot be drawn; None if
    all can."""
    return next(
        (said for file in files if file.path in paths and (said := drawn(file).fault)), None
    )
