"""Keys: what the lab does once is known by one of these, and so is what people command. Pure.

`str` writes a key and `parse` reads it. What is written names records in the store and stands in
comments on GitHub, so that it never changes.
"""

import re
from functools import lru_cache
from typing import Literal, NamedTuple

Via = Literal["comment", "review", "button"]


class Key(NamedTuple):
    """Something on a thread that is done once: `check.plan.1`, `result.x….final`, `sealed`."""

    kind: str
    of: str = ""  # that of which there are several: an ordinal, an execution, a command's key
    check: bool = False  # the check run beside a comment of this key
    final: bool = False  # the last look of what has this key

    def __str__(self) -> str:
        words = ["check"] * self.check + [self.kind] + [self.of] * bool(self.of)
        return ".".join(words + ["final"] * self.final)

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(written: str) -> "Key":
        """The key that is written so; any text is one."""
        rest = written.removesuffix(".final")
        beside = rest.removeprefix("check.")
        check = beside != rest and "." in beside  # `check.x…` is an execution's, beside nothing
        kind, _, of = (beside if check else rest).partition(".")
        return Key(kind, of, check, rest != written)


class CheckId(NamedTuple):
    """What names a check run at GitHub; two pull requests may share a commit."""

    thread: int
    key: Key

    def __str__(self) -> str:
        return f"{self.thread}.{self.key}"

    @staticmethod
    def parse(written: str) -> "CheckId | None":
        """What is written so; None where it is none of the lab's."""
        found = re.fullmatch(r"([1-9][0-9]{0,17})\.([0-9a-z.-]+)", written)
        return CheckId(int(found[1]), Key.parse(found[2])) if found else None


class CommandKey(NamedTuple):
    """A command, which is answered once: `50-0`, `r50-0`, `b13-cancel-7`. Who may not press a
    button does not use it up for others."""

    via: Via
    id: int  # of the comment, the review or the check run
    nth: int = 0  # of the commands that stand there, from 0
    button: str = ""
    by: int | None = None  # who pressed it; None in old records

    def __str__(self) -> str:
        which = self.button if self.via == "button" else self.nth
        return f"{self.message}-{which}{'' if self.by is None else f'-{self.by}'}"

    @property
    def message(self) -> str:
        """What it stands in: `50` or `r50`."""
        return f"{'' if self.via == 'comment' else self.via[0]}{self.id}"

    @property
    def comment(self) -> int | None:
        """The comment that holds it; None for a review's and a button's."""
        return self.id if self.via == "comment" else None

    @property
    def review(self) -> int | None:
        """The review that holds it."""
        return self.id if self.via == "review" else None

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(written: str) -> "CommandKey":
        """The key that is written so. Raises ValueError."""
        if said := re.fullmatch(r"(r?)([0-9]+)-([0-9]+)", written):
            return CommandKey("review" if said[1] else "comment", int(said[2]), int(said[3]))
        if pressed := re.fullmatch(r"b([0-9]+)-([a-z]+)(?:-([0-9]+))?", written):
            by = int(pressed[3]) if pressed[3] else None
            return CommandKey("button", int(pressed[1]), button=pressed[2], by=by)
        raise ValueError(f"{written!r} is no command's key")
