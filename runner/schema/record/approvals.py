"""What became of commands: what was approved, and what else was answered."""

from typing import Literal

from runner.lib.base_record import Instant, Record, Sha256
from runner.schema.record.executions import execution_id
from runner.schema.record.fields import since
from runner.schema.record.questions import Person


class Narrowing(Record):
    """What an approval leaves out of its plan."""

    arms: tuple[str, ...] | None = None  # that remain; None: all
    seeds: tuple[int, ...] | None = None
    kind: str | None = None  # in old records; it changed nothing


class Approval(Record):
    """What became of one `/run`, `/retry` or `/reproduce`: it approved a plan, or was refused and
    why."""

    repository: int
    pull: int
    command: str  # `<comment>-<index>`, `r<review>-<index>` or `b<check run>-<identifier>`
    by: Person
    role: str
    at: Instant
    what: Literal["run", "retry", "reproduce"] = "run"
    approved: bool
    why: str = ""  # of a refusal
    reproduces: str = ""  # an execution, to be compared with
    plan: int | None = None  # the ordinal of the plan it is about
    commit: str | None = None
    fingerprint: Sha256 | None = None
    asked_at: Instant | None = None  # when the command was written, by GitHub's clock
    heard: str = "delivery"  # how its text came
    policy: str = ""  # commit of the default branch whose policy permitted it
    narrowing: Narrowing | None = None
    waits: str = ""  # for what, where it was permitted and one more person has to approve
    besides: tuple[str, ...] = ()  # ids of approvals that waited for this one
    posts: int | None = since(None)  # the plan that something else than its plan asks for

    @property
    def id(self) -> str:
        """The approval's id, from which its execution's id follows."""
        return f"{self.repository}/{self.command}"

    @property
    def given_at(self) -> Instant:
        """When it was given, by GitHub's clock."""
        return self.asked_at or self.at  # old records have one time only

    @property
    def execution(self) -> str:
        """The id of the execution that this approval starts."""
        return execution_id(self.id)


def command_of(approval: str) -> str:
    """The key of the command by which an approval of this id was given."""
    return approval.rpartition("/")[2]


class Answered(Record):
    """What became of a command that approves nothing: it is decided once, and the rest follows."""

    command: str  # its key, as of an `Approval`
    what: Literal["cancel", "plan"]
    by: Person
    at: Instant
    yes: bool
    why: str = ""  # of a refusal
    executions: tuple[str, ...] = ()  # that it stops
    plan: int | None = None  # the ordinal of the plan it asked for
