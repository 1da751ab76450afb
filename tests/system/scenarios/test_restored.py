"""The bot is started on yesterday's backup of its store."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.controller import catch_up
from bot.fake_github.world.faults import Fault
from runner.schema import record
from runner.schema.record import execution_id
from tests.scenarios.lab import EXPERIMENT, Lab, a_lab
from tests.stub_trainer import StubRay

FILE = "experiments/warm/experiment.yaml"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        lab.preregister()
        lab.propose()
        lab.sweep_every = catch_up.EVERY
        lab.die()
        lab.settle()
        yield lab


def back_up(lab: Lab) -> None:
    shutil.copytree(lab.root / "store", lab.root / "backup")


def restore(lab: Lab) -> None:
    """The store burns; a day later the bot is started on its copy."""
    lab.die()
    lab.clock.advance(24 * 3600)
    shutil.rmtree(lab.root / "store")
    shutil.copytree(lab.root / "backup", lab.root / "store")


def turn(lab: Lab, seconds: int) -> None:
    for _ in range(seconds):
        if lab.bot is None:
            lab.start()
        assert lab.bot
        lab.bot.work()
        lab.sleep(1)


def begin(lab: Lab) -> None:
    lab.clock.advance(31)
    lab.sandbox.comment("grace", 2, "/run")
    turn(lab, 30)
    assert len(lab.trainer.submissions) == 1


def test_a_restored_store_launches_and_posts_nothing_again(lab: Lab) -> None:
    back_up(lab)
    begin(lab)
    lab.trainer.pace = None
    lab.settle()
    before, launched = lab.comments(2), list(lab.trainer.submissions)
    restore(lab)
    lab.settle()
    new = lab.comments(2)[len(before) :]
    assert len(new) == 1
    assert "Please repeat what you still want" in new[0]
    assert lab.comments(2)[: len(before)] == before
    assert lab.trainer.submissions == launched
    lab.die()
    lab.clock.advance(7200)
    lab.settle()
    assert len(lab.comments(2)) == len(before) + 1


def test_jobs_without_a_record_are_stopped_and_named(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    back_up(lab)
    begin(lab)
    (folder,) = lab.trainer.submissions
    lab.trainer.advance(1)
    assert lab.trainer.jobs[folder].status == "running"
    restore(lab)
    # What jobs read and write lies in the store as well: this one goes on in a folder that is gone.
    lab.settle()
    assert lab.trainer.jobs[folder].status == "stopped"
    assert f"the job {folder} is in Ray and in no record" in caplog.text


def test_a_job_of_another_store_is_left_alone(lab: Lab) -> None:
    begin(lab)
    real = lab.trainer.listed
    lab.trainer.listed = lambda: [  # type: ignore[method-assign]
        type(one)(f"{execution_id('another')}.t1-00ff", store)
        for one in real()
        for store in ("0123456789abcdef", "")
    ]
    stopped: list[str] = []
    lab.trainer.stop = stopped.append  # type: ignore[method-assign]
    lab.die()
    turn(lab, 60)
    assert stopped == []


def test_an_approval_of_the_backup_is_not_used_after_it(lab: Lab) -> None:
    lab.trainer.reachable = False
    lab.clock.advance(31)
    lab.sandbox.comment("grace", 2, "/run")
    turn(lab, 20)
    back_up(lab)
    lab.sandbox.comment("sam", 2, "/help")
    turn(lab, 20)
    restore(lab)
    lab.trainer.reachable = True
    lab.settle()
    assert lab.trainer.submissions == []
    results = [f for p, f in lab.records("executions").items() if p.endswith("result.json")]
    assert [result["state"] for result in results] == ["voided"]


def test_commands_after_a_restoration_work(lab: Lab) -> None:
    back_up(lab)
    path = {FILE: EXPERIMENT.replace("0.003,", "0.004,").encode()}
    lab.sandbox.commit("ada", "warm", path, "Other")
    lab.settle()
    shown = [body for body in lab.comments(2) if "regatta: plan." in body]
    assert len(shown) == 2
    restore(lab)
    lab.settle()
    lab.clock.advance(1)
    path = {FILE: EXPERIMENT.replace("0.003,", "0.005,").encode()}
    lab.sandbox.commit("ada", "warm", path, "A third")
    lab.settle()
    plans = lab.records("plans")
    assert sorted(plan["n"] for plan in plans.values()) == [1, 3]
    assert sum("regatta: plan.3" in body for body in lab.comments(2)) == 1
    lab.trainer.pace = None
    lab.clock.advance(31)
    lab.say("grace", 2, "/run")
    assert len(lab.trainer.submissions) >= 1


def test_a_start_with_whole_records_restores_nothing(lab: Lab) -> None:
    begin(lab)
    lab.trainer.pace = None
    lab.settle()
    for _ in range(3):
        lab.die()
        lab.clock.advance(5000)
        lab.settle()
    assert lab.records("restored") == {}


def test_nothing_is_done_before_it_is_known_what_was_lost(lab: Lab) -> None:
    back_up(lab)
    begin(lab)
    restore(lab)
    lab.start()
    lab.sandbox.faults.add(Fault("status_before", "GET", r"/issues/comments$", times=200))
    before = lab.comments(2)
    turn(lab, 60)
    assert lab.comments(2) == before
    lab.sandbox.faults.clear()
    lab.settle()
    assert len(lab.comments(2)) == len(before) + 1
    assert record.names(lab.store, "restored/700001") == ["2"]
