"""Decisions about commands: approvals, and answers to other commands."""

from typing import Literal

from runner.lib.base_record import Instant, Record, Sha256
from runner.schema.record.executions import execution_id
from runner.schema.record.fields import since
from runner.schema.record.questions import Agent, Person

POLICY = "policy"  # in the place of how the lab heard of a command, and of a role


class Narrowing(Record):
    """The part of a plan that an approval approves."""

    arms: tuple[str, ...] | None = None  # the remaining arms; None: all
    seeds: tuple[int, ...] | None = None
    kind: str | None = None  # only in old records; it changed nothing


class Approval(Record):
    """The decision about one `/run`, `/retry` or `/reproduce`: it approved a plan, or was refused
    (`why`)."""

    repository: int
    pull: int
    # `<comment>-<index>`, `r<review>-<index>`, `b<check run>-<identifier>`, or, by the policy about
    # an agent's plan, `p<pull>-<plan>`
    command: str
    by: Person
    role: str
    at: Instant
    what: Literal["run", "retry", "reproduce"] = "run"
    approved: bool
    why: str = ""  # the reason for a refusal
    reproduces: str = ""  # an execution to compare with
    plan: int | None = None  # the number of the plan
    commit: str | None = None
    fingerprint: Sha256 | None = None
    asked_at: Instant | None = None  # when the command was written, by GitHub's clock
    heard: str = "delivery"  # how the lab got its text
    policy: str = ""  # commit of the default branch whose policy permitted it
    narrowing: Narrowing | None = None
    waits: str = ""  # what it waits for, if it was permitted and one more person must approve
    besides: tuple[str, ...] = ()  # ids of approvals that waited for this one
    asks: str = since(
        ""
    )  # the comment with which somebody permitted can approve what this asks for
    posts: int | None = since(None)  # the plan to post, if this asks for a new one
    agent: Agent | None = since(None)  # whose plan it is, if the policy decided
    starts: str = since("")  # the id of the execution, once approved; old records have none

    @property
    def id(self) -> str:
        """The approval's id. Numbers of repositories and comments are unique on one host only."""
        return f"{self.repository}/{self.command}"

    @property
    def by_policy(self) -> bool:
        """Whether the policy decided, and no person."""
        return self.heard == POLICY

    @property
    def given_at(self) -> Instant:
        """When it was given, by GitHub's clock."""
        return self.asked_at or self.at  # old records have one time only

    @property
    def execution(self) -> str:
        """The id of the execution that this approval starts."""
        return self.starts or execution_id(self.id)

    def naming_execution(self) -> "Approval":
        """The same approval, if it is one, with an id for its execution. What it approved and when
        tell it from an approval with the same numbers on another host."""
        if not self.approved:
            return self
        cause = f"{self.id}/{self.commit}/{self.fingerprint}/{self.at.isoformat()}"
        return self.model_copy(update={"starts": execution_id(cause)})


def command_of(approval: str) -> str:
    """The key of the command that gave the approval with this id."""
    return approval.rpartition("/")[2]


def policy_at(commit: str) -> Person:
    """Who approved what the policy of this commit approves by itself. No account has such a
    login."""
    return Person(login=f"policy@{commit[:12]}", id=0)


class Answered(Record):
    """The decision about a command that approves nothing. Decided once; the effects follow from
    it."""

    command: str  # its key, as in `Approval`
    what: Literal["cancel", "plan"]
    by: Person
    at: Instant
    yes: bool
    why: str = ""  # the reason for a refusal
    executions: tuple[str, ...] = ()  # the executions that it stops
    plan: int | None = None  # the number of the plan it asked for
    # for a `/cancel` of all that runs: when it was written, by GitHub's clock; what was asked for
    # before, and is heard after, is not started
    all_before: Instant | None = since(None)
