"""The rules of one execution, as tables: what is seen → what is done."""

from typing import Any

import pytest

from runner.execution.lifecycle import (
    SILENT_AFTER,
    Action,
    Attempt,
    Claim,
    Conclude,
    Confirm,
    End,
    Facts,
    Job,
    Report,
    Stop,
    Submit,
    decide,
)
from runner.schema import record
from runner.store.leases import STALE_AFTER, LeaseState
from tests import synthetic

NOW = synthetic.START
NOBODY = LeaseState()
BEGUN = LeaseState(started=True, still_for=1)
STILL = LeaseState(started=True, still_for=STALE_AFTER)
RELEASED = LeaseState(started=True, released=True, still_for=1)
LINGERING = LeaseState(started=True, released=True, still_for=11)
WITHDRAWN = LeaseState(withdrawn=True)
SILENT = LeaseState(still_for=SILENT_AFTER)
BY_GRACE = record.Cancelled(at=NOW, by="grace")


def attempt(
    name: str = "t1",
    job: Job = "running",
    lease: LeaseState = BEGUN,
    *,
    started: bool = True,
    finished: bool = False,
    failed: str = "",
    preempted: str = "",
    ended: str = "",
    taken: bool = False,
    saved: int = 0,
) -> Attempt:
    end: Any = None
    report = Report("finished") if finished else None
    if failed or preempted:
        report = Report("failed" if failed else "preempted", failed or preempted)
    if ended:
        left = {"train/fast,seed=0": saved} if saved else {}
        end = record.Ended(at=NOW, how=ended, why=f"why {name}", preempted=taken, saved=left)
    return Attempt(
        name=name,
        folder=f"x.{name}-aa",
        claimed=record.Claimed(at=NOW, nonce="aa", spec_sha256="a" * 64),
        started=started,
        ended=end,
        job=job,
        lease=lease,
        report=report,
    )


def facts(*attempts: Attempt, **also: Any) -> Facts:
    known = {"cancelled": None, "voided": None, "result": None, **also}
    return Facts(synthetic.execution(synthetic.plan(seeds=[0])), attempts, **known)


def test_a_voided_execution_is_not_concluded_while_a_late_job_of_it_lives() -> None:
    void = record.Voided(at=NOW, why="the branch moved")
    assert decide(facts(attempt(), voided=void)) == Stop("t1")
    stopped = attempt(job="stopped")
    assert decide(facts(stopped, voided=void)) == End("t1", "cancelled", "the branch moved")
    ended = attempt(ended="cancelled")
    assert decide(facts(ended, voided=void)) == Conclude("voided", "the branch moved")


LIMIT = "stopped at its time limit of 1 h 30 min"


def test_beyond_its_limit_an_execution_is_stopped_and_has_failed() -> None:
    limited = synthetic.execution(synthetic.plan(seeds=[0])).model_copy(
        update={"limit_seconds": 5400.0}
    )

    def of(spent: float, *attempts: Attempt) -> Facts:
        return Facts(limited, attempts, None, None, None, spent)

    assert decide(of(5399.9, attempt())) is None
    assert decide(of(5400.0, attempt())) == Stop("t1")
    assert decide(of(5400.0, attempt(job="stopped"))) == End("t1", "failed", LIMIT)
    lost = attempt(ended="lost")
    assert decide(of(5400.0, lost)) == Conclude("failed", LIMIT), "and is not begun again"
    assert decide(of(5399.9, lost)) == Claim("t2")
    taken = attempt(ended="lost", taken=True)
    assert decide(of(5400.0, taken)) == Conclude("failed", LIMIT), "nor on other machines"
    over = attempt(ended="finished")
    assert decide(of(5400.0, over)) == Conclude("done")
    finished = attempt(job="succeeded", finished=True)
    assert decide(of(5400.0, finished)) == End("t1", "finished"), "who was done by then is done"


def test_the_time_in_rays_queue_has_a_limit_of_its_own() -> None:
    limited = synthetic.execution(synthetic.plan(seeds=[0])).model_copy(
        update={"limit_seconds": 60.0, "pending_limit_seconds": 259_200.0}
    )

    def waiting(seconds: float, one: Attempt) -> Facts:
        return Facts(limited, (one,), None, None, None, pending=seconds)

    queued = attempt(job="pending", lease=NOBODY, started=False)
    assert decide(waiting(259_199.0, queued)) is None
    assert decide(waiting(259_200.0, queued)) == Stop("t1")
    stopped = attempt(job="stopped", lease=WITHDRAWN, started=False)
    why = "Ray found no room for it within 72 h 0 min, so it never ran"
    assert decide(waiting(259_200.0, stopped)) == End("t1", "failed", why)
    assert decide(waiting(259_200.0, attempt(ended="failed"))) == Conclude("failed", why)


WATCHED: list[tuple[str, Attempt, Action | None, Action | None]] = [
    # what is seen, the attempt, what is done, what is done once it was cancelled
    (
        "not submitted",
        attempt(job="unknown", lease=NOBODY, started=False),
        Submit("t1"),
        Stop("t1"),
    ),
    (
        "its worker has just begun",
        attempt(started=False),
        Confirm("t1"),
        Confirm("t1"),
    ),
    ("just submitted", attempt(job="pending", lease=NOBODY, started=False), None, Stop("t1")),
    ("in the queue, for hours", attempt(job="pending", lease=NOBODY), None, Stop("t1")),
    ("Ray started it, no word yet", attempt(job="running", lease=NOBODY), None, Stop("t1")),
    ("Ray starts it", attempt(lease=NOBODY, started=False), Confirm("t1"), Confirm("t1")),
    ("in the queue, for days", attempt(job="pending", lease=SILENT), None, Stop("t1")),
    ("its worker never speaks", attempt(lease=SILENT), Stop("t1"), Stop("t1")),
    ("it never spoke and leaves", attempt(lease=WITHDRAWN), None, None),
    (
        "it never spoke, and Ray says for ever that it runs",
        attempt(lease=LeaseState(withdrawn=True, still_for=STALE_AFTER)),
        End("t1", "lost", "its job ran, and its worker did not speak within 300 s"),
        End("t1", "cancelled", "cancelled by grace"),
    ),
    ("it runs", attempt(), None, Stop("t1")),
    ("it runs and has finished", attempt(lease=RELEASED, finished=True), None, Stop("t1")),
    ("it will not leave", attempt(lease=LINGERING, finished=True), Stop("t1"), Stop("t1")),
    ("it runs and stands still", attempt(lease=STILL), Stop("t1"), Stop("t1")),
    (
        "it finished",
        attempt(job="succeeded", lease=RELEASED, finished=True),
        End("t1", "finished"),
        End("t1", "finished"),
    ),
    (
        "it was killed after its last word",
        attempt(job="failed", finished=True),
        End("t1", "finished"),
        End("t1", "finished"),
    ),
    (
        "it failed",
        attempt(job="failed", lease=RELEASED, failed="a digest"),
        End("t1", "failed", "a digest"),
        End("t1", "failed", "a digest"),
    ),
    (
        "it was killed",
        attempt(job="failed"),
        End("t1", "lost", "its job crashed"),
        End("t1", "cancelled", "cancelled by grace"),
    ),
    (
        "it died before it began",
        attempt(job="failed", lease=NOBODY),
        End("t1", "lost", "its job crashed"),
        End("t1", "cancelled", "cancelled by grace"),
    ),
    (
        "it lost its machines and says so",
        attempt(job="failed", lease=RELEASED, preempted="node 3 died"),
        End("t1", "lost", "node 3 died"),
        End("t1", "cancelled", "cancelled by grace"),
    ),
    (
        "it was stopped",
        attempt(job="stopped"),
        End("t1", "lost", "its job was stopped"),
        End("t1", "cancelled", "cancelled by grace"),
    ),
    (
        "it ended without a word",
        attempt(job="succeeded", lease=RELEASED),
        End("t1", "lost", "its job exited without a report"),
        End("t1", "cancelled", "cancelled by grace"),
    ),
    (
        "the head died before it began",
        attempt(job="unknown", lease=NOBODY),
        Submit("t1"),
        Stop("t1"),
    ),
    ("the head died, an orphan beats", attempt(job="unknown"), None, None),
    (
        "the head died, the orphan stands still",
        attempt(job="unknown", lease=STILL),
        End("t1", "lost", "no sign of life for 45 s"),
        End("t1", "cancelled", "cancelled by grace"),
    ),
    (
        "the head died, the orphan finished",
        attempt(job="unknown", lease=RELEASED, finished=True),
        End("t1", "finished"),
        End("t1", "finished"),
    ),
    ("Ray does not answer", attempt(job="unreachable", lease=STILL), None, None),
    ("Ray does not answer, nothing began", attempt(job="unreachable", lease=NOBODY), None, None),
]


@pytest.mark.parametrize(("seen", "open_attempt", "due", "_"), WATCHED)
def test_actions_for_an_open_attempt(
    seen: str, open_attempt: Attempt, due: Action | None, _: Action | None
) -> None:
    assert decide(facts(open_attempt)) == due, seen


@pytest.mark.parametrize(("seen", "open_attempt", "_", "due"), WATCHED)
def test_actions_for_an_open_attempt_after_a_cancel(
    seen: str, open_attempt: Attempt, _: Action | None, due: Action | None
) -> None:
    assert decide(facts(open_attempt, cancelled=BY_GRACE)) == due, seen


@pytest.mark.parametrize(
    ("job", "due"),
    [
        ("pending", End("t1", "cancelled", "cancelled by grace")),
        ("unknown", End("t1", "cancelled", "cancelled by grace")),
        ("stopped", End("t1", "cancelled", "cancelled by grace")),
        ("running", None),  # it leaves by itself in a moment
        ("unreachable", None),
    ],
)
def test_an_attempt_cancelled_in_the_queue_need_not_wait_for_devices(
    job: Job, due: Action | None
) -> None:
    open_attempt = attempt(job=job, lease=WITHDRAWN)
    assert decide(facts(open_attempt, cancelled=BY_GRACE)) == due


LOST = {"ended": "lost"}
OVER: list[tuple[str, Facts, Action | None]] = [
    ("nothing yet", facts(), Claim("t1")),
    (
        "cancelled before anything",
        facts(cancelled=BY_GRACE),
        Conclude("cancelled", "cancelled by grace"),
    ),
    (
        "voided",
        facts(voided=record.Voided(at=NOW, why="a push")),
        Conclude("voided", "a push"),
    ),
    ("one loss", facts(attempt(**LOST)), Claim("t2")),
    ("two losses", facts(attempt(**LOST), attempt("t2", **LOST)), Claim("t3")),
    (
        "three losses",
        facts(attempt(**LOST), attempt("t2", **LOST), attempt("t3", **LOST)),
        Conclude("failed", "3 attempts were lost; of the last one: why t3"),
    ),
    (
        "a loss, then cancelled",
        facts(attempt(**LOST), cancelled=BY_GRACE),
        Conclude("cancelled", "cancelled by grace"),
    ),
    ("a failure is not retried", facts(attempt(ended="failed")), Conclude("failed", "why t1")),
    ("it finished", facts(attempt(ended="finished")), Conclude("done")),
    (
        "it finished after a loss",
        facts(attempt(**LOST), attempt("t2", ended="finished")),
        Conclude("done"),
    ),
    (
        "it finished, then was cancelled",
        facts(attempt(ended="finished"), cancelled=BY_GRACE),
        Conclude("done"),
    ),
    (
        "three losses, of which each got further",
        facts(attempt(**LOST, saved=4), attempt("t2", **LOST, saved=8), attempt("t3", **LOST)),
        Claim("t4"),
    ),
    (
        "three losses after one that got further",
        facts(*(attempt(f"t{n}", **LOST, saved=4) for n in (1, 2, 3, 4))),
        Conclude(
            "failed",
            "4 attempts were lost, the last 3 of them without progress; of the last one: why t4",
        ),
    ),
    (
        "its machines were taken away, again and again",
        facts(*(attempt(f"t{n}", **LOST, taken=True) for n in range(1, 10))),
        Claim("t10"),
    ),
    (
        "its machines were taken away between three losses",
        facts(
            *(attempt(f"t{n}", **LOST, taken=n % 2 == 0) for n in range(1, 6)),
        ),
        Conclude(
            "failed",
            "5 attempts were lost, the last 3 of them without progress; of the last one: why t5",
        ),
    ),
    (
        "there is a result",
        facts(attempt(), result=record.Result(at=NOW, state="failed")),
        None,
    ),
]


@pytest.mark.parametrize(("seen", "known", "due"), OVER)
def test_actions_after_ended_attempts(seen: str, known: Facts, due: Action | None) -> None:
    assert decide(known) == due, seen


@pytest.mark.parametrize(
    ("known", "state"),
    [
        (facts(), "queued"),
        (facts(attempt(job="pending", lease=NOBODY, started=False)), "queued"),
        (facts(attempt(lease=WITHDRAWN, started=False)), "queued"),
        (facts(attempt()), "running"),
        (facts(attempt(**LOST), attempt("t2", job="pending", lease=NOBODY)), "running"),
        (facts(attempt(ended="finished")), "running"),
        (facts(attempt(), result=record.Result(at=NOW, state="cancelled")), "cancelled"),
    ],
)
def test_the_state_is_derived_from_what_is_seen(known: Facts, state: str) -> None:
    assert known.state == state


@pytest.mark.parametrize("attempts", [(), (attempt(ended="finished"),), (attempt(**LOST),)])
def test_a_plan_of_an_older_lab_is_not_run(attempts: tuple[Attempt, ...]) -> None:
    old = synthetic.execution(synthetic.plan(seeds=[0]).model_copy(update={"steps": {}}))
    why = "an older version of the lab made this plan; this version cannot run it"
    assert decide(Facts(old, attempts, None, None, None)) == Conclude("failed", why)
