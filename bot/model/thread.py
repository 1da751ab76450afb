"""The facts of a decision, the questions it may ask, and the actions it may return.

Start reading here. `observe` builds a `Thread` from the store; the rules (`preregister`, `propose`,
`approve`, `follow`) read it and yield `Action`s: what *should* exist. If a rule lacks a fact of
GitHub, the thread's method raises `Unknown`; the reconciler looks it up and decides again. So rules
are pure, and GitHub is asked only for what the next decision needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from bot.model.keys import CommandKey, Key, Via
from bot.model.policy_file import Policy
from bot.model.questions import Question, Unknown
from bot.model.site import Site
from runner.analysis import verdicts
from runner.analysis.speedrun_position import Position
from runner.analysis.which_runs_count import Outcome, Registration
from runner.execution import lifecycle
from runner.execution.progress import Progress
from runner.history.excerpts import Excerpt
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
    """An issue or a pull request; `str` is the folder of its records."""

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
    updated: datetime | None = None  # GitHub's `updated_at`


@dataclass(frozen=True)
class Pull:
    """A pull request as it is now."""

    head: str  # full SHA
    base: str  # full SHA of the base branch's tip
    open: bool
    draft: bool
    base_ref: str = ""  # the branch that it merges into
    head_repository: int | None = None  # None: deleted
    merged: bool = False
    to_default: bool = False  # its base is the default branch
    author: Person | None = None
    updated: datetime | None = None  # GitHub's `updated_at`


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
    """What a commit declares below `experiments/`: nothing, a plan, or problems."""

    experiment: str | None
    plan: Plan | None = None
    problems: tuple[str, ...] = ()
    standings: Mapping[str, Standing] = field(default_factory=dict)  # of the plan's steps
    drifted: tuple[str, ...] = ()  # aliases that would change their meaning
    source: Source | None = None
    foretold: Forecasts = field(default_factory=lambda: Forecasts({}, {}))  # forecasts of its arms
    spread: Spread | None = None  # between seeds of similar runs, if known
    spreads: Mapping[str, Spread] = field(default_factory=dict)  # by other metrics of predictions
    per_step: float | None = None  # seconds that each step takes besides training
    begun: str = ""  # the execution that started its runs before the predictions were sealed
    other_design: str = ""  # the execution that sealed another design under its preregistration
    entered: tuple[EnteredFile, ...] = ()  # its results files


# ── A thread ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Message:
    """Something that a user wrote or pressed: it may contain commands and is pending."""

    id: int  # of the comment, the review or, for a button, the check run
    author: Person
    at: datetime  # GitHub's `created_at`
    body: str  # for a button: its command
    via: Via = "comment"
    heard: Literal["delivery", "app-list", "event-file", "sweep"] = "delivery"
    edited: bool = False
    commit: str | None = None  # the commit of a review
    identifier: str = ""  # of a button

    def key(self, index: int) -> CommandKey:
        """The key of its command with this index."""
        if self.via == "button":
            return CommandKey("button", self.id, button=self.identifier, by=self.author.id)
        return CommandKey(self.via, self.id, index)


@dataclass(frozen=True)
class Push:
    """A moved head of the pull request, or its first one, from a delivery or the timeline."""

    at: datetime
    after: str  # full SHA
    before: str = ""  # full SHA; "" for the first head
    by: int = 0  # id of the account that pushed it; 0: unknown


class Commit(NamedTuple):
    """A commit of a pull request."""

    sha: str
    parents: tuple[str, ...]
    people: frozenset[int]  # ids of the accounts of its author and committer
    has_no_account: bool = False  # the address of one of them belongs to no account
    is_plain_merge: bool = False  # its tree is the merge of its parents, and nothing more


class Contributions(NamedTuple):
    """What a pull request consists of."""

    opener: int  # id; 0 if the account is gone
    commits: tuple[Commit, ...]  # oldest first


@dataclass(frozen=True)
class Said:
    """The outcome of a post that happens once."""

    kind: str
    id: int | None  # of the comment or check run; None if unknown or failed
    at: datetime | None  # GitHub's `created_at`
    note: str = ""  # a commit's SHA, or why it failed
    unfinished: str = ""  # its text, if something must still be added to it
    body: str = ""  # the text of a comment

    @property
    def done(self) -> bool:
        """Whether nothing more will be tried."""
        return self.id is not None or bool(self.note)


@dataclass(frozen=True)
class Shown:
    """The last written content of a comment or check run."""

    body: str
    state: str
    at: datetime


@dataclass(frozen=True)
class Ran:
    """An execution of this thread: its state, its progress, and its runs once it has ended."""

    life: lifecycle.Facts
    progress: Progress | None
    runs: tuple[Run, ...] = ()
    steps: Mapping[str, StepEnd] = field(default_factory=dict)  # those that have ended
    place: Place | None = None  # in the queue for devices; None: it may start
    tracked: str | None = None  # where W&B shows it; None: it does not

    @property
    def execution(self) -> Execution:
        """The execution's own record."""
        return self.life.execution

    @property
    def origin(self) -> Origin:
        """Where it was approved; every execution of a thread has one."""
        assert self.execution.origin
        return self.execution.origin

    @property
    def result(self) -> Result | None:
        """How it ended."""
        return self.life.result

    @property
    def outcome(self) -> Outcome:
        """Its results so far."""
        return Outcome(self.execution, self.result, verdicts.scores_of(self.runs))


@dataclass(frozen=True)
class Thread:
    """All facts about one thread, and methods to ask for more."""

    id: ThreadId
    repository: str  # owner/name
    url: str  # of the repository's pages
    now: datetime
    is_pull: bool
    site: Site | None = None  # the lab's pages; None: their address is unknown
    news: bool = False  # whether a delivery is pending
    heard: datetime | None = None  # when the newest pending delivery happened
    unposted: Mapping[Key, str] = field(default_factory=dict)  # and why GitHub did not take it
    messages: tuple[Message, ...] = ()
    pushes: tuple[Push, ...] = ()  # all known ones, oldest first
    restored: datetime | None = None  # when lost records were noticed; older commands are void
    aside: tuple[str, ...] = ()  # deliveries that crashed the process each time
    isolation: Isolated = ""  # of own code; "": it cannot run here
    is_late: bool = False  # whether something here waits for the budget of writes
    said: Mapping[Key, Said] = field(default_factory=dict)
    shown: Mapping[Key, Shown] = field(default_factory=dict)  # since this process started
    # of an issue
    seal: Preregistration | None = None
    edits: tuple[Edit, ...] = ()
    # of a pull request; for an issue, those that name it
    plans: tuple[PlanRecord, ...] = ()
    entries: tuple[EntryRecord, ...] = ()  # results files, for each head that brought some
    approvals: Mapping[CommandKey, Approval] = field(default_factory=dict)
    answered: Mapping[CommandKey, Answered] = field(default_factory=dict)
    executions: tuple[Ran, ...] = ()
    answers: Mapping[Question, Any] = field(default_factory=dict)

    def issue(self) -> Issue | None:
        """The issue now; None if it does not exist."""
        return self._ask("issue")

    def pull(self) -> Pull | None:
        """The pull request now; None if it does not exist."""
        return self._ask("pull")

    def role(self, login: str) -> str:
        """`role_name` of a person in this repository now; "none" for a stranger."""
        return self._ask("role", login)

    def form(self) -> Mapping[str, str]:
        """The issue form of the default branch: field id → label, which is the heading in the
        issue."""
        return self._ask("form")

    def finding(self, base: str, head: str, rung: int = 1) -> Finding:
        """What the commit `head` declares that `base` does not; for a ladder, this rung."""
        return self._ask("finding", base, head, rung)

    def refusal(self, by: Person, plan: int, left: Narrowing | None = None) -> str | None:
        """Why a user may not approve the plan with this number (or only the part `left`) now: it
        exceeds a budget, or no device fits. None if they may."""
        return self._ask("refusal", by, plan, left)

    def policy(self) -> Policy:
        """The policy of the default branch."""
        return self._ask("policy")

    def review(self, id: int) -> Review | None:
        """A review now; None if it does not exist."""
        return self._ask("review", id)

    def forced(self) -> tuple[Push, ...]:
        """The forced pushes to the pull request's branch, known or not: a head can return to an
        earlier commit only by one of these."""
        return self._ask("forced")

    def proposals(self, author: int) -> tuple[int, ...]:
        """The numbers of the open pull requests of the user with this id."""
        return self._ask("proposals", author)

    def contributions(self) -> Contributions:
        """Who opened the pull request, and its commits."""
        return self._ask("contributions")

    def code(self, plan: int) -> str:
        """A new unguessable code for the plan with this number."""
        return self._ask("code", plan)

    def registration(self, issue: int) -> Registration | None:
        """All records under a preregistration of this repository."""
        return self._ask("registration", issue)

    def excerpts(self, execution: str) -> tuple[Excerpt, ...]:
        """What the last steps of an execution wrote, if it is text and short."""
        return self._ask("excerpts", execution)

    def positions(self, execution: str) -> list[Position]:
        """Where the arms of an ended execution stand on the track that it enters."""
        return self._ask("positions", execution)

    def replan(self, plan: int) -> str | None:
        """The fingerprint that the current lab would give the plan with this number; None if it
        makes no plan of it."""
        return self._ask("replan", plan)

    def _ask(self, *question: Any) -> Any:
        if question not in self.answers:
            raise Unknown(question)
        if isinstance(answer := self.answers[question], Exception):
            raise answer  # looking it up failed by what a stranger wrote
        return answer
