"""Whole lives of an execution, on a trainer that is a stub: nothing here needs Ray or JAX."""

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from runner.execution import effects, lifecycle
from runner.execution.lifecycle import Facts
from runner.history import provenance
from runner.schema import record
from runner.store import artifacts
from runner.store.leases import LeaseWatch
from runner.store.store import Store
from tests import stub_trainer, synthetic
from tests.stub_trainer import StubJob, StubRay, steady_bpb

EFFECT = [synthetic.prediction("< -0.05"), synthetic.prediction("> 0.5")]


class Life:
    """One execution, and what turns it: `turn` is one look and at most one action."""

    def __init__(
        self,
        root: Path,
        ray: StubRay,
        seeds: tuple[int, ...] = (0, 1, 2),
        limit: float | None = None,
    ) -> None:
        self.store = Store(root / "store")
        self.ray = ray
        arm = synthetic.planned_arm
        arms = {"slow": arm(steps=4, rate=3e-4), "fast": arm(steps=4)}
        plan = synthetic.plan(arms=arms, seeds=seeds, predictions=EFFECT)
        self.execution = synthetic.execution(plan).model_copy(update={"limit_seconds": limit})
        effects.begin(self.store, self.execution)
        self.now = synthetic.START
        self.monotonic = 0.0
        self.restart()

    def restart(self) -> None:
        """The process that turned the wheel died, and another one takes over."""
        self.store = Store(self.store.root)
        self.leases = LeaseWatch(self.store, lambda: self.monotonic)

    def turn(self) -> Facts:
        self.now += timedelta(seconds=1)
        self.monotonic += 1
        facts = effects.observe(self.store, self.ray.look, self.leases, self.execution.id, self.now)
        if action := lifecycle.decide(facts):
            effects.act(self.store, self.ray, facts, action, self.now)
        return facts

    def until(self, reached: Callable[[Facts], object], turns: int = 200) -> Facts:
        for _ in range(turns):
            if reached(facts := self.turn()):
                return facts
        raise AssertionError(f"not reached in {turns} turns; {self.events()}")

    def to_the_end(self) -> Facts:
        return self.until(lambda facts: facts.result)

    def events(self) -> list[str]:
        return record.names(self.store, f"executions/{self.execution.id}")

    def ended(self, attempt: str) -> record.Ended:
        path = f"executions/{self.execution.id}/{attempt}.ended"
        return record.require(self.store, path, record.Ended)

    def cancel(self) -> None:
        cancelled = record.Cancelled(at=self.now, by="grace")
        record.write(self.store, f"executions/{self.execution.id}/cancelled", cancelled)

    def runs(self) -> dict[str, record.Run]:
        return {
            record.run_name(arm, seed): record.require(
                self.store,
                f"runs/{self.execution.id}.{record.run_name(arm, seed)}",
                record.Run,
            )
            for arm, seed in self.execution.plan.runs()
        }

    def figures(self) -> dict[str, float | None]:
        return {
            name: run.evaluated.bpb if run.evaluated else None for name, run in self.runs().items()
        }


HONEST = {
    record.run_name(arm, seed): steady_bpb(arm, seed)
    for arm in ("slow", "fast")
    for seed in range(3)
}


TRAINED = {f"train/{arm},seed={seed}" for arm in ("slow", "fast") for seed in range(3)}


# ── The way of it ────────────────────────────────────────────────────────────────────────────


def test_an_execution_ends_with_figures_curves_and_verdicts(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(pace=1))
    facts = life.to_the_end()
    assert facts.result
    assert facts.result.state == "done"
    assert facts.result.refused == ()
    assert [verdict.outcome for verdict in facts.result.verdicts] == ["confirmed", "refuted"]
    assert life.figures() == HONEST
    for run in life.runs().values():
        assert (run.state, run.steps, run.tokens) == ("finished", 4, 4 * 16 * 256)
        assert run.model_flops == life.execution.plan.arms[run.arm].model_flops
        assert [step for step, _ in run.curve] == [1, 2, 3, 4]
        assert run.tokens_per_second == pytest.approx(50_000)
    assert life.ended("t1").receipt == stub_trainer.RECEIPT
    assert life.events() == [
        *("execution", "result", "t1.claimed", "t1.ended", "t1.started"),
    ]


def test_a_step_that_was_skipped_counts_and_is_left_out_of_the_curve(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(pace=1, skip={"fast.s0": 3, "fast.s1": 4}))
    assert life.to_the_end().state == "done"
    runs = life.runs()
    assert [step for step, _ in runs["fast.s0"].curve] == [1, 2, 4]
    assert [step for step, _ in runs["fast.s1"].curve] == [1, 2, 3]
    assert [runs[name].steps for name in ("fast.s0", "fast.s1")] == [4, 4]
    assert [runs[f"fast.s{seed}"].skipped for seed in (0, 1, 2)] == [1, 1, 0]
    assert life.ended("t1").refused == ()


def test_a_run_without_any_loss_has_no_curve(tmp_path: Path) -> None:
    lost = dict.fromkeys(("t1", "t2", "t3", "t4"), 1)
    life = Life(tmp_path, StubRay(pace=1, die_after=lost, skip={"slow.s0": 1}, saves_every=4))
    assert life.to_the_end().state == "failed"
    assert life.runs()["slow.s0"].curve == ()


def test_states_follow_each_other_as_people_expect(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(pace=1))
    seen: list[str] = []
    while not seen or seen[-1] != "done":
        state = life.turn().state
        seen += [] if seen[-1:] == [state] else [state]
    assert seen == ["queued", "running", "done"]


def test_a_process_that_dies_after_any_turn_leaves_nothing_that_the_next_cannot_finish(
    tmp_path: Path,
) -> None:
    life = Life(tmp_path, StubRay(pace=3))
    while not (facts := life.turn()).result:
        life.restart()
    assert facts.result.state == "done"
    assert life.figures() == HONEST
    assert len(life.ray.submissions) == 1


def test_two_processes_that_turn_the_same_execution_have_one_effect(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(pace=2))
    other_leases = LeaseWatch(life.store)
    for _ in range(100):
        # Both look before either acts.
        look = [
            effects.observe(Store(life.store.root), life.ray.look, leases, life.execution.id)
            for leases in (life.leases, other_leases)
        ]
        for facts in look:
            if action := lifecycle.decide(facts):
                effects.act(Store(life.store.root), life.ray, facts, action, life.now)
    assert "result" in life.events()
    assert life.figures() == HONEST
    assert [name.partition(".")[2][:2] for name in life.ray.submissions] == ["t1"]


# ── Losses ───────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_dies_is_followed_by_one_that_resumes(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(pace=1, die_after={"t1": 6}))
    life.to_the_end()
    assert life.ended("t1").how == "lost"
    assert life.ended("t2").how == "finished"
    assert life.figures() == HONEST
    # t1 took 6 of the 24 steps and checkpointed each.
    assert life.ray.of("t2").steps == 18
    assert all([step for step, _ in run.curve] == [1, 2, 3, 4] for run in life.runs().values())


def test_three_losses_fail_the_execution_and_keep_what_was_seen(tmp_path: Path) -> None:
    lost = {"t1": 3, "t2": 2, "t3": 1, "t4": 1}
    life = Life(tmp_path, StubRay(pace=1, die_after=lost, saves_every=4))
    facts = life.to_the_end()
    assert facts.result
    assert facts.result.state == "failed"
    assert "4 attempts were lost, the last 3 of them without progress" in facts.result.why
    assert {name: run.state for name, run in life.runs().items()} == dict.fromkeys(
        HONEST, "unfinished"
    )
    assert sum(run.steps for run in life.runs().values()) == 3
    assert all(verdict.outcome == "inconclusive" for verdict in facts.result.verdicts)


def test_a_running_job_that_ray_forgot_is_waited_for(
    tmp_path: Path,
) -> None:
    life = Life(tmp_path, StubRay(pace=0))
    life.until(lambda facts: facts.attempts and facts.attempts[0].job == "pending")
    life.ray.advance(3)
    life.until(lambda facts: facts.state == "running")
    life.ray.forget()
    lost_at = life.monotonic
    life.until(lambda facts: facts.attempts[0].ended)
    assert life.monotonic - lost_at >= 45
    assert life.ended("t1").why == "no sign of life for 45 s"
    life.ray.pace = None
    assert life.to_the_end().state == "done"
    assert life.figures() == HONEST


def test_a_queued_job_that_ray_forgot_is_submitted_again(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay())
    life.ray.busy = True
    life.until(lambda facts: facts.attempts and facts.attempts[0].job == "pending")
    life.ray.forget()
    life.until(lambda facts: facts.attempts[0].job == "pending")
    life.ray.busy = False
    life.to_the_end()
    assert life.figures() == HONEST
    assert len(set(life.ray.submissions)) == 1
    assert len(life.ray.submissions) == 2


def test_nothing_is_decided_while_ray_is_silent(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(pace=1))
    life.until(lambda facts: facts.state == "running")
    life.ray.reachable = False
    before = life.events()
    for _ in range(100):
        life.turn()
    assert life.events() == before
    life.ray.reachable = True
    life.to_the_end()
    assert life.figures() == HONEST
    assert life.ended("t1").how == "finished"


def test_a_run_that_diverges_fails_alone_and_says_where(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(diverge={"fast.s1": 3}))
    facts = life.to_the_end()
    assert life.figures() == {**HONEST, "fast.s1": None}
    failed = life.runs()["fast.s1"]
    assert (failed.state, failed.steps) == ("failed", 2)
    assert [step for step, _ in failed.curve] == [1, 2], "a run that failed keeps its curve"
    assert "step 3" in failed.why
    assert facts.result
    assert facts.result.state == "done"
    assert {verdict.outcome for verdict in facts.result.verdicts} == {"inconclusive"}
    assert all("incomplete" in verdict.why for verdict in facts.result.verdicts)


# ── Cancelling ───────────────────────────────────────────────────────────────────────────────


def test_a_cancelled_job_is_stopped_and_scores_nothing(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(pace=1))
    life.until(lambda facts: facts.state == "running")
    life.cancel()
    facts = life.to_the_end()
    assert facts.result
    assert (facts.result.state, facts.result.why) == ("cancelled", "cancelled by grace")
    assert facts.result.verdicts == ()
    assert life.ray.of("t1").status == "stopped"
    assert not any(life.figures().values())


def test_a_job_beyond_its_limit_is_stopped_from_outside(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(pace=1), limit=10.0)
    facts = life.to_the_end()
    assert facts.result
    words = "stopped at its time limit of 0 min 10 s"
    assert (facts.result.state, facts.result.why) == ("failed", words)
    assert life.ray.of("t1").status == "stopped"
    assert 10 <= facts.spent < 15
    life.turn()
    assert life.events() == ["execution", "result", "t1.claimed", "t1.ended", "t1.started"]


@pytest.mark.parametrize("limit", [None, 10.0])
def test_a_step_that_ends_with_a_cancelled_or_stopped_execution_was_not_lost(
    tmp_path: Path, limit: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path, StubRay(pace=1), limit=limit)
    step = next(step for step in life.execution.plan.steps.values() if step.do == "train")
    stop = life.ray.stop

    def build(_: Path) -> None:
        raise artifacts.MakerLost("it got SIGTERM")

    def stop_and_end(folder: str) -> None:
        stop(folder)
        fingerprint, by = step.fingerprint, life.execution.id
        with pytest.raises(artifacts.MakingFailed):
            artifacts.make(life.store, step.store, fingerprint, build, {}, by=by, most_lost=1)

    monkeypatch.setattr(life.ray, "stop", stop_and_end)
    life.until(lambda facts: facts.state == "running")
    if limit is None:
        life.cancel()
    result = life.to_the_end().result
    assert artifacts.history(life.store, step.store, step.fingerprint)[0][1].how == "lost"
    assert result.state == ("failed" if limit else "cancelled")
    assert result.lost == ()


def test_attempts_spend_one_limit_together_and_waiting_for_devices_spends_nothing(
    tmp_path: Path,
) -> None:
    life = Life(tmp_path, StubRay(pace=1), limit=10.0)
    life.ray.busy = True
    for _ in range(40):
        life.turn()
    life.ray.busy = False
    life.until(lambda facts: facts.state == "running")
    for _ in range(6):
        life.turn()
    life.ray.of("t1").status = "failed"
    facts = life.to_the_end()
    assert facts.result
    assert "at its time limit" in facts.result.why
    assert "t2.ended" in life.events()
    assert 10 <= facts.spent < 15


def test_a_job_that_runs_and_never_speaks_is_lost_after_five_minutes(tmp_path: Path) -> None:
    """ray-project/ray#65037: the worker died before its first sign of life;
    ray-project/kuberay#2154: its driver did, and Ray says RUNNING."""
    life = Life(tmp_path, StubRay(pace=1))
    life.ray.silent = True
    facts = life.until(lambda facts: facts.attempts and facts.attempts[-1].ended, turns=400)
    assert facts.state == "running"
    ended = life.ended("t1")
    assert (ended.how, ended.why) == (
        "lost",
        "its job ran, and its worker did not speak within 300 s",
    )
    life.ray.silent = False
    facts = life.to_the_end()
    assert facts.result
    assert facts.result.state == "done"
    assert life.runs().keys() == HONEST.keys()


def test_a_job_that_never_speaks_uses_up_its_time_limit(tmp_path: Path) -> None:
    """ray-project/ray#21974: what has finished goes on "running"."""
    life = Life(tmp_path, StubRay(pace=1), limit=60.0)
    life.ray.silent = True
    facts = life.until(lambda facts: facts.result, turns=200)
    assert facts.result
    assert "at its time limit" in facts.result.why


def test_what_ray_does_not_begin_within_its_limit_fails(tmp_path: Path) -> None:
    """ray-project/ray#40443: "no ray driver" without end; skypilot-org/skypilot#617: INIT."""
    life = Life(tmp_path, StubRay(pace=1))
    life.execution = life.execution.model_copy(update={"id": "x2", "pending_limit_seconds": 60.0})
    effects.begin(life.store, life.execution)
    life.ray.busy = True
    facts = life.until(lambda facts: facts.result, turns=80)
    assert facts.result
    assert facts.result.why == "Ray found no room for it within 1 min 0 s, so it never ran"
    life.ray.busy = False
    life.ray.finish()
    assert not (life.store.root / "work" / life.ray.submissions[0] / "out").exists()


def test_a_job_cancelled_in_the_queue_ends_at_once_and_never_begins(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay())
    life.ray.busy = True
    life.until(lambda facts: facts.attempts and facts.attempts[0].job == "pending")
    life.cancel()
    assert life.to_the_end().state == "cancelled"
    life.ray.busy = False
    life.ray.finish()
    assert not (life.store.root / "work" / life.ray.submissions[0] / "out").exists()


def test_runs_trained_before_a_cancellation_are_kept_but_not_scored(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(pace=1))
    life.until(
        lambda facts: len(TRAINED & provenance.step_ends(life.store, facts.execution).keys()) == 5
    )
    life.cancel()
    assert life.to_the_end().state == "cancelled"
    assert [run.state for run in life.runs().values()].count("finished") == 5
    assert not any(life.figures().values())


# ── Lies ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("lie", "named"),
    [
        (stub_trainer.false_metrics, "does not fit the plan"),
        (stub_trainer.odd_names, "9\\xff.jsonl, line 1: "),
        (stub_trainer.another_spec, "spec.json: it is not the one that was claimed"),
    ],
)
def test_a_lie_beside_honest_claims_is_named_and_changes_nothing(
    tmp_path: Path, lie: Callable[[StubJob], None], named: str
) -> None:
    honest = Life(tmp_path / "honest", StubRay())
    honest.to_the_end()
    life = Life(tmp_path / "lying", StubRay(tamper=lie))
    facts = life.to_the_end()
    assert facts.result
    assert facts.result.state == "done"
    assert any(named in line for line in facts.result.refused), facts.result.refused
    assert life.figures() == HONEST
    for name, run in life.runs().items():
        assert run.curve == honest.runs()[name].curve
        assert run.model_flops == honest.runs()[name].model_flops


@pytest.mark.parametrize(
    ("lie", "named"),
    [
        (stub_trainer.unknown_keys, "better Extra inputs are not permitted"),
        (stub_trainer.other_figures, "run again: it is made anew"),
        (stub_trainer.fewer_tokens, "scored 1 tokens instead of"),
        (stub_trainer.linked_files, "run again: it is made anew"),
        (stub_trainer.pipes, "not a regular file"),
        (stub_trainer.swapped_models, "not those that were scored"),
    ],
)
def test_scores_that_are_not_believed_are_no_figures(
    tmp_path: Path, lie: Callable[[StubJob], None], named: str
) -> None:
    life = Life(tmp_path, StubRay(tamper=lie))
    facts = life.to_the_end()
    assert facts.result
    said = [*facts.result.refused, *life.ended("t1").refused, life.ended("t1").why]
    said += [end.why for end in life.ended("t1").steps.values()]
    assert any(named in line for line in said), said
    assert not any(life.figures().values())
    assert all(run.steps <= 4 for run in life.runs().values())
    assert {verdict.outcome for verdict in facts.result.verdicts} == {"inconclusive"}


@pytest.mark.parametrize(
    ("lie", "named"),
    [
        (stub_trainer.wrong_nonce, "wrong nonce"),
        (stub_trainer.endless_receipt, "receipt: Dictionary should have at most 40 items"),
    ],
)
def test_an_attempt_whose_word_is_refused_has_failed(
    tmp_path: Path, lie: Callable[[StubJob], None], named: str
) -> None:
    life = Life(tmp_path, StubRay(tamper=lie))
    facts = life.to_the_end()
    assert facts.result
    assert facts.result.state == "failed"
    assert named in life.ended("t1").why


def test_a_curve_of_more_steps_than_were_planned_is_not_shown(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(tamper=stub_trainer.boast))
    facts = life.to_the_end()
    assert facts.result
    assert any("more than 4 lines" in line for line in facts.result.refused)
    assert all(run.curve == () for run in life.runs().values())
    assert not any(life.figures().values()), "nor is what was scored what lies there"


def test_every_planned_metric_is_in_the_record_of_a_run(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(by_metric=lambda _, seed, __: 9.0 + seed))
    life.to_the_end()
    assert life.figures() == HONEST
    run = life.runs()["fast.s1"]
    assert run.measured["weights/output_norm"].value == 10.0
    assert run.measured["eval/bpb"].items == 20


def test_a_metric_that_was_not_planned_is_no_score(tmp_path: Path) -> None:
    ray = StubRay(by_metric=lambda *_: 9.0, tamper=stub_trainer.another_metric)
    life = Life(tmp_path, ray)
    facts = life.to_the_end()
    assert facts.result
    metrics = {"eval/bpb", "weights/output_norm"}
    assert all(run.measured.keys() == metrics for run in life.runs().values())


def test_a_thousand_names_of_one_flood_are_one_refusal(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(tamper=stub_trainer.flood_of_metrics))
    facts = life.to_the_end()
    assert facts.result
    assert facts.result.state == "done"
    assert life.figures() == HONEST
    assert len(facts.result.refused) == len(HONEST)


@pytest.mark.parametrize("kind", ["pipe", "folder", "loop"])
def test_odd_files_in_place_of_a_lease_start_block_nothing(tmp_path: Path, kind: str) -> None:
    life = Life(tmp_path, StubRay(pace=0))
    life.until(lambda facts: facts.attempts and facts.attempts[0].job == "pending")
    life.ray.advance(1)
    lease = life.store.local(f"leases/{life.ray.submissions[0]}")
    shutil.rmtree(lease)
    lease.mkdir()
    if kind == "pipe":
        os.mkfifo(lease / "start.json")
    elif kind == "folder":
        (lease / "start.json").mkdir()
    elif kind == "loop":
        (lease / "start.json").symlink_to("start.json")
    facts = life.turn()
    assert (facts.attempts[0].lease.started, facts.attempts[0].lease.withdrawn) == (True, False)
    life.ray.of("t1").status = "failed"
    life.until(lambda facts: facts.attempts[0].ended)
    assert life.ended("t1").how == "lost"


def test_a_spec_that_was_changed_is_not_submitted(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay())
    life.until(lambda facts: "t1.claimed" in life.events() and facts.attempts)
    # Undo the submission as a crash would: the job is unknown, its spec lies there changed.
    life.ray.forget()
    spec = next(life.store.local("work").glob("*.t1-*/spec.json"))
    spec.write_bytes(spec.read_bytes().replace(b'"train"', b'"other"', 1))
    life.restart()
    with pytest.raises(effects.StoreError, match="it was changed"):
        life.until(lambda facts: facts.result, turns=3)
