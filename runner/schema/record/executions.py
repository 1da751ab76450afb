"""An execution, its attempts, and how they ended."""

import hashlib
from typing import Any, Literal

from runner.lib.base_record import Instant, Record, Sha256
from runner.lib.bounds import Count, Seconds, Size, Words
from runner.schema.record.fields import Isolated, since
from runner.schema.record.plans import Plan
from runner.schema.record.pull_requests import Climbed, Foretold, Source
from runner.schema.record.questions import Agent, Person

MOST_ATTEMPTS = 3  # lost in a row without progress

State = Literal["queued", "running", "done", "failed", "cancelled", "voided"]

FINAL_STATES = frozenset({"done", "failed", "cancelled", "voided"})


class Origin(Record):
    """The thread and commit on GitHub from which an execution comes."""

    repository: int
    repository_name: str
    pull: int
    plan: int
    commit: str
    approved_by: Person
    approval: str
    author: Person | None = since(None)  # of the pull request
    agent: Agent | None = since(None)  # that opened the pull request

    @property
    def charged(self) -> Person:
        """Whose budget it uses: the approver's, or the agent's whose plan the policy approved."""
        return self.agent if self.agent and not self.approved_by.id else self.approved_by


class Lab(Record):
    """The lab's own code when an execution started."""

    code_sha256: Sha256  # over paths and bytes of the Python files of its packages
    lock_sha256: Sha256 | None  # of requirements.lock
    commit: str = ""  # the commit of the checkout, if it was in one
    changed: bool = False  # it differed from that commit


class Execution(Record):
    """What an approved plan starts, once. `origin` is None for a local, unsigned run."""

    id: str
    at: Instant
    plan: Plan
    origin: Origin | None
    source: Source | None = None
    lab: Lab | None = None
    limit_seconds: float | None = None  # wall time of all attempts together; None: no limit
    pending_limit_seconds: float | None = since(None)  # how long Ray may let an attempt wait
    isolation: Isolated = ""  # of own code; "": it has none
    approvals: tuple[str, ...] = ()  # all approvals that it needed
    deviations: tuple[str, ...] = ()  # from the plan that was shown, as sentences
    reproduces: str = ""  # the execution to compare it with
    forecasts: dict[str, Foretold] = since({})  # by arm, as shown with its plan
    climbed: tuple[Climbed, ...] = since(())  # results of earlier rungs, as in its plan


def execution_id(cause: str) -> str:
    """`x` and the first 16 hexadecimal digits of the SHA-256 of what caused the execution."""
    return "x" + hashlib.sha256(cause.encode()).hexdigest()[:16]


class Claimed(Record):
    """The lab is about to start an attempt. Nobody can know its nonce before this is written."""

    at: Instant
    nonce: str
    spec_sha256: Sha256
    set_aside: tuple[str, ...] = ()  # foreign folders that were in the place of this attempt's


class Started(Record):
    """The attempt's worker has started."""

    at: Instant


class Examined(Record):
    """The result of probing an own model for look-ahead
    (`runner.worker.models.look_ahead_probe`)."""

    positions: Count  # positions that were asked again with only the tokens before them
    largest: Size  # difference of a logit
    void: Words = ""  # why its score does not count
    forward_flops_per_token: Count | None = None  # by its trace; a claim
    uncounted: Words = ""  # why it is unknown


class Evaluated(Record):
    """The lab's own figures of one run, computed from its checkpoint."""

    bpb: Size
    loss: Size  # nats per token
    targets: Count
    params_sha256: Sha256
    parameters: Count | None = since(None)  # of an own model
    examined: Examined | None = since(None)  # of an own model; None: it was not probed


class StepEnd(Record):
    """How one step ended."""

    state: Literal["made", "cached", "failed"]
    why: str = ""
    by: str = ""  # the execution that computed it
    host: str = ""
    made_at: Instant | None = None
    seconds: Seconds | None = None  # its duration
    folder: str = ""  # in the store
    output_sha256: Sha256 | None = None  # over paths, sizes and digests of its files
    receipt: dict[str, str] = {}


class Ended(Record):
    """An attempt is over, and all of its processes have ended."""

    at: Instant
    how: Literal["finished", "failed", "lost", "cancelled"]
    why: str = ""
    runs: dict[str, Any] = {}  # only in old records
    evaluated: dict[str, Any] = {}  # only in old records
    steps: dict[str, StepEnd] = {}
    saved: dict[str, int] = since(
        {}
    )  # of a lost one: where the next continues, `runner.history.progress_left`
    preempted: bool = since(False)  # a lost one, whose machines were taken away
    refused: tuple[str, ...] = ()  # rejected reports, each with its reason
    receipt: dict[str, str] = {}  # versions, devices, threads, as the job reports them


class Cancelled(Record):
    """Somebody asked to stop the execution."""

    at: Instant
    by: str
    command: str = ""  # its key, on GitHub


class Voided(Record):
    """The approval was no longer valid when the execution should start."""

    at: Instant
    why: str
