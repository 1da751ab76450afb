"""What a decision is made from, what it may ask, and what it may want done.

The page to begin with. `observe` puts a `Thread` together from the store; the rules (`preregister`,
`propose`, `approve`, `follow`) read it and yield `Action`s: what *should* exist. A rule that lacks
a fact of GitHub's asks for it: the thread's methods raise `Unknown`, the reconciler looks it up and
decides again. So rules are pure, and GitHub is asked only what the next decision needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from bot.model.keys import CommandKey, Key, Via
from bot.model.policy_file import Policy
from bot.model.questions import Question, Unknown
from runner.analysis import verdicts
from runner.analysis.which_runs_count import Outcome, Registration
from runner.execution import lifecycle
from runner.execution.progress import Progress
from runner.history.forecasts import Forecasts
from runner.history.results_entries import EnteredFile, EntryRecord
from runner.scheduler.queue_order import Place
from runner.schema.record import (
    Answered,
    Approval,
    Edit,
    Execution,
    Isolated,
    Narrowing,
    Origin,
    Person,
    Plan,
    PlanRecord,
    Preregistration,
    Result,
    Run,
    Source,
    Spread,
    Standing,
    StepEnd,
)


@dataclass(frozen=True, order=True)
class ThreadId:
    """An issue or a pull request; `str` names the folders of its records."""

    repository: int
    number: int

    def __str__(self) -> str:
        return f"{self.repository}/{self.number}"


# ── What GitHub can be asked ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Issue:
    """An issue as it is now."""

    title: str
    body: str
    author: Person
    open: bool


@dataclass(frozen=True)
class Pull:
    """A pull request as it is now."""

    head: str  # full SHA
    base: str  # full SHA of the base branch's tip
    open: bool
    draft: bool
    base_ref: str = ""  # the branch that it is to be merged into
    head_repository: int | None = None  # None: it was removed
    merged: bool = False
    to_default: bool = False  # its base is the default branch


@dataclass(frozen=True)
class Review:
    """A review as it is now."""

    id: int
    author: Person
    state: str  # APPROVED, CHANGES_REQUESTED, COMMENTED, DISMISSED, PENDING
    commit: str | None  # full SHA of what was reviewed
    at: datetime
    body: str
    node: str = ""  # its id in GraphQL


@dataclass(frozen=True)
class Finding:
    """What a commit declares below `experiments/`: nothing, a plan, or what is wrong."""

    experiment: str | None
    plan: Plan | None = None
    problems: tuple[str, ...] = ()
    standings: Mapping[str, Standing] = field(default_factory=dict)  # of the plan's steps
    drifted: tuple[str, ...] = ()  # aliases that would mean something else
    source: Source | None = None
    foretold: Forecasts = field(default_factory=lambda: Forecasts({}, {}))  # of its arms
    spread: Spread | None = None  # between seeds of such runs, as far as the lab knows
    begun: str = ""  # the execution that had begun all that was predicted before that was sealed
    other_design: str = ""  # the execution that has sealed another one under its preregistration
    entered: tuple[EnteredFile, ...] = ()  # results files that it brings


# ── A thread ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Message:
    """What somebody wrote or pressed, that may hold commands and has not been dealt with."""

    id: int  # of the comment, the review or, for a button, the check run
    author: Person
    at: datetime  # GitHub's `created_at`
    body: str  # of a button: the command that it stands for
    via: Via = "comment"
    heard: Literal["delivery", "app-list", "event-file", "sweep"] = "delivery"
    edited: bool = False
    commit: str | None = None  # that a review is of
    identifier: str = ""  # of a button

    def key(self, index: int) -> CommandKey:
        """The key of its command with this index."""
        if self.via == "button":
            return CommandKey("button", self.id, button=self.identifier, by=self.author.id)
        return CommandKey(self.via, self.id, index)


@dataclass(frozen=True)
class Push:
    """A moved head of the pull request, as a delivery or the timeline tells it."""

    at: datetime
    after: str  # full SHA
    before: str = ""  # nothing reads it, but deliveries on record have it


@dataclass(frozen=True)
class Said:
    """What became of something that was to be visible once."""

    kind: str
    id: int | None  # of the comment or check run; None while unknown or failed
    at: datetime | None  # GitHub's `created_at`
    note: str = ""  # a commit's SHA, or why it failed
    unfinished: str = ""  # its words, where something is still to be put into them

    @property
    def done(self) -> bool:
        """Whether nothing more will be tried."""
        return self.id is not None or bool(self.note)


@dataclass(frozen=True)
class Shown:
    """How something visible looked when it was last written."""

    body: str
    state: str
    at: datetime


@dataclass(frozen=True)
class Ran:
    """An execution of this thread: its life, how far it is, and its runs once it ended."""

    life: lifecycle.Facts
    progress: Progress | None
    runs: tuple[Run, ...] = ()
    steps: Mapping[str, StepEnd] = field(default_factory=dict)  # that have come to an end
    place: Place | None = None  # in the line for devices; None: nothing keeps it from beginning

    @property
    def execution(self) -> Execution:
        """The execution's own record."""
        return self.life.execution

    @property
    def origin(self) -> Origin:
        """What it was approved for, which every execution of a thread has."""
        assert self.execution.origin
        return self.execution.origin

    @property
    def result(self) -> Result | None:
        """How it ended."""
        return self.life.result

    @property
    def outcome(self) -> Outcome:
        """What came of it so far."""
        return Outcome(self.execution, self.result, verdicts.figures_of(self.runs))


@dataclass(frozen=True)
class Thread:
    """All that is known of one thread, and the way to ask for more."""

    id: ThreadId
    repository: str  # owner/name
    url: str  # of the repository's pages
    now: datetime
    is_pull: bool
    site: str | None = None  # where the lab's own pages are; None: nobody said
    news: bool = False  # some delivery has not been dealt with yet
    messages: tuple[Message, ...] = ()
    pushes: tuple[Push, ...] = ()  # all that are known, oldest first
    restored: datetime | None = None  # found without its records then; what is older is not done
    aside: tuple[str, ...] = ()  # deliveries that ended the process each time
    isolation: Isolated = ""  # of own code; "": it cannot run here
    said: Mapping[Key, Said] = field(default_factory=dict)
    shown: Mapping[Key, Shown] = field(default_factory=dict)  # since this process began
    # of an issue
    seal: Preregistration | None = None
    edits: tuple[Edit, ...] = ()
    # of a pull request; of an issue, those that name it
    plans: tuple[PlanRecord, ...] = ()
    entries: tuple[EntryRecord, ...] = ()  # results files, of each head that brought some
    approvals: Mapping[CommandKey, Approval] = field(default_factory=dict)
    answered: Mapping[CommandKey, Answered] = field(default_factory=dict)
    executions: tuple[Ran, ...] = ()
    answers: Mapping[Question, Any] = field(default_factory=dict)

    def issue(self) -> Issue | None:
        """The issue now; None if it is gone."""
        return self._ask("issue")

    def pull(self) -> Pull | None:
        """The pull request now; None if it is gone."""
        return self._ask("pull")

    def role(self, login: str) -> str:
        """`role_name` of a person in this repository now; "none" for a stranger."""
        return self._ask("role", login)

    def form(self) -> Mapping[str, str]:
        """The issue form of the default branch: field id → label, as headings name them."""
        return self._ask("form")

    def finding(self, base: str, head: str, rung: int = 1) -> Finding:
        """What the commit `head` declares that `base` does not; of a ladder this rung."""
        return self._ask("finding", base, head, rung)

    def refusal(self, by: Person, plan: int, left: Narrowing | None = None) -> str | None:
        """Why somebody may not approve the plan of this number, or what is `left` of it, as things
        stand: it breaks a budget, or no device of the lab's can take it. None: they may."""
        return self._ask("refusal", by, plan, left)

    def policy(self) -> Policy:
        """Who may do what here, as the default branch says."""
        return self._ask("policy")

    def review(self, id: int) -> Review | None:
        """A review now; None if it is gone."""
        return self._ask("review", id)

    def forced(self) -> tuple[Push, ...]:
        """The forced pushes to the pull request's branch, heard of or not: a head that left a
        commit comes back to it by one of these only."""
        return self._ask("forced")

    def committers(self) -> frozenset[int]:
        """Ids of those who opened the pull request and who wrote or committed its commits."""
        return self._ask("committers")

    def code(self, plan: int) -> str:
        """A new unguessable code for the plan of this number."""
        return self._ask("code", plan)

    def registration(self, issue: int) -> Registration | None:
        """All that is on record under a preregistration of this repository."""
        return self._ask("registration", issue)

    def replan(self, plan: int) -> str | None:
        """The fingerprint that the lab as it is now would give the plan of this number; None where
        it makes no plan of it."""
        return self._ask("replan", plan)

    def _ask(self, *question: Any) -> Any:
        if question not in self.answers:
            raise Unknown(question)
        return self.answers[question]
