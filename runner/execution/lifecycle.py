"""One execution, from claim to result: the rules. Pure; `runner.execution.effects` looks and acts.

The bot and `regatta run` both turn this wheel until there is a result: `effects.observe`, `decide`,
`effects.act`. A crash anywhere is cured by looking again: every action either creates a record once
or asks Ray for something that it answers the same way twice.

An attempt makes the plan's steps. It is over when its lease says `released`, when Ray
calls its job terminal, or when its lease stood still for 45 s; then its job is stopped, and only
when Ray calls it terminal, or has forgotten it, is its end recorded. A worker ends all that it
started before its last report; of one that was killed, a process may live on, and what it changes
later is refused by digest. A lost attempt is followed by the next one, which finds what was made
and goes on from the newest checkpoints, until three in a row were lost that left no more to go on
from than there was (`runner.history.progress_left`); a failed one is not. One whose machines were
taken away does not count among these: only the execution's limit ends a run on such machines.

An execution may have a limit: seconds by the clock that its attempts may take together, from each
one's beginning to its end. What goes beyond it is stopped, from outside the job, and has failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from runner.schema import record
from runner.schema.record import MOST_ATTEMPTS
from runner.store.leases import STALE_AFTER, LeaseState

QUIET_AFTER_RELEASE = 10.0  # seconds a released attempt may take to leave by itself

Job = Literal["unreachable", "unknown", "pending", "running", "succeeded", "failed", "stopped"]
How = Literal["finished", "failed", "lost", "cancelled"]  # an attempt ended
Outcome = Literal["done", "failed", "cancelled", "voided"]  # of an execution


# ── Facts ────────────────────────────────────────────────────────────────────────────────────


class Report(NamedTuple):
    """What an attempt says of its end; of one that was preempted, that it lost its machines."""

    how: Literal["finished", "failed", "preempted"]
    why: str = ""


@dataclass(frozen=True)
class Attempt:
    """One attempt as it looks now."""

    name: str  # `t1`
    folder: str  # `<execution>.<name>-<nonce>`: below `work/`, of its lease, of its job
    claimed: record.Claimed
    started: bool  # is on record to have begun
    ended: record.Ended | None
    job: Job = "unknown"
    lease: LeaseState = field(default_factory=LeaseState)
    report: Report | None = None  # its last word


@dataclass(frozen=True)
class Facts:
    """One execution as it looks now."""

    execution: record.Execution
    attempts: tuple[Attempt, ...]
    cancelled: record.Cancelled | None
    voided: record.Voided | None
    result: record.Result | None
    spent: float = 0.0  # seconds that its attempts have run

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
    """Make an attempt ours: mint its nonce and record it."""


class Submit(_OfAttempt):
    """Write an attempt's spec and hand it to Ray."""


class Confirm(_OfAttempt):
    """Record that an attempt's worker has begun."""


class Stop(_OfAttempt):
    """Have the processes of an attempt ended."""


@dataclass(frozen=True)
class End(_OfAttempt):
    """Record that an attempt is over, and what it left."""

    how: How
    why: str = ""


@dataclass(frozen=True)
class Conclude:
    """Record how the execution came out."""

    state: Outcome
    why: str = ""


Action = Claim | Submit | Confirm | Stop | End | Conclude


def decide(facts: Facts) -> Action | None:
    """The next thing to do for an execution, or None: wait."""
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
    """That too many attempts in a row were lost without having got further, if they were."""
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
    """How the execution has to end because a rule or a person stopped it; None if nobody did."""
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
    return None


def _clock(seconds: float) -> str:
    hours, minutes = int(seconds // 3600), int(seconds % 3600 // 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {int(seconds % 60)} s"


def _watch(attempt: Attempt, halt: Conclude | None) -> Action | None:
    """An attempt that is claimed and has not ended."""
    job, lease = attempt.job, attempt.lease
    if job == "unreachable":
        return None  # no word is no decision
    if lease.withdrawn:  # halted before it began; a worker that comes now leaves at once
        return None if job == "running" else _end(attempt, halt)
    if halt and not lease.started and job in ("unknown", "pending"):
        return Stop(attempt.name)
    if job == "unknown" and not lease.started:
        return Submit(attempt.name)
    if lease.started and not attempt.started:
        return Confirm(attempt.name)
    still = lease.started and lease.still_for >= STALE_AFTER
    if job == "unknown":  # Ray's head forgot it; the processes may live on
        return _end(attempt, halt) if lease.released or still else None
    if job in ("pending", "running"):
        lingers = lease.released and lease.still_for >= QUIET_AFTER_RELEASE
        return Stop(attempt.name) if halt or still or lingers else None
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
    }
    return End(attempt.name, "lost", words[attempt.job])
