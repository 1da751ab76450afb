"""An execution, its attempts, and how those ended."""

import hashlib
from typing import Any, Literal

from runner.lib.base_record import Instant, Record, Sha256
from runner.lib.bounds import Count, Seconds, Size, Words
from runner.schema.record.fields import Isolated, since
from runner.schema.record.plans import Plan
from runner.schema.record.pull_requests import Climbed, Foretold, Source
from runner.schema.record.questions import Person

MOST_ATTEMPTS = 3  # in a row that are lost and got no further

State = Literal["queued", "running", "done", "failed", "cancelled", "voided"]

FINAL_STATES = frozenset({"done", "failed", "cancelled", "voided"})


class Origin(Record):
    """Where an execution on GitHub comes from."""

    repository: int
    repository_name: str
    pull: int
    plan: int
    commit: str
    approved_by: Person
    approval: str


class Lab(Record):
    """The lab's own code when an execution began."""

    code_sha256: Sha256  # over paths and bytes of the Python files of its packages
    lock_sha256: Sha256 | None  # of requirements.lock
    commit: str = ""  # that was checked out, if it lay in a checkout
    changed: bool = False  # it was not as that commit has it


class Execution(Record):
    """What an approved plan starts once. `origin` is None for a local, unsigned run."""

    id: str
    at: Instant
    plan: Plan
    origin: Origin | None
    source: Source | None = None
    lab: Lab | None = None
    limit_seconds: float | None = None  # of an attempt by the clock, all together; None: none
    isolation: Isolated = ""  # of own code; "": there is none
    approvals: tuple[str, ...] = ()  # all that it rests on
    deviations: tuple[str, ...] = ()  # from the plan that was shown, in sentences
    reproduces: str = ""  # the execution that it is to be compared with
    forecasts: dict[str, Foretold] = since({})  # by arm, as its plan was shown with them
    climbed: tuple[Climbed, ...] = since(())  # what the rungs before came to, as in its plan


def execution_id(cause: str) -> str:
    """`x` and the first 16 hexadecimal digits of SHA-256 over what caused the execution."""
    return "x" + hashlib.sha256(cause.encode()).hexdigest()[:16]


class Claimed(Record):
    """An attempt is ours to make. Its nonce cannot be known before this is written."""

    at: Instant
    nonce: str
    spec_sha256: Sha256
    set_aside: tuple[str, ...] = ()  # folders that lay where only this attempt may write


class Started(Record):
    """The attempt's worker has begun."""

    at: Instant


class Examined(Record):
    """What asking a model of an experiment's own again has shown
    (`runner.worker.builtin.look_ahead_probe`)."""

    positions: Count  # that it was asked about with no more than what comes before
    largest: Size  # difference of a logit
    void: Words = ""  # why its score does not count
    forward_flops_per_token: Count | None = None  # of the trace that was scored, by its word
    uncounted: Words = ""  # why there is none


class Evaluated(Record):
    """The lab's own figures of one run, computed from its checkpoint."""

    bpb: Size
    loss: Size  # nats a token
    targets: Count
    params_sha256: Sha256
    parameters: Count | None = since(None)  # of a model of the experiment's own
    examined: Examined | None = since(None)  # likewise; None: it was not asked again


class StepEnd(Record):
    """What became of one step."""

    state: Literal["made", "cached", "failed"]
    why: str = ""
    by: str = ""  # the execution that made it
    host: str = ""
    made_at: Instant | None = None
    seconds: Seconds | None = None  # that it took
    folder: str = ""  # in the store
    output_sha256: Sha256 | None = None  # over paths, sizes and digests of its files
    receipt: dict[str, str] = {}


class Ended(Record):
    """An attempt is over and none of its processes is left."""

    at: Instant
    how: Literal["finished", "failed", "lost", "cancelled"]
    why: str = ""
    runs: dict[str, Any] = {}  # of an older lab
    evaluated: dict[str, Any] = {}  # likewise
    steps: dict[str, StepEnd] = {}
    saved: dict[str, int] = since(
        {}
    )  # of a lost one: what the next goes on from, `runner.history.progress_left`
    preempted: bool = since(False)  # a lost one, whose machines were taken away
    refused: tuple[str, ...] = ()  # reports that were not believed, each with its reason
    receipt: dict[str, str] = {}  # versions, devices, threads, as the job names them


class Cancelled(Record):
    """Somebody asked the execution to stop."""

    at: Instant
    by: str
    command: str = ""  # which one, on GitHub


class Voided(Record):
    """The approval no longer held when it was to be used."""

    at: Instant
    why: str
