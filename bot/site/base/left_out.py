"""What cannot be read or drawn is left out of the site, and the rest is built.

A page that cannot be drawn says so in its own place. Where a page of many executions cannot be, the
executions are sought on whose account it cannot, by halves; without them it can be. Nothing of this
is remembered as drawn: the next build tries again.
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
# What says nothing of a page: the disk or the machine has no more.
OUTSIDE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE)
E = TypeVar("E")


def outside(error: Exception) -> bool:
    """Whether it is the store, the disk or the machine that fails, and not what is drawn. Then the
    site stays as it is."""
    if isinstance(error, BadRecord | BadName):
        return False
    if isinstance(error, StoreError | ConnectionError | TimeoutError):
        return True
    return isinstance(error, OSError) and error.errno in OUTSIDE


def why(error: Exception) -> str:
    """What to say of a fault: on one line, printable, without held secrets."""
    told = str(error) if isinstance(error, BadRecord) else f"{type(error).__name__}: {error}"
    return printable(redact.clean(" ".join(told.split())))[:MAX_WHY]


def standing_in(path: str, root: str, fault: str) -> str | None:
    """The page in the place of one that could not be drawn; None of a file that is no page."""
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
    """What is to lie in the place of a file. Raises what is `outside` of it."""
    try:
        return Drawn(file.draw())
    except Exception as error:
        if outside(error):
            raise
        fault = why(error)
        return Drawn(standing_in(file.path, "../" * file.path.count("/"), fault), fault)


def listed(page: str, found: Callable[[], Iterable[File]]) -> Iterator[File]:
    """The files that `found` gives. Where it breaks, those that it gave before, and in the place of
    `page` the fault."""
    try:
        yield from found()
    except Exception as error:
        if outside(error):
            raise
        yield File(page, partial(_raise, error))


def _raise(error: Exception) -> NoReturn:
    raise error


def most_of(every: Sequence[object]) -> int:
    """How many of these may bring about a fault. Where more do, it is the lab's own code that is at
    fault, and they stay."""
    return min(MAX_FOUND, max(1, len(every) // 2))


def culprits(
    every: Sequence[E], fault: Callable[[Sequence[E]], str | None], most: int
) -> list[tuple[E, str]]:
    """Those on whose account alone there is a fault, each with its reason; `fault` says what is
    wrong where only these are there. None where there is a fault without any of them,
    or where there are more than `most`."""
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
    """What is wrong with the first of these files, by path, that cannot be drawn; None: all can."""
    return next(
        (said for file in files if file.path in paths and (said := drawn(file).fault)), None
    )
