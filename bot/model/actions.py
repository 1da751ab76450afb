"""What rules may want done on a thread: what *should* exist. `bot.controller.effects` does it."""

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
    state: str | None = None  # of the execution, where the comment follows one
    lacks: Key | None = None  # what is not in it yet: if that can be done first, this waits


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
    """A reaction to a comment. GitHub itself keeps it to one."""

    comment: int
    content: Literal["eyes", "rocket", "confused"]

    @property
    def key(self) -> Key:
        """One reaction of a kind on a comment."""
        return Key("react", f"{self.comment}.{self.content}")


# What a preregistration is; its issue carries exactly one of these.
LABELS = {
    state: f"experiment: {state}" for state in ("wishlist", "planned", "running", "done", "failed")
}


@dataclass(frozen=True)
class Label:
    """The one label of the lab's that this issue carries, because of `cause`."""

    name: str
    cause: str

    @property
    def key(self) -> Key:
        """A label is set once for each thing that causes it."""
        return Key("label", self.cause)


@dataclass(frozen=True)
class Picture:
    """A PNG kept in the repository, outside every branch, and linked by its commit."""

    key: Key
    execution: str  # that it shows
    draw: Callable[[], bytes] = field(compare=False)
    at: datetime  # of the commit, so that the same picture is the same commit


@dataclass(frozen=True)
class Show:
    """The comment (or check run) that `of` said is to look like this now; the last value counts.

    A `final` look is recorded, so that it is not shown again after a restart.
    """

    of: Key
    body: str
    state: str
    final: bool
    conclusion: str | None = None  # of a check run
    title: str = ""
    buttons: tuple[Button, ...] = ()  # of a check run

    @property
    def key(self) -> Key:
        """Recorded for the final look only."""
        return self.of._replace(final=True)


@dataclass(frozen=True)
class Write:
    """A fact for the records, once."""

    path: str
    record: Record


@dataclass(frozen=True)
class Drive:
    """The next step of an execution's life."""

    execution: str
    action: lifecycle.Action


Action = Say | Check | React | Label | Picture | Show | Write | Drive
