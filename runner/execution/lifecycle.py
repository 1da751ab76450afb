"""The rules of one execution, from claim to result. Pure; `runner.execution.effects` reads and
acts.

The bot and `regatta run` both repeat `effects.observe`, `decide`, `effects.act` until there is a
result. After a crash anywhere, the next look continues: every action either creates a record once
or is a request to Ray that may be repeated.

An attempt makes the plan's steps. It starts when Ray says that its job runs, or when its worker
speaks. It is over when its lease says `released`, when Ray says that its job has ended, when its
lease had no heartbeat for 45 s, or when its job has run for five minutes and its worker has not
spoken: the job of a node that died may run for ever (ray-project/ray#65037). Then its job is
stopped, and its end is recorded only when Ray says that the job has ended, or has forgotten it, or
when no worker can start it any more. A worker ends everything that it started before its last
report. Of a killed worker, a process may live on; its later changes are refused by digest. A lost
attempt is followed by the next one, which reuses finished outputs and continues from the newest
checkpoints, until three in a row were lost without progress (`runner.history.progress_left`). A
failed attempt is not followed. One whose machines were preempted does not count as lost here: only
the execution's limit ends a run on such machines.

An execution may have two limits: the wall time that its attempts may take together, each from its
start to its end, and the time that Ray may let an attempt wait for room. Beyond one of them, the
execution is stopped from outside the job, and has failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from runner.schema import record
from runner.schema.record import MOST_ATTEMPTS
from runner.store.leases import STALE_AFTER, LeaseState

SILENT_AFTER = 300.0  # seconds in which the worker of a job that runs has to speak
QUIET_AFTER_RELEASE = 10.0  # seconds in which a released attempt may end by itself

Job = Literal["unreachable", "unknown", "pending", "running", "succeeded", "failed", "stopped"]
How = Literal["finished", "failed", "lost", "cancelled"]  # how an attempt ended
Outcome = Literal["done", "failed", "cancelled", "voided"]  # of an execution


# ── Facts ────────────────────────────────────────────────────────────────────────────────────


class Report(NamedTuple):
    """An attempt's report about its end; `preempted` if it lost its machines."""

    how: Literal["finished", "failed", "preempted"]
    why: str = ""


@dataclass(frozen=True)
class Attempt:
    """The state of one attempt."""

    name: str  # `t1`
    folder: str  # `<execution>.<name>-<nonce>`: names its folder below `work/`, lease and job
    claimed: record.Claimed
    started: bool  # its start is recorded
    ended: record.Ended | None
    job: Job = "unknown"
    lease: LeaseState = field(default_factory=LeaseState)
    report: Report | None = None  # the last one


@dataclass(frozen=True)
class Facts:
    """The state of one execution."""

    execution: record.Execution
    attempts: tuple[Attempt, ...]
    cancelled: record.Cancelled | None
    voided: record.Voided | None
    result: record.Result | None
    spent: float = 0.0  # seconds that its attempts have run
    pending: float = 0.0  # seconds that the last attempt has waited for Ray to run its job

    @property
    def state(self) -> record.State:
        """The execution's state, derived from its records."""
        if self.result:
            return self.result.state
        if any(attempt.started or attempt.ended for attempt in self.attempts):
            return "running"
        return "queued"


# ── Decisions ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _OfAttempt:
    attempt: str


class Claim(_OfAttempt):
    """Claim an attempt: draw its nonce and record it."""


class Submit(_OfAttempt):
    """Write an attempt's spec and submit it to Ray."""


class Confirm(_OfAttempt):
    """Record that an attempt's worker has started."""


class Stop(_OfAttempt):
    """End the processes of an attempt."""


@dataclass(frozen=True)
class End(_OfAttempt):
    """Record that an attempt is over, and what it reported."""

    how: How
    why: str = ""


@dataclass(frozen=True)
class Conclude:
    """Record the execution's result."""

    state: Outcome
    why: str = ""


Action = Claim | Submit | Confirm | Stop | End | Conclude


def decide(facts: Facts) -> Action | None:
    """The next action for an execution; None: wait."""
    if facts.result:
        return None
    halt = _halt(facts)
    attempts = facts.attempts
    if not attempts:
        return halt or Claim("t1")
    last = attempts[-1]
    if not last.ended:
        return _watch(last, halt)
    if last.ended.how == "finished" and facts.execution.plan.steps:
        return Conclude("done")
    if halt:
        return halt
    if last.ended.how == "failed":
        return Conclude("failed", last.ended.why)
    if in_vain := _in_vain(attempts):
        return Conclude("failed", f"{in_vain}; of the last one: {last.ended.why}")
    return Claim(f"t{len(attempts) + 1}")


def _in_vain(attempts: Sequence[Attempt]) -> str | None:
    """The reason, if too many attempts in a row were lost without progress."""
    best, count = (0, 0), 0
    for ended in (attempt.ended for attempt in attempts):
        if ended and ended.preempted:
            continue
        made = [end for end in ended.steps.values() if end.state == "made"] if ended else []
        now = (len(made), sum(ended.saved.values()) if ended else 0)
        count, best = 0 if now > best else count + 1, max(now, best)
    if count < MOST_ATTEMPTS:
        return None
    of_them = f", the last {count} of them without progress" if len(attempts) > count else ""
    return f"{len(attempts)} attempts were lost{of_them}"


def _halt(facts: Facts) -> Conclude | None:
    """The end of an execution that a rule or a person stopped; None if nobody did."""
    if facts.voided:
        return Conclude("voided", facts.voided.why)
    if facts.cancelled:
        return Conclude("cancelled", f"cancelled by {facts.cancelled.by}")
    if not facts.execution.plan.steps:
        return Conclude(
            "failed", "an older version of the lab made this plan; this version cannot run it"
        )
    limit = facts.execution.limit_seconds
    if limit is not None and facts.spent >= limit:
        return Conclude("failed", f"stopped at its time limit of {_clock(limit)}")
    limit = facts.execution.pending_limit_seconds
    if limit is not None and facts.pending >= limit:
        return Conclude(
            "failed", f"Ray found no room for it within {_clock(limit)}, so it never ran"
        )
    return None


def _clock(seconds: float) -> str:
    hours, minutes = int(seconds // 3600), int(seconds % 3600 // 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {int(seconds % 60)} s"


def _watch(attempt: Attempt, halt: Conclude | None) -> Action | None:
    """The action for an attempt that is claimed and has not ended."""
    job, lease = attempt.job, attempt.lease
    if job == "unreachable":
        return None  # no answer is no decision
    if lease.withdrawn:  # stopped before it started; a worker that comes now exits at once
        exits = job == "running" and lease.still_for < STALE_AFTER
        return None if exits else _end(attempt, halt)
    if halt and not lease.started and job in ("unknown", "pending"):
        return Stop(attempt.name)
    if job == "unknown" and not lease.started:
        return Submit(attempt.name)
    if (lease.started or job == "running") and not attempt.started:
        return Confirm(attempt.name)
    still = lease.still_for >= (STALE_AFTER if lease.started else SILENT_AFTER)
    if job == "unknown":  # Ray has forgotten it; its processes may live on
        return _end(attempt, halt) if lease.released or still else None
    if job in ("pending", "running"):
        lingers = lease.released and lease.still_for >= QUIET_AFTER_RELEASE
        lost = still and (lease.started or job == "running")
        return Stop(attempt.name) if halt or lost or lingers else None
    return _end(attempt, halt)


def _end(attempt: Attempt, halt: Conclude | None) -> End:
    said = attempt.report
    if said and said.how != "preempted":
        return End(attempt.name, said.how, said.why)
    if said and not halt:
        return End(attempt.name, "lost", said.why)
    if halt:
        return End(attempt.name, "failed" if halt.state == "failed" else "cancelled", halt.why)
    words = {
        "unknown": f"no sign of life for {STALE_AFTER:.0f} s",
        "stopped": "its job was stopped",
        "succeeded": "its job exited without a report",
        "failed": "its job crashed",
        "running": f"its job ran, and its worker did not speak within {SILENT_AFTER:.0f} s",
    }
    if attempt.lease.withdrawn and attempt.started:
        return End(attempt.name, "lost", words["running"])
    return End(attempt.name, "lost", words[attempt.job])
