"""The actions that rules return: what *should* exist on a thread. `bot.controller.effects` does
them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from bot.model.keys import Key
from runner.execution import lifecycle
from runner.lib.base_record import Record


@dataclass(frozen=True)
class Say:
    """A comment on this thread, once."""

    key: Key
    body: str
    state: str | None = None  # of the execution, if the comment is about one
    lacks: Key | None = None  # a key that the text lacks: this waits if that can be done first


@dataclass(frozen=True)
class Button:
    """A button of a check run."""

    label: str  # at most 20 characters
    identifier: str  # at most 20
    description: str  # at most 40


@dataclass(frozen=True)
class Check:
    """A check run on a commit, once."""

    key: Key
    name: str
    commit: str
    conclusion: str | None  # None: in progress
    title: str
    summary: str
    state: str | None = None
    buttons: tuple[Button, ...] = ()
    url: str | None = None  # of the page with all details


@dataclass(frozen=True)
class React:
    """A reaction to a comment. GitHub keeps one of each kind."""

    comment: int
    content: Literal["eyes", "rocket", "confused"]
    optional: bool = False  # its comment is answered; without budget for it, it is left out

    @property
    def key(self) -> Key:
        """One reaction of a kind per comment."""
        return Key("react", f"{self.comment}.{self.content}")


# The states of a preregistration; its issue has exactly one of these labels.
LABELS = {
    state: f"experiment: {state}" for state in ("wishlist", "planned", "running", "done", "failed")
}


@dataclass(frozen=True)
class Label:
    """The lab's one label on this issue, because of `cause`."""

    name: str
    cause: str

    @property
    def key(self) -> Key:
        """A label is set once per cause."""
        return Key("label", self.cause)


@dataclass(frozen=True)
class Picture:
    """A PNG kept in the repository, outside every branch, and linked by its commit."""

    key: Key
    execution: str  # the execution it shows
    draw: Callable[[], bytes] = field(compare=False)
    at: datetime  # of the commit, so that the same picture is the same commit


@dataclass(frozen=True)
class Show:
    """The present content of the comment (or check run) with the key `of`; the last value counts.

    A `final` one is recorded, so that it is not repeated after a restart.
    """

    of: Key
    body: str
    state: str
    final: bool
    conclusion: str | None = None  # of a check run
    title: str = ""
    buttons: tuple[Button, ...] = ()  # of a check run
    url: str | None = None  # of the page with all details; None: as before

    @property
    def key(self) -> Key:
        """Recorded for the final content only."""
        return self.of._replace(final=True)


@dataclass(frozen=True)
class Write:
    """Write a record, once."""

    path: str
    record: Record


@dataclass(frozen=True)
class Drive:
    """The next step of an execution."""

    execution: str
    action: lifecycle.Action


Action = Say | Check | React | Label | Picture | Show | Write | Drive
