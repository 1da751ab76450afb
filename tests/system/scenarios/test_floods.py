"""Floods: strangers command, open and push as fast as they can, and nobody else waits for that.

Time passes as on GitHub: each request takes a while, and between two writes there is a second. What
people do happens at its moment, whatever the bot does then.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bot.controller import write_log
from bot.controller.reconciler import Reconciler
from bot.controller.write_budget import LIMITS, POOL, Rank
from bot.github import GitHub
from bot.github.connection import Line
from bot.telemetry import metrics
from runner.publish import charts
from tests.scenarios.lab import EXPERIMENT, TEXT, Lab, a_lab, form_body
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_story import FILE, PIXEL, results

REQUEST = 0.15  # seconds
PROMISED = 3.0  # seconds from a maintainer's command to its 👀


class Flood:
    """A lab, what will happen to it and when, and all writes."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.coming: list[tuple[float, Callable[[], object]]] = []
        self.writes: list[tuple[float, Rank]] = []
        self.began = lab.monotonic()
        self.ends: list[float] = []

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        self.coming.append((self.began + seconds, act))
        self.coming.sort(key=lambda one: one[0])

    def sleep(self, seconds: float) -> None:
        """Time passes, and what happens in it happens."""
        until = self.lab.monotonic() + seconds
        while self.coming and self.coming[0][0] <= until:
            at, act = self.coming.pop(0)
            self.lab.clock.advance(max(0.0, at - self.lab.monotonic()))
            act()
        self.lab.clock.advance(max(0.0, until - self.lab.monotonic()))

    def start(self) -> None:
        self.lab.start()
        assert isinstance(self.lab.bot, Reconciler)
        self.lab.bot._github._between = 1.0

    def until(self, seconds: float) -> None:
        """The bot works until then."""
        while (now := self.lab.monotonic()) < self.began + seconds:
            bot = self.lab.bot
            assert isinstance(bot, Reconciler)
            wait = bot.come_around()
            coming = [at - now for at, _ in self.coming[:1]]
            self.sleep(max(0.05, min([1.0 if wait is None else wait, 1.0, *coming])))
            assert not bot._failures
            if self.ends and self.ends[0] <= self.lab.monotonic():
                self.ends.pop(0)
                self.lab.die()
                self.start()

    def wait_for(self, who: str, body: str) -> float:
        """Seconds from somebody's comment to the bot's 👀."""
        (comment,) = [
            one
            for issue in self.lab.sandbox.world.issues.values()
            for one in issue.comments
            if (one.user.login, one.body) == (who, body)
        ]
        eyes = [one.created_at for one in comment.reactions if one.content == "eyes"]
        return (eyes[0] - comment.created_at).total_seconds() if eyes else float("inf")

    def says(self, at: float, who: str, number: int, body: str) -> None:
        self.at(at, lambda: self.lab.sandbox.comment(who, number, body))

    def dies(self, at: float) -> None:
        """The bot's process ends between two rounds, and another one begins."""
        self.ends.append(self.began + at)


@pytest.fixture
def flood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flood]:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, StubRay(pace=4)) as lab:
        lab.preregister()
        lab.propose()
        made = Flood(lab)
        real = Line._exchange

        def slow(line: Line, *given: Any) -> Any:
            made.sleep(REQUEST)
            return real(line, *given)

        monkeypatch.setattr(Line, "_exchange", slow)
        monkeypatch.setattr(Lab, "sleep", lambda _, seconds: made.sleep(seconds))
        lab.die()
        made.start()
        real_add = write_log.WriteLog.add

        def add(log: write_log.WriteLog, at: datetime, cause: Any) -> None:
            made.writes.append((lab.monotonic(), cause.rank))
            real_add(log, at, cause)

        monkeypatch.setattr(write_log.WriteLog, "add", add)
        made.until(5)
        made.began = lab.monotonic()
        yield made


def most(flood: Flood, span: float, rank: Rank) -> int:
    """The most writes of this rank and those below it in any such span."""
    times = [at for at, one in flood.writes if one >= rank]
    return max((sum(at <= other < at + span for other in times) for at in times), default=0)


def assert_shares(flood: Flood) -> None:
    for span, limit in LIMITS:
        for rank in Rank:
            assert most(flood, span, rank) <= limit * POOL[rank], (span, rank)


COMMANDS = (
    "/status",
    "/retry x{n}",
    "/help",
    "/cancel",
    "/run",
    "/plan",
    "/reproduce x{n}",
    "/runn",
)


@pytest.mark.parametrize(
    ("on", "minutes"),  # on an issue, and on the maintainer's own pull request
    [(1, 1.5), (2, 1.5), pytest.param(2, 10, marks=pytest.mark.long),
     pytest.param(1, 10, marks=pytest.mark.slow)],
)  # fmt: skip
def test_three_strangers_command_every_two_seconds_and_a_maintainer_does_not_wait(
    flood: Flood, on: int, minutes: float
) -> None:
    lab, seconds = flood.lab, minutes * 60
    lab.strangers(3)
    for n in range(int(seconds * 1.5)):
        body = COMMANDS[n // 3 % len(COMMANDS)].format(n=n)
        flood.says(n * 2 / 3, f"stranger{n % 3}", on, body)
    flood.says(seconds / 2, "grace", 2, "/run")
    flood.says(seconds * 0.8, "grace", 2, "/status please")
    flood.until(seconds + 30)
    assert flood.wait_for("grace", "/run") <= PROMISED
    assert flood.wait_for("grace", "/status please") <= PROMISED
    assert [one["state"] for one in results(lab)] == ["done"]
    assert any("**Confirmed.**" in body for body in lab.comments(2))
    assert_shares(flood)


@pytest.mark.parametrize(
    "many", [60, pytest.param(300, marks=(pytest.mark.slow, pytest.mark.timeout(1800)))]
)
def test_many_strangers_once_each_use_up_nobodys_budget_and_a_restart_forgets_nothing(
    flood: Flood, many: int
) -> None:
    lab = flood.lab
    for n, login in enumerate(lab.strangers(many)):
        flood.says(n * 0.4, login, 1 + n % 2, f"/retry x{n}")
    flood.dies(40)  # the next one leads 45 seconds later
    flood.says(100, "grace", 2, "/run")
    flood.until(200)
    assert flood.wait_for("grace", "/run") <= PROMISED
    assert [one["state"] for one in results(lab)] == ["done"]
    assert_shares(flood)
    assert most(flood, 3600, Rank.STRANGER) < 120
    # Nothing is lost: each has an answer in the end, hours later.
    flood.coming.clear()
    lab.settle(20_000)
    refused = [body for number in (1, 2) for body in lab.comments(number) if "/retry" in body]
    assert len(refused) == many
    assert lab.records("inbox") == {}
    assert_shares(flood)


def test_who_opens_issues_as_fast_as_they_can_delays_no_result(flood: Flood) -> None:
    lab = flood.lab
    (login,) = lab.strangers(1)
    for n in range(100):
        flood.at(n, lambda n=n: lab.sandbox.open_issue(login, f"Experiment {n}", form_body()))
    flood.says(50, "grace", 2, "/run")
    flood.until(120)
    assert flood.wait_for("grace", "/run") <= PROMISED
    assert [one["state"] for one in results(lab)] == ["done"]
    assert_shares(flood)


def test_who_pushes_every_second_gets_the_newest_plan_and_nobody_waits(flood: Flood) -> None:
    lab = flood.lab
    lab.sandbox.set_role("ada", None)
    fork = lab.sandbox.fork("ada")
    files = {FILE: EXPERIMENT.encode(), "experiments/warm/text.txt": TEXT.encode()}
    fork.commit("ada", "mine", files, "Declare an experiment")
    flood.at(0, lambda: lab.sandbox.open_pull("ada", "Mine", "Tests #1.", "ada:mine"))
    for n in range(1, 60):
        other = EXPERIMENT.replace("0.003,", f"0.00{n + 300},").encode()
        flood.at(n, lambda other=other: fork.commit("ada", "mine", {FILE: other}, "Again"))
    flood.says(40, "grace", 2, "/run")
    flood.until(100)
    assert flood.wait_for("grace", "/run") <= PROMISED
    assert [one["state"] for one in results(lab)] == ["done"]
    flood.until(400)
    plans = [plan for path, plan in lab.records("plans").items() if path.startswith("700001/3/")]
    assert f"### Plan {len(plans)}:" in "".join(lab.comments(3)), "the newest one is shown"
    assert len(lab.comments(3)) <= len(plans) < 30, "most of those that it replaces are not made"
    assert_shares(flood)


def test_a_maintainers_script_that_floods_delays_neither_results_nor_other_maintainers(
    flood: Flood,
) -> None:
    lab = flood.lab
    lab.strangers(1)
    lab.sandbox.set_role("stranger0", "maintain")
    for n in range(120):
        flood.says(n, "stranger0", 1, f"/retry x{n}")
    flood.says(60, "grace", 2, "/run")
    flood.until(150)
    assert flood.wait_for("grace", "/run") <= PROMISED
    assert [one["state"] for one in results(lab)] == ["done"]
    assert_shares(flood)


@pytest.mark.parametrize("after", [0.2, 1.2])
def test_the_pieces_of_a_picture_give_way_to_a_command(
    flood: Flood, after: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, uploads = flood.lab, list[float]()
    real = GitHub.keep_picture

    def keep(*given: Any) -> str:
        if not uploads:
            flood.says(lab.monotonic() - flood.began + after, "grace", 1, "/status")
        uploads.append(lab.monotonic())
        return real(*given)

    monkeypatch.setattr(GitHub, "keep_picture", keep)
    flood.says(1, "grace", 2, "/run")
    flood.until(90)
    assert flood.wait_for("grace", "/status") <= PROMISED, "and not after all writes"
    assert len(uploads) > 1, "it is interrupted, and goes on where it stopped"
    created = [ask for ask in lab.sandbox.requests if ask.path.endswith("/git/blobs")]
    assert len(created) == 1
    assert any("![Training loss" in body for body in lab.comments(2))


def test_what_waits_is_told_in_log_figures_and_status(
    flood: Flood, caplog: pytest.LogCaptureFixture
) -> None:
    lab = flood.lab
    (login,) = lab.strangers(1)
    flood.until(65)  # what was written before the restart counts for its whole minute
    for n in range(20):
        flood.says(65 + n, login, 1, f"/retry x{n}")
    flood.says(95, "sam", 1, "/status")
    flood.until(140)
    assert "the budget of writes to GitHub makes these writes wait: " in caplog.text
    assert "caused by stranger" in caplog.text
    assert metrics.DEFERRED.labels("stranger")._value.get() > 0
    assert metrics.DEFERRED.labels("lab")._value.get() == 0
    assert "Some answers on this thread come later." in "".join(lab.comments(1))
