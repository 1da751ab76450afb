"""A diff of two texts, line by line, at most a page. Pure.

Long lines are broken before they are compared, so that changes far to the right show, too. The
result quotes the authors of the texts: escape it before you show it.
"""

import difflib
import textwrap
from functools import lru_cache
from itertools import islice

WIDTH = 100  # characters per line
MAX_LINES = 60  # of a diff
MAX_COMPARED = 1000  # lines of a text; the time is quadratic at worst


@lru_cache(maxsize=256)
def text_diff(before: str, after: str) -> tuple[str, ...]:
    """Lines that begin with `-`, `+`, a blank or `@@`, as in a unified diff; empty if there is no
    visible difference."""
    one, other = _lines(before), _lines(after)
    if max(len(one), len(other)) > MAX_COMPARED:
        return (f"! {len(before):,} characters became {len(after):,}: too long to be compared",)
    found = difflib.unified_diff(one, other, n=1, lineterm="")
    return bounded([*islice(found, 2, None)])  # without the names of the two files


def bounded(lines: list[str], most: int = MAX_LINES) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    cut = [line if len(line) <= 2 * WIDTH else f"{line[: 2 * WIDTH]}…" for line in lines[:most]]
    more = len(lines) - most
    return (*cut, f"! and {more} more lines") if more > 0 else tuple(cut)


def _lines(text: str) -> list[str]:
    return [
        part
        for line in text.splitlines()
        for part in textwrap.wrap(line, WIDTH, drop_whitespace=False, replace_whitespace=False)
        or [""]
    ]
