"""What a stranger's files ask for stops neither the bot nor the thread: it is answered in words,
and people can still command."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.controller import pull_request_source, queries
from bot.rules import plan, sealing
from runner.isolation import limited
from runner.planning import limited_plan
from tests.rendered import unescaped
from tests.scenarios.lab import EXPERIMENT, Lab, a_lab

TRAPS = Path(__file__).parents[2] / "traps" / "declarations"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with a_lab(tmp_path) as lab:
        lab.preregister()
        yield lab


def helped(lab: Lab, number: int) -> int:
    return sum("what it does" in body for body in lab.comments(number))


@pytest.mark.parametrize(
    ("trap", "words"),
    [
        ("layers", "it should be less than or equal to 4096, not `10000000`"),
        ("more-layers", "it should be less than or equal to 4096, not `2000000000`"),
        ("trials", "it should be less than or equal to 10000, not `20000000`"),
        ("sweep", "its plan of 9,801 steps has"),
        ("stages", "are too many to schedule"),
        ("repetition", "it is not a regular expression: the repetition number is too large"),
        ("parentheses", "it is not a regular expression"),
        ("phase-after-end", "so that a phase at 400 would not begin"),
        ("hold-one-out", "is not a name of a part"),
    ],
)
def test_a_strangers_declaration_is_answered_in_words_and_the_thread_goes_on(
    lab: Lab, trap: str, words: str
) -> None:
    pull = lab.propose((TRAPS / f"{trap}.yaml").read_text(encoding="utf-8"))
    assert words in unescaped(lab.last(pull))
    lab.say("sam", pull, "/help")
    assert helped(lab, pull) == 1
    lab.sandbox.commit(
        "ada", "warm", {"experiments/warm/experiment.yaml": EXPERIMENT.encode()}, "Mend it"
    )
    lab.settle()
    assert len(lab.records("plans")) == 2, "the next push has a plan"
    assert lab.records("aside") == {}


def test_whatever_a_strangers_file_raises_is_a_finding(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(*_: Any, **__: Any) -> None:
        raise OverflowError("nobody thought of this")

    monkeypatch.setattr(pull_request_source.limited_plan, "outline", bad)
    pull = lab.propose()
    assert "declaration cannot be read (OverflowError)" in lab.last(pull)
    lab.say("sam", pull, "/help")
    assert helped(lab, pull) == 1
    assert lab.records("aside") == {}


def test_a_plan_that_takes_too_long_is_a_finding_too(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = pull_request_source.limited_plan.LIMITS._replace(memory=48 << 20)
    monkeypatch.setattr(pull_request_source.limited_plan, "LIMITS", limits)
    pull = lab.propose((TRAPS / "sweep.yaml").read_text(encoding="utf-8"))
    assert "it cannot be planned: it took more than 48 MiB of memory" in unescaped(lab.last(pull))


def test_a_plan_that_takes_long_holds_up_nobody(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def turns(lab: Lab) -> None:
        for _ in range(30):
            assert lab.bot
            lab.sleep(lab.bot.work() or 0.1)

    monkeypatch.setattr(limited_plan, "QUICK", 0.0)
    monkeypatch.setattr(limited_plan, "_BESIDE", {})
    with monkeypatch.context() as patch:
        patch.setattr(Lab, "settle", turns)
        with limited._LOCKS["runner.planning.limited_plan:prepare", "", "beside"]:  # takes long
            pull = lab.propose()
            assert lab.records("plans") == {}
            lab.say("grace", 1, "/help")
            assert helped(lab, 1) == 1, "others are answered"
            assert len(limited_plan._BESIDE) == 1
        for _ in range(600):
            time.sleep(0.05)
            lab.settle()
            if lab.records("plans"):
                break
    lab.settle()
    assert "### Plan 1" in lab.last(pull)


def test_a_rule_that_fails_on_a_thread_stops_no_command_there(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pull = lab.propose()
    lab.say("grace", pull, "/run")
    real = plan.rules

    def bad(_: Any) -> Any:
        raise OverflowError("a plan that cannot be")

    monkeypatch.setattr(plan, "rules", bad)
    lab.say("grace", pull, "/help")
    assert helped(lab, pull) == 1
    assert sum("### ⚠️ Skipped" in body for body in lab.comments(pull)) == 1
    assert "plan fails on thread" in caplog.text
    lab.say("grace", pull, "/cancel")
    assert "OverflowError" in caplog.text
    assert lab.records("answers"), "the command is answered"
    assert lab.records("aside") == {}, "and none of them is set aside"
    monkeypatch.setattr(plan, "rules", real)
    lab.say("grace", pull, "/plan")
    assert len(lab.records("plans")) == 2


def test_an_answer_that_cannot_be_looked_up_stops_only_who_asks(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(*_: Any) -> None:
        raise RecursionError

    monkeypatch.setattr(queries.Asked, "_replan", bad)
    pull = lab.propose()
    lab.say("ada", pull, "more words")
    lab.say("sam", pull, "/help")
    assert helped(lab, pull) == 1
    assert lab.records("aside") == {}


def test_an_issue_that_no_rule_can_read_stops_no_command_there(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(_: Any) -> Any:
        raise RecursionError

    monkeypatch.setattr(sealing, "rules", bad)
    lab.say("sam", 1, "/help")
    assert helped(lab, 1) == 1
    assert sum("(`sealing`)" in body for body in lab.comments(1)) == 1
