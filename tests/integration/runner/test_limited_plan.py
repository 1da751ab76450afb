"""A plan that takes long is made beside its caller."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.isolation import limited
from runner.lib.problems import BadExperiment
from runner.planning import limited_plan
from runner.planning.limited_plan import DeclaredText, Needed
from runner.schema import lab_config


def declared(name: str) -> DeclaredText:
    return DeclaredText("title: Long", f"{name}/x.yaml", lab_config.defaults())


def wait_for(question: Callable[[], Any]) -> Any:
    """Its answer, asked for until it is there."""
    for _ in range(600):
        try:
            return question()
        except limited_plan.Unfinished:
            time.sleep(0.05)
    raise AssertionError("it is still being planned")


def sleep(folder: Path, asked: DeclaredText, needed: Needed, _: int) -> list[str]:
    """In a child: plans for longer than the caller waits."""
    (folder / "0").write_text("left")
    time.sleep(0.5)
    return [asked.text, (needed.folder / "own.txt").read_text()]


def test_what_takes_long_is_planned_beside_the_caller_with_files_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(limited_plan, "QUICK", 0.1)
    calls = list[str]()
    real = limited.call
    monkeypatch.setattr(
        limited, "call", lambda *a, **b: (calls.append(b["lane"]), real(*a, **b))[1]
    )
    own = tmp_path / "mine"
    own.mkdir()
    (own / "own.txt").write_text("of its own")
    question = sleep, declared("long"), Needed(own), 1
    with pytest.raises(limited_plan.Unfinished, match=r"^long/x\.yaml is being planned$"):
        limited_plan._in_child(*question)
    shutil.rmtree(own)
    answer = wait_for(lambda: limited_plan._in_child(*question))
    assert answer == (["title: Long", "of its own"], [b"left"])
    assert calls == ["", "beside"], "it waits once, and is not planned again for each question"


def test_others_are_planned_at_once_meanwhile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limited_plan._in_child(limited_plan._outline, declared("first"))  # the server runs
    monkeypatch.setattr(limited_plan, "QUICK", 0.01)
    question = sleep, declared("another"), Needed(tmp_path), 1
    (tmp_path / "own.txt").write_text("")
    with pytest.raises(limited_plan.Unfinished):
        limited_plan._in_child(*question)
    monkeypatch.setattr(limited_plan, "QUICK", 20.0)
    assert limited_plan._in_child(limited_plan._outline, declared("others"))[1] == []
    monkeypatch.setattr(limited_plan, "QUICK", 0.01)
    with pytest.raises(limited_plan.Unfinished):
        limited_plan._in_child(*question)
    wait_for(lambda: limited_plan._in_child(*question))


def test_who_waits_asks_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(limited_plan, "QUICK", 0.1)
    (tmp_path / "own.txt").write_text("")
    question = sleep, declared("waits"), Needed(tmp_path), 1
    waits, real = list[float](), time.monotonic
    lane = limited._LOCKS["runner.planning.limited_plan:prepare", "", "beside"]
    for since in (0, 10, 1000):
        monkeypatch.setattr(limited_plan.time, "monotonic", lambda since=since: real() + since)
        with lane, pytest.raises(limited_plan.Unfinished) as told:
            limited_plan._in_child(*question)
        monkeypatch.undo()
        monkeypatch.setattr(limited_plan, "QUICK", 0.1)
        waits.append(round(told.value.wait))
    assert waits == [2, 10, 60]
    wait_for(lambda: limited_plan._in_child(*question))


def test_a_machine_that_can_start_nothing_is_no_fault_of_the_declaration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise limited.Refused("start", "it cannot begin")

    monkeypatch.setattr(limited, "call", refuse)
    with pytest.raises(limited_plan.Unfinished, match="cannot be planned now: it cannot begin"):
        limited_plan.outline(declared("start"))


def test_so_many_are_planned_beside_the_caller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(limited_plan, "QUICK", 0.1)
    monkeypatch.setattr(limited_plan, "_BESIDE", {})
    monkeypatch.setattr(limited_plan, "MAX_BESIDE", 1)
    (tmp_path / "own.txt").write_text("")
    first, second = ((sleep, declared(name), Needed(tmp_path), 1) for name in "pq")
    with pytest.raises(limited_plan.Unfinished, match=r"^p/x\.yaml is being planned"):
        limited_plan._in_child(*first)
    with pytest.raises(limited_plan.Unfinished, match="many declarations are being planned"):
        limited_plan._in_child(*second)
    wait_for(lambda: limited_plan._in_child(*first))
    wait_for(lambda: limited_plan._in_child(*second))
    assert len(limited_plan._BESIDE) == 1, "as many answers are kept"
    third = (sleep, declared("r"), Needed(tmp_path), 1)
    with pytest.raises(limited_plan.Unfinished):
        limited_plan._in_child(*third)
    assert len(limited_plan._BESIDE) == 2
    wait_for(lambda: limited_plan._in_child(*third))


def test_what_took_too_much_is_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[object]()

    def refuse(*_: object, **__: object) -> None:
        calls.append(_)
        raise limited.Refused("seconds", "it took more than 20 s")

    monkeypatch.setattr(limited, "call", refuse)
    monkeypatch.setattr(limited_plan, "QUICK", 1.0)
    monkeypatch.setattr(limited_plan, "_BESIDE", {})
    for _ in range(2):
        with pytest.raises(BadExperiment, match="it took more than 20 s; make it smaller"):
            wait_for(lambda: limited_plan.outline(declared("again")))
    assert len(calls) == 2, "once for a second, once beside"
    (job,) = limited_plan._BESIDE.values()
    job.until = 0.0
    with pytest.raises(BadExperiment):
        wait_for(lambda: limited_plan.outline(declared("again")))
    assert len(calls) == 4
