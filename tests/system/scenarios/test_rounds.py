"""The loop that does the work: it comes around however much there is to do, and says when it does
not."""

import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.controller import catch_up
from bot.controller.observer import Observer
from bot.controller.paced_actions import MAX_AT_ONCE
from bot.controller.reconciler import LIST_EVERY, ONE_ROUND, Reconciler
from bot.fake_github.world.faults import Fault
from bot.inbox import deliveries
from bot.model.thread import ThreadId
from bot.service import actions_job, health
from bot.telemetry import logs, metrics
from runner.store.backends import StoreFault
from tests.scenarios.lab import Lab, a_lab
from tests.stub_trainer import StubRay


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        lab.preregister()
        yield lab


def bot_of(lab: Lab) -> Reconciler:
    assert isinstance(lab.bot, Reconciler)
    return lab.bot


def busy(lab: Lab, monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[int]:
    """Three threads that are due again after two seconds, and take so long to look at."""
    looks: list[int] = []

    def look(id: ThreadId) -> timedelta:
        looks.append(id.number)
        assert len(looks) < 1000, "the round does not end"
        lab.sleep(seconds)
        return timedelta(seconds=2)

    bot = bot_of(lab)
    monkeypatch.setattr(bot, "_look", look)
    for number in (1, 2, 3):
        bot.wake(ThreadId(lab.sandbox.world.repository_id, number))
    return looks


def test_a_round_ends_however_many_threads_are_due(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot, looks = bot_of(lab), busy(lab, monkeypatch, seconds=1.0)
    began = lab.monotonic()
    assert bot.work() == 0.0
    assert lab.monotonic() - began <= ONE_ROUND + 1
    for _ in range(4):
        bot.work()
    assert {looks.count(number) for number in (1, 2, 3)} <= {8, 9}  # each has its turn


def test_deliveries_of_another_process_are_found_under_load(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot, looks = bot_of(lab), busy(lab, monkeypatch, seconds=1.0)
    lab.gate = None
    lab.clock.advance(1)
    lab.sandbox.comment("sam", 1, "/help")
    headers, body = lab.undelivered[-1]
    event = actions_job.Event(headers["X-GitHub-Event"], json.loads(body), "another-1")
    actions_job.keep(lab.store, event, lab.sandbox.world.repository_id)
    before = looks.count(1)
    listed: list[float] = []
    real = deliveries.waiting

    def waiting(*given: Any) -> Any:
        listed.append(lab.monotonic())
        return real(*given)

    monkeypatch.setattr(deliveries, "waiting", waiting)
    for _ in range(6):
        bot.work()
    assert listed
    assert max(listed) - min(listed) >= 2 * LIST_EVERY
    assert looks.count(1) > before


def test_a_job_of_actions_ends_in_its_time_however_much_there_is_to_do(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot = bot_of(lab)
    busy(lab, monkeypatch, seconds=1.0)
    began = lab.monotonic()
    ended = actions_job.work(bot, may_take=60, monotonic=lab.monotonic, sleep=lab.sleep)
    assert ended == "time is over"
    assert lab.monotonic() - began <= 60 + 2 * ONE_ROUND


def test_the_loop_comes_around_during_a_strangers_flood(lab: Lab) -> None:
    bot = bot_of(lab)
    bot._github._between = 1.0  # as between GitHub's writes
    longest, said = 0.0, 0
    for n, login in enumerate(lab.strangers(10)):
        lab.sandbox.comment(login, 1, f"/retry x{n}")
    while said < 10:
        before = lab.monotonic()
        wait = bot.come_around()
        longest = max(longest, lab.monotonic() - before)
        lab.sleep(wait or 1.0)
        said = sum("belongs on the pull request" in body for body in lab.comments(1))
    assert longest <= ONE_ROUND + MAX_AT_ONCE


def test_a_full_disk_is_seen_in_health_figures_and_words(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bot = bot_of(lab)
    bot.come_around()
    assert bot.leads
    loop = health.Loop(
        lambda: True, lambda: bot.came_around, lambda: bot.leads, lambda: None, lab.monotonic
    )
    stumbles = _stumbles()
    caplog.set_level(logging.CRITICAL)
    with monkeypatch.context() as full:
        full.setattr(lab.store._lab, "put", _no_space)
        for _ in range(70):
            lab.sleep(10)
            bot.come_around()
        assert not bot.leads
        assert "stood still" in str(health.unwell(loop))
        assert _stumbles() - stumbles > 50
    bot.come_around()
    assert bot.leads
    assert health.unwell(loop) is None


def _no_space(*_: object, **__: object) -> None:
    raise StoreFault("No space left on device")


def _stumbles() -> float:
    return float(metrics.STUMBLES._value.get())


def test_a_sweep_happens_while_there_is_much_to_do(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.sweep_every = catch_up.EVERY
    lab.die()
    lab.settle()
    bot = bot_of(lab)
    busy(lab, monkeypatch, seconds=1.0)
    lab.sandbox.faults.add(Fault("status_before", "GET", r"/issues/comments$", times=1))
    until = lab.monotonic() + 2 * catch_up.EVERY.total_seconds()
    before = catch_up.last_at(lab.store, lab.sandbox.world.repository_id)
    while lab.monotonic() < until:
        lab.sleep(max(bot.come_around() or 1.0, 60.0))
    assert catch_up.last_at(lab.store, lab.sandbox.world.repository_id) != before


def test_the_eyes_on_a_command_are_logged_with_its_delivery(lab: Lab) -> None:
    seen: dict[str, str] = {}

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen[record.getMessage()] = str(logs._about.get())

    log, keeps = logging.getLogger("regatta"), Keeps()
    before = log.level
    log.addHandler(keeps)
    log.setLevel(logging.INFO)
    try:
        lab.say("sam", 1, "/help")
    finally:
        log.removeHandler(keeps)
        log.setLevel(before)
    (eyes,) = [about for words, about in seen.items() if words.endswith(".eyes")]
    told = [name for name in lab.records("handled") if name.startswith("700001/1/")]
    assert any(name.rpartition("/")[2].removesuffix(".json") in eyes for name in told)


def test_an_execution_that_has_ended_is_read_once_however_often_its_thread_is_looked_at(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.trainer.pace = None
    pull = lab.propose()
    lab.say("grace", pull, "/run")
    read: list[str] = []
    own = Observer._seen
    monkeypatch.setattr(Observer, "_seen", lambda self, id: read.append(id) or own(self, id))
    lab.say("sam", pull, "/status")
    lab.say("sam", pull, "/status")
    assert read == []
    lab.die()
    lab.say("sam", pull, "/status")
    assert "done" in lab.comments(pull)[-1].lower()
    assert len(read) == len(set(read)) == 1
