"""The names of special tokens, such as `<|im_end|>`. A chat template writes the tokens; in what
people say, the names are ordinary words. So they are broken there until the template has written
its text, and whatever name is whole then is the template's."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

BREAK = "\ufdd2"  # in Unicode it is no character


class _Names(NamedTuple):
    whole: re.Pattern[str]  # the longest first
    begun: re.Pattern[str]  # the first character of one, also where they overlap
    starts: frozenset[str]  # that are not whole
    ends: frozenset[str]
    longest: int


@lru_cache(maxsize=8)
def _names(names: tuple[str, ...]) -> _Names:
    either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return _Names(
        re.compile(either),
        re.compile(f"(?=(?:{either}))(.)", re.DOTALL),
        frozenset(name[:n] for name in names for n in range(1, len(name))),
        frozenset(name[n:] for name in names for n in range(1, len(name))),
        max(map(len, names)),
    )


def broken(value: Any, names: Sequence[str]) -> Any:
    """The value with a BREAK in each of the names, also in one that it begins or ends, because the
    template may write the rest. Other texts are as they were, and so is the role of a message."""
    if isinstance(value, str):
        return _broken(value, _names(tuple(names)))
    if isinstance(value, dict):
        return {
            broken(key, names): one if key == "role" else broken(one, names)
            for key, one in value.items()
        }
    return [broken(one, names) for one in value] if isinstance(value, list) else value


def _broken(text: str, names: _Names) -> str:
    found = names.begun.sub(rf"\1{BREAK}", text)
    sizes = range(1, min(names.longest, len(text) + 1))
    if any(text[-size:] in names.starts for size in sizes):
        found += BREAK
    return BREAK + found if any(text[:size] in names.ends for size in sizes) else found


def places(text: str, names: Sequence[str]) -> list[int]:
    """The first character of each name that is whole, in the text without its BREAKs."""
    if not names:
        return []
    found, breaks, before = list[int](), 0, 0
    for one in _names(tuple(names)).whole.finditer(text):
        breaks += text.count(BREAK, before, one.start())
        before = one.start()
        found.append(before - breaks)
    return found
