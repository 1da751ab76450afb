"""What comes from strangers is judged in a child, which may take only so much."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.isolation import limited
from runner.isolation.limited import Limits, Refused, call
from runner.spec.task_items import BadTask
from tests import limited_functions as functions


@pytest.mark.parametrize("value", [None, 5, "ä\ud800", [1, {"a": [True, 0.5]}], "x" * 3_000_000])
def test_a_value_comes_back_as_it_is(value: Any) -> None:
    assert call(functions.echo, value) == value


@pytest.mark.parametrize(
    ("function", "arguments", "kind", "message"),
    [
        (functions.sleep, (60,), "seconds", "it took more than 0.5 s"),
        (functions.spin, (), "seconds", "it took more than 0.5 s"),
        (functions.take, (300 << 20,), "memory", "it took more than 256 MiB of memory"),
        (functions.answer, (2 << 20,), "answer", "its answer has more than 1 MiB"),
        (functions.compile_pattern, ("a{99999999999}",), "raised", "it failed with OverflowError:"),
        (functions.compile_pattern, ("(" * 9_000,), "raised", "it failed with RecursionError:"),
        (functions.not_json, (), "raised", "it failed with TypeError:"),
        (functions.leave_exit, (), "raised", "it failed with SystemExit: 3"),
        (functions.end, (signal.SIGKILL,), "signal", "what computed it was ended by SIGKILL"),
        (functions.crash, (), "signal", "what computed it was ended by SIGSEGV"),
    ],
)
def test_every_way_to_fail_is_one_refusal_in_words(
    function: Callable[..., Any], arguments: tuple[Any, ...], kind: str, message: str
) -> None:
    # Where the machine is busy, only what waits for its end may take long.
    seconds = 0.5 if kind == "seconds" else 60.0
    with pytest.raises(Refused) as refused:
        call(function, *arguments, limits=Limits(seconds, answer=1 << 20))
    assert refused.value.kind == kind
    assert str(refused.value).startswith(message)
    assert call(functions.echo, 1) == 1, "the next call has a child of its own"


def test_memory_is_counted_from_where_the_child_starts() -> None:
    assert call(functions.take, 128 << 20, limits=Limits(60.0)) == 128 << 20


def test_a_child_has_no_secrets_and_no_open_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_secret")
    monkeypatch.setattr(limited, "_SERVERS", {})
    with (tmp_path / "open").open("w"):
        prepared, environment, files, core = call(functions.surroundings, prepare=functions.prepare)
    assert prepared == 1
    assert environment.keys() <= {*limited.ENVIRONMENT, "LC_CTYPE"}
    outside = [file for file in files if file != "/dev/null" and not file.startswith("pipe:")]
    assert all(file.startswith("/proc/") for file in outside), "its own listing"
    assert core[0] == 0


def test_nothing_that_a_child_starts_is_left(tmp_path: Path) -> None:
    late, left = tmp_path / "late", tmp_path / "left"
    with pytest.raises(Refused, match="took more than"):
        call(functions.leave, str(late), 60.0, limits=Limits(3.0))
    call(functions.leave, str(left), 0.0, limits=Limits(60.0))
    for path in (late, left):
        assert not Path(f"/proc/{path.read_text()}").exists()


def test_a_server_that_is_killed_is_followed_by_another() -> None:
    before, threads = call(functions.parent)
    assert threads == 1, "only a process with one thread may fork"
    os.kill(before, signal.SIGKILL)
    while Path(f"/proc/{before}").exists() and "Z" not in _state(before):
        time.sleep(0.01)
    after, _ = call(functions.parent)
    assert after != before


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def test_a_resident_child_serves_call_after_call_until_it_fails() -> None:
    def process() -> int:
        return int(call(functions.resident, "own", resident=True))

    first = process()
    assert process() == first
    assert call(functions.parent) != first
    for what, kind in (("spin", "seconds"), ("crash", "signal")):
        with pytest.raises(Refused) as refused:
            call(functions.resident, what, limits=Limits(1.0), resident=True)
        assert refused.value.kind == kind
        before, first = first, process()
        assert first != before
    for what, kind in (("take", "memory"), ("compile", "raised")):
        with pytest.raises(Refused) as refused:
            call(functions.resident, what, resident=True)
        assert refused.value.kind == kind
        assert process() == first, "it has outlived that"


def test_a_server_that_cannot_start_is_a_kind_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "_SERVERS", {})
    with pytest.raises(Refused, match="ended with 1 before the first call") as refused:
        call(functions.echo, 1, prepare=functions.leave_at_once)
    assert refused.value.kind == "start"


@pytest.mark.parametrize("resident", [False, True])
def test_an_expected_exception_is_raised_here_with_its_message(resident: bool) -> None:
    expecting = {"expected": BadTask, "resident": resident}
    with pytest.raises(BadTask, match=r"^no such task$"):
        call(functions.refuse, "no such task", **expecting)
    with pytest.raises(BadTask) as raised:
        call(functions.refuse, "x" * 9_000, **expecting)
    assert str(raised.value) == "x" * limited.MAX_MESSAGE
    with pytest.raises(Refused, match="it failed with BadTask: no such task"):
        call(functions.refuse, "no such task", resident=resident)


def test_threads_may_call_at_the_same_time() -> None:
    values = list[int]()
    threads = [
        threading.Thread(target=lambda n=n: values.append(call(functions.echo, n)))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(values) == list(range(16))
