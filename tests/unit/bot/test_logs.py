"""Logs: one line a record, nothing raw, secrets out, and a delivery can be followed by its id."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.telemetry import logs
from bot.telemetry.logs import JsonLines, TextLines

EVIL = "a title\n2026-11-21 ERROR regatta: forged\r\x1b[2J\u202eevil\u2028\x7f\x00 ``` @grace"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is logged from now on; the loggers are as before at the end."""
    root, ours = logging.getLogger(), logging.getLogger("regatta")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    into = io.StringIO()
    logs.set_up("json", stream=into)
    yield into
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def a_record(message: str, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, None) if error else None
    return logging.LogRecord("regatta.x", logging.INFO, "x.py", 1, message, (), info)


@given(st.text())
def test_whatever_a_stranger_writes_is_one_line_of_printable_ascii(words: str) -> None:
    record = a_record(f"said: {words}", ValueError(words))
    line = JsonLines().format(record)
    assert line.isascii()
    assert line.isprintable()
    message = json.loads(line)["message"]
    assert message == f"said: {words}" or len(words) > 1_900


def test_a_forged_line_stays_within_its_own(stream: io.StringIO) -> None:
    logging.getLogger("regatta.x").warning("the title is %s", EVIL)
    (line,) = stream.getvalue().splitlines()
    assert "\x1b" not in line
    assert "\u202e" not in line
    assert json.loads(line)["message"] == f"the title is {EVIL}"


def test_a_terminal_gets_no_control_character_either() -> None:
    with logs.about(title=EVIL):
        text = TextLines().format(a_record(EVIL))
    assert text.isprintable()


def test_a_secret_is_taken_out_of_message_and_trace() -> None:
    formatter = JsonLines(lambda text: text.replace("hunter2", "…"))
    line = formatter.format(a_record("token hunter2", ValueError("hunter2")))
    assert "hunter2" not in line


def test_a_line_says_what_it_is_about(stream: io.StringIO) -> None:
    log = logging.getLogger("regatta.x")
    with logs.about(thread=3), logs.about(delivery="d1"):
        log.info("inside")
    log.info("outside")
    inside, outside = lines(stream)
    assert (inside["thread"], inside["delivery"]) == (3, "d1")
    assert "delivery" not in outside


def test_libraries_speak_up_for_warnings_only(stream: io.StringIO) -> None:
    logging.getLogger("urllib3").info("a connection")
    logging.getLogger("some.library").warning("a warning")
    assert [line["message"] for line in lines(stream)] == ["a warning"]
