"""The effects of one execution's life: look at records, leases and Ray; do one action.

`runner.execution.lifecycle` says what is to be done; this file does it. Nothing here decides.
"""

import hashlib
import secrets
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Protocol

from runner.analysis import verdicts
from runner.execution import aliases, device_usage, git_source, lifecycle, lost_progress
from runner.execution.lifecycle import Attempt, Facts, Job
from runner.execution.progress import curve
from runner.history import measurements, provenance, step_runs
from runner.lib import fault_points, redact
from runner.lib.downsample import thinned
from runner.schema import job_reports, record
from runner.schema.job_reports import AttemptSpec, Isolation, Refused, ToEvaluate
from runner.schema.record import Checkpoint, Evaluated, RunEnd, run_name
from runner.store.leases import AttemptLease, LeaseWatch
from runner.store.store import Store, StoreError

MOST_REFUSED = 20  # named in a record; a flood of bad lines says no more than twenty
MOST_SPEC = 64 << 20  # bytes of a spec.json


class Launcher(Protocol):
    """Where attempts run. Every call may be repeated without harm."""

    def look(self, folder: str) -> Job:
        """What has become of the job of the attempt with this folder name."""

    def submit(self, folder: str, where: Path | str, spec_sha256: str, plan: record.Plan) -> None:
        """Start `runner.worker.main` on the attempt's folder `where` (a path or a gs:// URL),
        unless its job exists.

        `spec_sha256` is of the `spec.json` there; the worker is to obey no other one.
        """

    def stop(self, folder: str) -> None:
        """Ask the job and all its processes to end."""


def begin(store: Store, execution: record.Execution) -> bool:
    """Record that an execution is due, with the lab's code as it is now, and what its aliases mean.
    False: it is known already."""
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
    """The execution's records and, for an attempt that is open, its lease, report and job. Without
    `now`, by the clock of who writes its records, nothing is said of its limit."""
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
        # `t` before `e`, each in the order of its number.
        attempts=tuple(sorted(attempts, key=lambda a: (a.name[0] == "e", int(a.name[1:])))),
        cancelled=record.read(store, f"{folder}/cancelled", record.Cancelled),
        voided=record.read(store, f"{folder}/voided", record.Voided),
        result=record.read(store, f"{folder}/result", record.Result),
        spent=_spent(store, folder, attempts, now) if now else 0.0,
    )


def _spent(store: Store, folder: str, attempts: list[Attempt], now: datetime) -> float:
    """Seconds that attempts have run: each from when it was seen to begin, to its end or now."""
    spans = []
    for attempt in attempts:
        started = record.read(store, f"{folder}/{attempt.name}.started", record.Started)
        if started:
            until = attempt.ended.at if attempt.ended else now
            spans.append(max(0.0, (until - started.at).total_seconds()))
    return sum(spans)


def _open(
    store: Store, look: Callable[[str], Job], leases: LeaseWatch, attempt: Attempt
) -> Attempt:
    # The job first: what it wrote before it ended is then surely seen.
    job = look(attempt.folder)
    lease = leases.look(attempt.folder)
    out, nonce = store.at(f"work/{attempt.folder}/out"), attempt.claimed.nonce
    finished, failed = False, ""
    try:
        success = job_reports.read_report(out / "finished.json", job_reports.AttemptReport, nonce)
        finished = success is not None
        failure = job_reports.read_report(out / "failed.json", job_reports.AttemptReport, nonce)
        failed = (failure.why or "the job gave no reason") if failure else ""
    except Refused as error:
        failed = f"its report was refused: {error}"
    return Attempt(
        name=attempt.name,
        folder=attempt.folder,
        claimed=attempt.claimed,
        started=attempt.started,
        ended=None,
        job=job,
        lease=lease,
        finished=finished,
        failed=failed,
    )


def act(
    store: Store, launcher: Launcher, facts: Facts, action: lifecycle.Action, now: datetime
) -> None:
    """Do one action. Done twice, or by two at once, it has one effect."""
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
            # Ray keeps a job that waits for devices until they are free: no worker may begin it.
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
    training = facts.of("t")
    last = training[-1].ended if training else None
    evaluating = name.startswith("e")
    return AttemptSpec(
        attempt=f"{facts.execution.id}.{name}",
        nonce=nonce,
        kind="evaluate" if evaluating else "train",
        plan=facts.execution.plan,
        isolation=_isolation(facts.execution),
        limit_seconds=facts.execution.limit_seconds,
        earlier=()
        if evaluating
        else tuple(attempt.folder for attempt in training if attempt.name != name),
        evaluate={
            run: ToEvaluate(path=end.checkpoint.path, sha256=end.checkpoint.sha256)
            for run, end in (last.runs if evaluating and last else {}).items()
            if end.checkpoint
        },
    )


def _isolation(execution: record.Execution) -> Isolation:
    """How code of the experiment's own is kept apart. What somebody runs by hand on his own machine
    is his, unless it says otherwise, as what is reproduced does. What a thread began says for
    itself, and if it does not, such code is refused."""
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
    plan = facts.execution.plan
    runs: dict[str, RunEnd] = {}
    evaluated: dict[str, Evaluated] = {}
    if attempt.name.startswith("t") and not plan.steps:
        for arm, seed in plan.runs():
            refused += curve(store, [attempt.folder], run_name(arm, seed), plan.arms[arm]).refused
    if how == "finished" and (other := _other_spec(store, attempt)):
        refused.append(other)
    elif plan.steps:
        pass  # what they left says what it is
    elif how == "finished" and attempt.name.startswith("t"):
        runs = {
            run_name(arm, seed): _run_end(store, facts, attempt, arm, seed, refused)
            for arm, seed in plan.runs()
        }
    elif how == "finished":
        evaluated = _evaluated(store, facts, attempt, refused)
    steps = provenance.step_ends(store, facts.execution)
    return record.Ended(
        at=now,
        how=how,
        why=why,
        runs=runs,
        evaluated=evaluated,
        steps=steps,
        saved=lost_progress.saved(store, facts, attempt, steps) if how == "lost" else {},
        refused=_few(refused),
        receipt=_receipt(store, attempt),
    )


def _other_spec(store: Store, attempt: Attempt) -> str:
    """What is wrong with the spec that lies there now: whoever reads it must find ours."""
    name = f"{attempt.folder}/spec.json"
    try:
        spec = job_reports.read_regular(store.at(f"work/{name}"), MOST_SPEC)
    except Refused as error:
        return str(error)
    same = spec and hashlib.sha256(spec).hexdigest() == attempt.claimed.spec_sha256
    return "" if same else f"{name}: it is not the one that was claimed; nothing is believed"


def _run_end(
    store: Store, facts: Facts, attempt: Attempt, arm: str, seed: int, refused: list[str]
) -> RunEnd:
    """What training left of a run: its word, and its checkpoint's digest as we find it."""
    run, steps = run_name(arm, seed), facts.execution.plan.arms[arm].train.num_train_steps
    out = store.at(f"work/{attempt.folder}/out")
    try:
        report = job_reports.read_report(
            out / "runs" / f"{run}.json", job_reports.RunReport, attempt.claimed.nonce
        )
        if report is None:
            return RunEnd(state="failed", why="the job left no word of it", step=0, checkpoint=None)
        if report.step > steps:
            raise Refused(f"{attempt.folder}/out/runs/{run}.json: step {report.step} of {steps}")
        if report.state == "failed":
            return RunEnd(state="failed", why=report.why, step=report.step, checkpoint=None)
        # A run that an earlier attempt had finished left its checkpoint there.
        for earlier in reversed(facts.of("t")):
            path = f"{earlier.folder}/out/checkpoints/{run}/{steps}"
            if job_reports.has_checkpoint(store.at(f"work/{path}")):
                most_bytes = job_reports.most_checkpoint(facts.execution.plan.arms[arm].parameters)
                digest = job_reports.checkpoint_sha256(store.at(f"work/{path}"), most_bytes)
                checkpoint = Checkpoint(path=path, step=steps, sha256=digest)
                return RunEnd(state="finished", step=steps, checkpoint=checkpoint)
        raise Refused(f"{attempt.folder}/out/checkpoints/{run}/{steps}: there is no checkpoint")
    except Refused as error:
        refused.append(str(error))
        return RunEnd(state="failed", why=str(error), step=0, checkpoint=None)


def _evaluated(
    store: Store, facts: Facts, attempt: Attempt, refused: list[str]
) -> dict[str, Evaluated]:
    out, planned = store.at(f"work/{attempt.folder}/out"), facts.execution.plan.eval.tokens
    scored = {}
    for run in _spec(facts, attempt.name, attempt.claimed.nonce).evaluate:
        try:
            report = job_reports.read_report(
                out / "evaluated" / f"{run}.json",
                job_reports.EvaluationReport,
                attempt.claimed.nonce,
            )
            if report is None:
                raise Refused(f"{attempt.folder}/out/evaluated/{run}.json: there is no figure")
            if report.evaluated.targets != planned:
                words = f"scored {report.evaluated.targets} tokens, and the plan names {planned}"
                raise Refused(f"{attempt.folder}/out/evaluated/{run}.json: {words}")
            scored[run] = report.evaluated
        except Refused as error:
            refused.append(str(error))
    return scored


def _receipt(store: Store, attempt: Attempt) -> dict[str, str]:
    path = store.at(f"work/{attempt.folder}/out") / "finished.json"
    try:
        report = job_reports.read_report(path, job_reports.AttemptReport, attempt.claimed.nonce)
    except Refused:
        return {}
    return dict(report.receipt) if report else {}


# ── Concluding ───────────────────────────────────────────────────────────────────────────────


def _conclude(
    store: Store, facts: Facts, state: lifecycle.Outcome, why: str, now: datetime
) -> None:
    """Write each run's record, then the result; the same ones however often it is done."""
    execution = facts.execution
    training, evaluation = facts.of("t"), facts.of("e")
    ends = training[-1].ended.runs if training and training[-1].ended else {}
    scores = evaluation[-1].ended.evaluated if evaluation and evaluation[-1].ended else {}
    unbelieved: list[str] = []
    competing: tuple[record.EnteredRun, ...] = ()
    if execution.plan.steps:
        of_steps = training[-1].ended.steps if training and training[-1].ended else {}
        runs, unbelieved = step_runs.runs(store, execution, of_steps)
        if execution.plan.speedrun:
            competing = measurements.runs(
                store, execution, of_steps, sum(device_usage.spans(store, facts))
            )
    else:
        runs = {
            (arm, seed): _run(store, facts, arm, seed, ends, scores)
            for arm, seed in execution.plan.runs()
        }
    if training:
        for (arm, seed), run in runs.items():
            path = f"runs/{execution.id}.{run_name(arm, seed)}"
            record.write(store, path, redact.cleaned(run))
    if state == "done" and not scores and not execution.plan.steps:
        state, why = "failed", "no run could be evaluated"
    figures = {key: run.evaluated.bpb if run.evaluated else None for key, run in runs.items()}
    refused = [
        line for attempt in facts.attempts if attempt.ended for line in attempt.ended.refused
    ] + unbelieved
    result = record.Result(
        at=now,
        state=state,
        why=why,
        verdicts=verdicts.judge(
            execution.plan, figures, execution.climbed, verdicts.speeds_of(runs.values())
        )
        if state in ("done", "failed")
        else (),
        refused=_few(refused),
        seconds=(now - training[0].claimed.at).total_seconds() if training else None,
        used=device_usage.of(store, facts),
        entered=competing,
    )
    record.write(store, f"executions/{execution.id}/result", redact.cleaned(result))


def _run(
    store: Store,
    facts: Facts,
    arm: str,
    seed: int,
    ends: dict[str, RunEnd],
    scores: dict[str, Evaluated],
) -> record.Run:
    name, planned = run_name(arm, seed), facts.execution.plan.arms[arm]
    lines = curve(store, [attempt.folder for attempt in facts.of("t")], name, planned).lines
    end = ends.get(name)
    steps = end.step if end else (lines[-1].step if lines else 0)
    speeds = [line.tokens_per_second for line in lines if line.tokens_per_second]
    points = [(line.step, line.loss) for line in lines if line.loss is not None]
    return record.Run(
        execution=facts.execution.id,
        arm=arm,
        seed=seed,
        state=end.state if end else "unfinished",
        why=end.why if end else "",
        steps=steps,
        tokens=steps * planned.tokens_per_step,
        model_flops=steps * planned.model_flops // planned.train.num_train_steps,
        evaluated=scores.get(name),
        checkpoint_sha256=end.checkpoint.sha256 if end and end.checkpoint else None,
        curve=thinned(points),
        skipped=sum(line.skipped for line in lines),
        tokens_per_second=speeds[-1] if speeds else None,
    )


def _few(lines: list[str]) -> tuple[str, ...]:
    more = len(lines) - MOST_REFUSED
    return (*lines[:MOST_REFUSED], f"and {more} more") if more > 0 else tuple(lines)
