"""Keys are types; what is written of them, in stores and in comments, is read as it ever was."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.model.keys import CheckId, CommandKey, Key

WRITTEN = {
    "sealed": Key("sealed"),
    "plan.1": Key("plan", "1"),
    "plan.1.final": Key("plan", "1", final=True),
    "check.plan.1": Key("plan", "1", check=True),
    "plan.50-0": Key("plan", "50-0"),
    "entry.2": Key("entry", "2"),
    "check.entry.2": Key("entry", "2", check=True),
    "status.x0123456789abcdef": Key("status", "x0123456789abcdef"),
    "check.x0123456789abcdef": Key("check", "x0123456789abcdef"),
    "check.x0123456789abcdef.final": Key("check", "x0123456789abcdef", final=True),
    "label.done.x0123456789abcdef.2": Key("label", "done.x0123456789abcdef.2"),
    "react.50.eyes": Key("react", "50.eyes"),
    "refused.r50-0": Key("refused", "r50-0"),
    "cancel.b13-cancel-7": Key("cancel", "b13-cancel-7"),
    "aside.72d3162e-cc78-11e3-81ab-4c9367dc0958": Key(
        "aside", "72d3162e-cc78-11e3-81ab-4c9367dc0958"
    ),
}
COMMANDS = {
    "50-0": CommandKey("comment", 50),
    "50-4": CommandKey("comment", 50, 4),
    "r50-0": CommandKey("review", 50),
    "b13-cancel-7": CommandKey("button", 13, button="cancel", by=7),
    "b13-replan": CommandKey("button", 13, button="replan"),
}


@pytest.mark.parametrize("written", WRITTEN)
def test_a_key_is_written_as_stores_and_comments_have_it_and_read_back(written: str) -> None:
    assert Key.parse(written) == WRITTEN[written]
    assert str(WRITTEN[written]) == written


@given(st.lists(st.text(string.ascii_lowercase + string.digits + "-", min_size=1), min_size=1))
def test_a_key_of_any_store_is_written_as_it_was_read(words: list[str]) -> None:
    written = ".".join(words)
    assert str(Key.parse(written)) == written


@pytest.mark.parametrize("written", COMMANDS)
def test_a_commands_key_is_written_as_records_have_it_and_read_back(written: str) -> None:
    assert CommandKey.parse(written) == COMMANDS[written]
    assert str(COMMANDS[written]) == written


def test_a_commands_key_says_what_the_command_stands_in() -> None:
    found = [(key.message, key.comment, key.review) for key in COMMANDS.values()]
    assert found[:1] + found[2:4] == [("50", 50, None), ("r50", None, 50), ("b13", None, None)]


@pytest.mark.parametrize(
    "written", ["", "50", "x50-0", "50-", "50-0-7", "r50-cancel", "b13-0", "٣-0", "50-0\n", "-0"]
)
def test_an_invalid_command_key_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="no command's key"):
        CommandKey.parse(written)


def test_a_check_run_is_named_by_its_thread_and_key() -> None:
    named = CheckId(2, Key("plan", "1", check=True))
    assert str(named) == "2.check.plan.1"
    assert CheckId.parse("2.check.plan.1") == named
    assert CheckId.parse("2.check.x1") == CheckId(2, Key("check", "x1"))
    for other in ("", "2", "2.", "0.check.x1", "02.check.x1", "2.check.X1", "x.check.x1", "2.a\n"):
        assert CheckId.parse(other) is None
