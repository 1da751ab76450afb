"""Of `test_further.py` what needs a process, a socket or a compilation."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.lib import process_tree
from runner.store import artifacts, scratch_paths
from runner.store.store import Store
from runner.worker import shard_jobs
from tests.integration.runner.test_drive import HONEST, Life
from tests.integration.runner.test_execute import made, planned
from tests.stub_trainer import StubJob, StubRay, put
from tests.unit.runner.test_further import store as store  # a fixture
from tests.unit.runner.test_lost_steps import OWN, TRAINING, ends

MANY = 12  # attempts


# ── Attempts ─────────────────────────────────────────────────────────────────────────────────


def test_a_run_whose_worker_is_killed_again_and_again_ends_where_each_got_further(
    tmp_path: Path,
) -> None:
    life = Life(tmp_path, StubRay(pace=1, die_after={f"t{n}": 2 for n in range(1, MANY)}))
    facts = life.to_the_end()
    assert facts.result
    assert facts.result.state == "done"
    assert life.figures() == HONEST
    assert [life.ended(f"t{n}").how for n in (1, 2, 3, 4, 5, 6)] == ["lost"] * 6
    assert life.ended("t2").saved == {"train/slow,seed=0": 4}, (
        "what lay there, whoever had saved it"
    )
    assert life.ended("t12").saved == {}, "nobody asks that of one that finished"


def test_a_run_that_gets_no_further_three_times_has_failed_and_says_so(tmp_path: Path) -> None:
    life = Life(tmp_path, StubRay(pace=1, die_after={"t1": 3, "t2": 2}))

    life.until(lambda _: "t2.ended" in life.events())
    for name in ("t3", "t4", "t5"):
        life.ray.busy = True
        life.until(lambda facts: facts.attempts[-1].job == "pending")
        life.ray.kill(name)
        life.until(lambda _, name=name: f"{name}.ended" in life.events())
    life.ray.busy = False
    facts = life.to_the_end()
    assert facts.result
    assert facts.result.state == "failed"
    assert "5 attempts were lost, the last 3 of them without progress" in facts.result.why


def boast(job: StubJob, out: Path) -> None:
    """Metrics and folders of ever further steps, and no checkpoint in any of them."""
    at = int(job.spec.attempt.rpartition("t")[2])
    scratch = scratch_paths.of(out)
    saved = scratch / "checkpoints"
    (saved / str(at) / "params").mkdir(parents=True)
    put(saved / str(1000 + at) / "params" / "values", b"of a step that is not planned")
    if at < 4:
        (saved / "4").symlink_to(saved / str(1000 + at))
    line = b'{"step":%d,"loss":1,"grad_norm":1,"learning_rate":1,"tokens":%d}' % (at, at * 4096)
    put(scratch / "curve" / "000000.jsonl", line + b"\n")


def test_a_job_that_only_claims_to_get_further_is_not_begun_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = StubRay(pace=1)

    def train(job: StubJob, _: object, __: object, out: Path) -> Iterator[None]:
        boast(job, out)
        job.status = "failed"
        yield

    monkeypatch.setattr(ray, "_train", train)
    life = Life(tmp_path, ray)
    facts = life.to_the_end()
    assert facts.result
    assert "the last 3 of them without progress" in facts.result.why
    # Of the first one the text's tokens were there, which is further than nothing.
    assert len(facts.attempts) == 4


def test_files_of_own_code_beside_an_untrained_step_are_no_progress(
    tmp_path: Path, store: Store
) -> None:
    own = """
import os, signal
def boasts(config, inputs, out):
    n = len(list(out.parent.glob("*.scratch")))
    for name in (f"checkpoints/{n}/params", f"parts/{n:032x}"):
        os.makedirs(name)
        open(f"{name}/digests.json", "w").write("{}")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    declared = "title: T\nresources: {kind: cpu}\nsteps: {a: {do: own:boasts}}"
    plan = planned(tmp_path, store, declared, own=own)
    with pytest.raises(artifacts.MakingFailed, match="lost 3 times"):
        made(store, plan)


# ── A real one ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_training_that_is_killed_four_times_goes_on_to_the_same_bytes(
    tmp_path: Path, store: Store
) -> None:
    calm = Store(tmp_path / "calm")
    undisturbed = made(calm, planned(tmp_path, calm, TRAINING, own=OWN))
    plan = planned(tmp_path, store, TRAINING, own=OWN)
    step = plan.steps["train"]
    at = store.local(f"steps/{step.store}/{step.fingerprint[:16]}")

    def kill() -> None:
        for n in (1, 2, 3, 4):
            until = time.monotonic() + 60
            while not list(at.glob(f"{n}-*.scratch/checkpoints/{8 * n}")):
                assert time.monotonic() < until
                time.sleep(0.002)
            for fork in process_tree.children(shard_jobs._server.start().process.pid):
                os.kill(fork, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    disturbed = made(store, plan)
    killer.join()
    assert [how for _, how, _ in ends(store, plan, "train")] == ["lost"] * 4 + ["made"]
    assert disturbed["train"].manifest.files == undisturbed["train"].manifest.files
    (last,) = at.glob("5-*.scratch/curve/000000.jsonl")
    assert json.loads(last.read_text().splitlines()[0])["step"] > 32
