"""What a rule can ask of GitHub and of the lab as it is now: `bot.controller.queries` answers."""

from dataclasses import dataclass

from runner.schema.record import Narrowing, Person


@dataclass(frozen=True)
class Question:
    """Something to look up."""


class Unknown(Exception):
    """A rule needs to know `question` before it can say anything."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.question = question


@dataclass(frozen=True)
class Issue(Question):
    """The issue."""


@dataclass(frozen=True)
class Pull(Question):
    """The pull request."""


@dataclass(frozen=True)
class Role(Question):
    """`role_name` of a person."""

    login: str


@dataclass(frozen=True)
class Form(Question):
    """The issue form of the default branch."""


@dataclass(frozen=True)
class Finding(Question):
    """What a commit declares that another one does not."""

    base: str
    head: str
    rung: int = 1  # of a ladder


@dataclass(frozen=True)
class Refusal(Question):
    """Why somebody may not approve a plan."""

    by: Person
    plan: int
    left: Narrowing | None = None  # of the plan; None: all


@dataclass(frozen=True)
class Policy(Question):
    """Who may do what."""


@dataclass(frozen=True)
class Review(Question):
    """A review."""

    id: int


@dataclass(frozen=True)
class Forced(Question):
    """The forced pushes to the pull request's branch."""


@dataclass(frozen=True)
class Committers(Question):
    """Who has a part in the pull request."""


@dataclass(frozen=True)
class Code(Question):
    """A new code for a plan."""

    plan: int


@dataclass(frozen=True)
class Registration(Question):
    """All that is on record under a preregistration."""

    issue: int


@dataclass(frozen=True)
class Replan(Question):
    """What the lab as it is now would call what a plan is of."""

    plan: int
