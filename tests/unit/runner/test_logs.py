"""`logs`: what the steps of an execution printed."""

import threading
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from runner.cli import logs, main
from runner.history import step_logs
from runner.lib import redact
from runner.schema import record
from runner.store.store import Store
from tests import synthetic


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def running(store: Store) -> record.Execution:
    made = synthetic.execution(synthetic.plan())
    synthetic.begin(store, made)
    return made


def ask(store: Store, *words: str) -> Result:
    return CliRunner().invoke(main.app, ["logs", *words, "--store", str(store.root)])


def log_of(store: Store, execution: record.Execution, run: str) -> Path:
    folder = synthetic.making(store, execution.id, run, execution.plan)
    path = store.local(f"{folder}/log.txt")
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_each_line_has_its_step_and_a_step_alone_has_its_lines(
    store: Store, running: record.Execution
) -> None:
    log_of(store, running, "fast.s0").write_text("step 1\nstep 2\n")
    log_of(store, running, "slow.s1").write_text("last words")
    said = ask(store, "latest").stdout.splitlines()
    assert sorted(said) == [
        "train/fast,seed=0 | step 1",
        "train/fast,seed=0 | step 2",
        "train/slow,seed=1 | last words",
    ]
    assert ask(store, running.id[:5], "train/fast,seed=0").stdout == "step 1\nstep 2\n"
    assert sorted(ask(store, "latest", "train").stdout.splitlines()) == sorted(said)


def test_nothing_in_a_log_controls_the_terminal_and_no_secret_is_shown(
    store: Store, running: record.Execution
) -> None:
    redact.hold("hunter2-hunter2")
    log_of(store, running, "fast.s0").write_bytes(
        b"\x1b[1m\x1b[32mgreen\x1b[0m\n10 %\r50 %\r\n"
        b"\x1b]0;title\x07key hunter2-hunter2\n\xff\x07\n"
    )
    said = ask(store, "latest", "train/fast,seed=0").stdout
    assert said == "green\n50 %\nkey [secret]\n\ufffd\\x07\n"
    assert step_logs.plain("x" * 9_000) == "x" * step_logs.MAX_LINE


def test_an_unknown_step_is_told_with_the_near_miss_and_no_log_is_said(
    store: Store, running: record.Execution
) -> None:
    answer = ask(store, "latest", "train/fats,seed=0")
    assert answer.exit_code == 2
    assert "has no step `train/fats,seed=0`; did you mean `train/fast,seed=0`?" in answer.stderr
    answer = ask(store, "latest")
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert answer.stderr == f"{running.id} printed nothing yet\n"


def test_a_log_is_followed_until_the_execution_ends(
    store: Store, running: record.Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(store, running, "fast.s0")
    log.write_text("one\ntw")
    looks = iter(("o\n", "three", None))
    asleep = threading.Event()

    def sleep(_: float) -> None:
        asleep.set()
        if words := next(looks):
            with log.open("a") as file:
                file.write(words)
        else:
            synthetic.finish(store, running, {})

    monkeypatch.setattr(logs.time, "sleep", sleep)
    assert ask(store, "latest", "train/fast,seed=0", "-f").stdout == "one\ntwo\nthree\n"
    assert asleep.is_set()
