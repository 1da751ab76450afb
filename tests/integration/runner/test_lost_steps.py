"""Of `test_lost_steps.py` what needs a process, a socket or a compilation."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from runner.history import provenance
from runner.lib import process_tree
from runner.store import artifacts
from runner.store.store import Store
from runner.worker import shard_jobs
from tests.integration.runner.test_execute import made, planned
from tests.unit.runner.test_lost_steps import OWN, TRAINING, ends, one_step
from tests.unit.runner.test_lost_steps import store as store  # a fixture


def test_a_step_that_is_killed_twice_is_made_by_the_third_process(
    tmp_path: Path, store: Store
) -> None:
    plan = one_step(tmp_path, store, "unlucky")
    found = made(store, plan)["a"]
    assert set(found.manifest.files) == {"3.txt"}, "nothing of those that were killed"
    assert [how for _, how, _ in ends(store, plan)] == ["lost", "lost", "made"]
    assert next(ends(store, plan))[2].startswith("its process was ended by SIGKILL")


def test_a_step_that_is_killed_each_time_fails_after_three_processes_in_words(
    tmp_path: Path, store: Store
) -> None:
    plan = one_step(tmp_path, store, "killed")
    with pytest.raises(
        artifacts.MakingFailed, match=r"lost 3 times; the last time its process was "
    ):
        made(store, plan)
    assert [how for _, how, _ in ends(store, plan)] == ["lost", "lost", "lost", "failed"]
    stands = provenance.standing(store, plan.steps, {})["a"]
    assert stands.state == "failed before"
    assert "SIGKILL; the system does so where memory is out" in stands.why

    with pytest.raises(artifacts.MakingFailed, match="lost 3 times"):
        made(store, plan)
    assert len(list(ends(store, plan))) == 5, "the same execution does not begin to count anew"
    with pytest.raises(artifacts.MakingFailed, match="lost 3 times"):
        made(store, plan, "x2")
    assert [by for by, how, _ in ends(store, plan) if how == "lost"] == ["x1"] * 3 + ["x2"] * 3


def test_a_step_that_ends_by_itself_without_a_word_has_failed(tmp_path: Path, store: Store) -> None:
    plan = one_step(tmp_path, store, "leaves")
    with pytest.raises(artifacts.MakingFailed, match="its process ended with 3"):
        made(store, plan)
    assert [how for _, how, _ in ends(store, plan)] == ["failed"]


@pytest.mark.slow
def test_training_that_is_killed_goes_on_from_its_checkpoint_to_the_same_bytes(
    tmp_path: Path, store: Store
) -> None:
    calm = Store(tmp_path / "calm")
    undisturbed = made(calm, planned(tmp_path, calm, TRAINING, own=OWN))
    plan = planned(tmp_path, store, TRAINING, own=OWN)
    step = plan.steps["train"]
    at = store.local(f"steps/{step.store}/{step.fingerprint[:16]}")

    def kill() -> None:
        until = time.monotonic() + 60
        while not list(at.glob("1-*.scratch/checkpoints/8")):
            assert time.monotonic() < until
            time.sleep(0.005)
        server = shard_jobs._server.start().process.pid
        for fork in process_tree.children(server):  # the one that trains, and the one that waits
            os.kill(fork, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    disturbed = made(store, plan)
    killer.join()
    assert [how for _, how, _ in ends(store, plan, "train")] == ["lost", "made"]
    assert disturbed["train"].manifest.files == undisturbed["train"].manifest.files
    (second,) = at.glob("2-*.scratch/curve/000000.jsonl")
    assert json.loads(second.read_text().splitlines()[0])["step"] > 8, "not from the beginning"
