"""Caches what was found in files and folders until they change."""

import os
from collections.abc import Callable, Hashable, Iterable
from functools import wraps
from pathlib import Path
from typing import TypeVar, TypeVarTuple

Asked = TypeVarTuple("Asked")
Found = TypeVar("Found")


def while_unchanged(
    find: Callable[[*Asked], tuple[Found, Iterable[Path]]],
) -> Callable[[*Asked], Found]:
    """Cache `find`, which returns its result and the files and folders that it read, until one of
    them is written. A result whose files changed during the call is not cached."""
    known: dict[Hashable, tuple[list[str], list[int], Found]] = {}

    @wraps(find)
    def asked(*of: *Asked) -> Found:
        if of in known:
            places, written, found = known[of]
            if _written(places) == written:
                return found
        found, looked_at = find(*of)
        places = sorted(map(str, looked_at))
        written = _written(places)
        if written and find(*of)[0] == found:
            known[of] = places, written, found
        return found

    return asked


def _written(places: list[str]) -> list[int]:
    try:
        return [os.stat(place).st_mtime_ns for place in places]  # noqa: PTH116  often asked
    except OSError:
        return []
