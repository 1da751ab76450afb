"""The effects of one execution's life: read records, leases and Ray; do one action.

`runner.execution.lifecycle` decides what to do; this module does it.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol

from runner.analysis import verdicts
from runner.execution import aliases, device_usage, git_source, lifecycle
from runner.execution.lifecycle import Attempt, Facts, Job, Report
from runner.history import lost_work, measurements, progress_left, provenance, step_runs
from runner.lib import fault_points, redact
from runner.schema import job_reports, record
from runner.schema.job_reports import AttemptSpec, Isolation, Refused
from runner.schema.record import run_name
from runner.store.leases import AttemptLease, LeaseWatch
from runner.store.store import Remote, Store, StoreError

MOST_REFUSED = 20  # named in a record, at most
MOST_SPEC = 64 << 20  # bytes of a spec.json
# The possible reports, of which the first counts, and the default reason for each.
UNSAID: dict[Literal["failed", "finished", "preempted"], str] = {
    "failed": "the job gave no reason",
    "finished": "",
    "preempted": "its machines were taken away",
}


class Launcher(Protocol):
    """Starts and watches jobs. Every call may be repeated without harm."""

    def look(self, folder: str) -> Job:
        """The status of the job of the attempt with this folder name."""

    def submit(self, folder: str, where: Path | str, spec_sha256: str, plan: record.Plan) -> None:
        """Start `runner.worker.main` on the attempt's folder `where` (a path or a gs:// URL),
        unless its job exists.

        `spec_sha256` is the digest of the `spec.json` there; the worker must obey no other one.
        """

    def stop(self, folder: str) -> None:
        """Ask the job and all its processes to end."""


def begin(store: Store, execution: record.Execution) -> bool:
    """Record that an execution is due, with the lab's current code, and the meaning of its aliases.
    False: it is already recorded."""
    aliases.settle(store, execution.plan, execution.id, execution.at)
    if execution.lab is None:
        execution = execution.model_copy(update={"lab": git_source.lab()})
    return record.write(store, f"executions/{execution.id}/execution", execution)


def observe(
    store: Store,
    look: Callable[[str], Job],
    leases: LeaseWatch,
    execution: str,
    now: datetime | None = None,
) -> Facts:
    """The execution's records and, for an open attempt, its lease, report and job. Without `now`,
    which must be from the clock that writes its records, its limit is not checked."""
    folder = f"executions/{execution}"
    events = record.names(store, folder)
    attempts = []
    for event in events:
        name, _, what = event.partition(".")
        if what == "claimed":
            claimed = record.require(store, f"{folder}/{event}", record.Claimed)
            attempt = Attempt(
                name=name,
                folder=f"{execution}.{name}-{claimed.nonce}",
                claimed=claimed,
                started=f"{name}.started" in events,
                ended=record.read(store, f"{folder}/{name}.ended", record.Ended),
            )
            attempts.append(attempt if attempt.ended else _open(store, look, leases, attempt))
    return Facts(
        execution=record.require(store, f"{folder}/execution", record.Execution),
        # By number; old records have further attempts, for evaluation.
        attempts=tuple(sorted(attempts, key=lambda a: (a.name[0] == "e", int(a.name[1:])))),
        cancelled=record.read(store, f"{folder}/cancelled", record.Cancelled),
        voided=record.read(store, f"{folder}/voided", record.Voided),
        result=record.read(store, f"{folder}/result", record.Result),
        spent=_spent(store, folder, attempts, now) if now else 0.0,
        pending=_pending(attempts, now) if now else 0.0,
    )


def _spent(store: Store, folder: str, attempts: Iterable[Attempt], now: datetime) -> float:
    """The seconds that attempts have run: each from when its start was seen, to its end or now."""
    spans = []
    for attempt in attempts:
        started = record.read(store, f"{folder}/{attempt.name}.started", record.Started)
        if started:
            until = attempt.ended.at if attempt.ended else now
            spans.append(max(0.0, (until - started.at).total_seconds()))
    return sum(spans)


def _pending(attempts: Iterable[Attempt], now: datetime) -> float:
    """The seconds that an attempt has waited whose job Ray has not begun."""
    waiting = (a for a in attempts if not a.started and a.job in ("pending", "stopped"))
    return max(((now - a.claimed.at).total_seconds() for a in waiting), default=0.0)


def _open(
    store: Store, look: Callable[[str], Job], leases: LeaseWatch, attempt: Attempt
) -> Attempt:
    # The job first: everything that it wrote before it ended is then visible.
    job = look(attempt.folder)
    lease = leases.look(attempt.folder, job)
    report = _report(store.at(f"work/{attempt.folder}/out"), attempt.claimed.nonce)
    return replace(attempt, job=job, lease=lease, report=report)


def _report(out: Path | Remote, nonce: str) -> Report | None:
    try:
        for how, unsaid in UNSAID.items():
            said = job_reports.read_report(out / f"{how}.json", job_reports.AttemptReport, nonce)
            if said:
                return Report(how, unsaid and (said.why or unsaid))
    except Refused as error:
        return Report("failed", f"its report was refused: {error}")
    return None


def act(
    store: Store, launcher: Launcher, facts: Facts, action: lifecycle.Action, now: datetime
) -> None:
    """Do one action. Done twice, or by two processes at once, it has one effect."""
    folder = f"executions/{facts.execution.id}"
    match action:
        case lifecycle.Claim(name):
            record.write(store, f"{folder}/{name}.claimed", _claim(store, facts, name, now))
        case lifecycle.Submit(name):
            claimed = _attempt(facts, name).claimed
            spec = _spec(facts, name, claimed.nonce)
            where = f"work/{spec.folder}"
            store.create(f"{where}/spec.json", spec.canonical())
            written = hashlib.sha256(store.require(f"{where}/spec.json")).hexdigest()
            if written != claimed.spec_sha256:
                raise StoreError(
                    f"{where}/spec.json is not what {folder}/{name}.claimed.json names: it was "
                    "changed, or the lab's code was. Nothing was submitted; cancel the execution."
                )
            with fault_points.around("ray.submit"):
                launcher.submit(spec.folder, store.place(where), written, facts.execution.plan)
        case lifecycle.Confirm(name):
            record.write(store, f"{folder}/{name}.started", record.Started(at=now))
        case lifecycle.Stop(name):
            attempt = _attempt(facts, name)
            # Ray keeps a job that waits for devices until they are free: then no worker may start
            # it.
            if not attempt.lease.started:
                AttemptLease(store, attempt.folder).withdraw()
            with fault_points.around("ray.stop"):
                launcher.stop(attempt.folder)
        case lifecycle.End(name, how, why):
            ended = _ended(store, facts, _attempt(facts, name), how, why, now)
            record.write(store, f"{folder}/{name}.ended", redact.cleaned(ended))
        case lifecycle.Conclude(state, why):
            _conclude(store, facts, state, why, now)


def _attempt(facts: Facts, name: str) -> Attempt:
    return next(attempt for attempt in facts.attempts if attempt.name == name)


# ── Claiming ─────────────────────────────────────────────────────────────────────────────────


def _claim(store: Store, facts: Facts, name: str, now: datetime) -> record.Claimed:
    attempt = f"{facts.execution.id}.{name}"
    spec = _spec(facts, name, secrets.token_hex(8))
    return record.Claimed(
        at=now,
        nonce=spec.nonce,
        spec_sha256=spec.digest(),
        set_aside=_few(
            [
                f"work/{job_reports.printable(other)}"
                for other in store.list("work")
                if other == attempt or other.startswith(f"{attempt}-")
            ]
        ),
    )


def _spec(facts: Facts, name: str, nonce: str) -> AttemptSpec:
    return AttemptSpec(
        attempt=f"{facts.execution.id}.{name}",
        nonce=nonce,
        plan=facts.execution.plan,
        isolation=_isolation(facts.execution),
        limit_seconds=facts.execution.limit_seconds,
    )


def _isolation(execution: record.Execution) -> Isolation:
    """How own code is isolated. A run by hand on one's own machine trusts it by default, and a
    reproduction does not. An execution from a thread says it itself; if it does not, own code is
    refused."""
    if not (execution.plan.own_code() or execution.plan.compiled):
        return ""
    return execution.isolation or ("" if execution.origin else "own machine")


# ── Believing ────────────────────────────────────────────────────────────────────────────────


def _ended(
    store: Store, facts: Facts, attempt: Attempt, how: lifecycle.How, why: str, now: datetime
) -> record.Ended:
    refused = [
        f"{name}: it lay there before the attempt began" for name in attempt.claimed.set_aside
    ]
    if how == "finished" and (other := _other_spec(store, attempt)):
        refused.append(other)
    steps = provenance.step_ends(store, facts.execution)
    lost = how == "lost"
    return record.Ended(
        at=now,
        how=how,
        why=why,
        steps=steps,
        saved=progress_left.of_steps(store, facts.execution, steps) if lost else {},
        preempted=lost and attempt.report is not None,
        refused=_few(refused),
        receipt=_shared(facts.execution.plan, steps),
    )


def _shared(plan: record.Plan, ends: Mapping[str, record.StepEnd]) -> dict[str, str]:
    """What the receipts of all training steps have in common."""
    receipts = [ends[name].receipt for name in plan.trained().values() if name in ends]
    common = set.intersection(*(set(one.items()) for one in receipts)) if receipts else set()
    return {name: words for name, words in sorted(common) if name != step_runs.READ}


def _other_spec(store: Store, attempt: Attempt) -> str | None:
    """What is wrong with the spec in the folder; None if it is ours."""
    name = f"{attempt.folder}/spec.json"
    try:
        spec = job_reports.read_regular(store.at(f"work/{name}"), MOST_SPEC)
    except Refused as error:
        return str(error)
    if spec and hashlib.sha256(spec).hexdigest() == attempt.claimed.spec_sha256:
        return None
    return f"{name}: it is not the one that was claimed; nothing is believed"


# ── Concluding ───────────────────────────────────────────────────────────────────────────────


def _conclude(
    store: Store, facts: Facts, state: lifecycle.Outcome, why: str, now: datetime
) -> None:
    """Write each run's record, then the result; the same ones however often it is repeated."""
    execution = facts.execution
    attempts = [attempt.ended for attempt in facts.attempts if attempt.ended]
    ends = attempts[-1].steps if attempts else {}
    runs, unbelieved = step_runs.runs(store, execution, ends)
    competing: tuple[record.EnteredRun, ...] = ()
    if execution.plan.speedrun:
        seconds = _spent(store, f"executions/{execution.id}", facts.attempts, now)
        competing = measurements.runs(store, execution, ends, seconds)
    if facts.attempts:
        for (arm, seed), run in runs.items():
            path = f"runs/{execution.id}.{run_name(arm, seed)}"
            record.write(store, path, redact.cleaned(run))
    scores = verdicts.scores_of(runs.values())
    refused = [line for ended in attempts for line in ended.refused] + unbelieved
    result = record.Result(
        at=now,
        state=state,
        why=why,
        verdicts=verdicts.judge(
            execution.plan, scores, execution.climbed, verdicts.speeds_of(runs.values())
        )
        if state in ("done", "failed")
        else (),
        refused=_few(refused),
        seconds=(now - facts.attempts[0].claimed.at).total_seconds() if facts.attempts else None,
        used=device_usage.of(facts),
        entered=competing,
        lost=lost_work.of_execution(store, execution, _stopped(facts)),
    )
    record.write(store, f"executions/{execution.id}/result", redact.cleaned(result))


def _stopped(facts: Facts) -> datetime | None:
    """When a person, a rule or the time limit stopped the execution; None if nothing did."""
    stops = [one.at for one in (facts.cancelled, facts.voided) if one]
    limit, last = (
        facts.execution.limit_seconds,
        facts.attempts[-1].ended if facts.attempts else None,
    )
    if limit is not None and facts.spent >= limit and last:
        stops.append(last.at - timedelta(seconds=facts.spent - limit))
    return min(stops, default=None)


def _few(lines: list[str]) -> tuple[str, ...]:
    more = len(lines) - MOST_REFUSED
    return (*lines[:MOST_REFUSED], f"and {more} more") if more > 0 else tuple(lines)
