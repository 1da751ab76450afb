"""Keys of everything that the lab does once, and of people's commands. Pure.

`str` writes a key and `parse` reads it. Written keys are names of records and parts of comments on
GitHub, so their form must never change.
"""

import re
from functools import lru_cache
from typing import Literal, NamedTuple

Via = Literal["comment", "review", "button", "policy"]

_VIA: dict[str, Via] = {"": "comment", "r": "review", "p": "policy"}


class Key(NamedTuple):
    """Something that is done once per thread: `check.plan.1`, `result.x….final`, `sealed`."""

    kind: str
    of: str = ""  # which one of several: an ordinal, an execution, a command's key
    check: bool = False  # the check run that goes with the comment of this key
    final: bool = False  # the final content of what has this key

    def __str__(self) -> str:
        words = ["check"] * self.check + [self.kind] + [self.of] * bool(self.of)
        return ".".join(words + ["final"] * self.final)

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(written: str) -> "Key":
        """The inverse of `str`; accepts any text."""
        rest = written.removesuffix(".final")
        beside = rest.removeprefix("check.")
        check = beside != rest and "." in beside  # `check.x…` is an execution's, without comment
        kind, _, of = (beside if check else rest).partition(".")
        return Key(kind, of, check, rest != written)


class CheckId(NamedTuple):
    """The external id of a check run on GitHub; two pull requests may share a commit."""

    thread: int
    key: Key

    def __str__(self) -> str:
        return f"{self.thread}.{self.key}"

    @staticmethod
    def parse(written: str) -> "CheckId | None":
        """The inverse of `str`; None if it is not one of the lab's."""
        found = re.fullmatch(r"([1-9][0-9]{0,17})\.([0-9a-z.-]+)", written)
        return CheckId(int(found[1]), Key.parse(found[2])) if found else None


class CommandKey(NamedTuple):
    """A command, which is answered once: `50-0`, `r50-0`, `b13-cancel-7`. A press by a user without
    permission does not use up the button for others. `p2-1` is no command: the policy decided about
    plan 1 of pull request 2."""

    via: Via
    id: int  # of the comment, the review, the check run; the number of the pull request
    nth: int = 0  # which command in it, from 0; the number of the plan
    button: str = ""
    by: int | None = None  # the user who pressed it; None in old records

    def __str__(self) -> str:
        which = self.button if self.via == "button" else self.nth
        return f"{self.message}-{which}{'' if self.by is None else f'-{self.by}'}"

    @property
    def message(self) -> str:
        """The comment or review: `50` or `r50`."""
        return f"{'' if self.via == 'comment' else self.via[0]}{self.id}"

    @property
    def comment(self) -> int | None:
        """Its comment; None for a review's and a button's."""
        return self.id if self.via == "comment" else None

    @property
    def review(self) -> int | None:
        """Its review; otherwise None."""
        return self.id if self.via == "review" else None

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(written: str) -> "CommandKey":
        """The inverse of `str`. Raises ValueError."""
        if said := re.fullmatch(r"([rp]?)([0-9]+)-([0-9]+)", written):
            return CommandKey(_VIA[said[1]], int(said[2]), int(said[3]))
        if pressed := re.fullmatch(r"b([0-9]+)-([a-z]+)(?:-([0-9]+))?", written):
            by = int(pressed[3]) if pressed[3] else None
            return CommandKey("button", int(pressed[1]), button=pressed[2], by=by)
        raise ValueError(f"{written!r} is no command's key")
