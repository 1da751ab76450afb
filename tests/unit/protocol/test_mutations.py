"""Each condition of the rules is needed: a test fails without it.

Every condition has a test of its own name, which is run here with that condition taken out. Those
that keep the promise itself are also taken out under the search, which must then find the way in.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bot.rules import approval_checks
from runner.execution import lifecycle
from tests.protocol.explore import explore
from tests.protocol.world import FORK, World
from tests.system.protocol.test_exhaustive import plain, wide
from tests.unit.bot import test_approve

CONDITIONS = [
    (rules, condition.__name__)
    for rules in ("AT_APPROVAL", "AT_LAUNCH")
    for condition in getattr(approval_checks, rules)
]


def without(patch: pytest.MonkeyPatch, rules: str, name: str) -> None:
    """The rules without one of their conditions."""
    left = tuple(one for one in getattr(approval_checks, rules) if one.__name__ != name)
    assert len(left) == len(getattr(approval_checks, rules)) - 1
    patch.setattr(approval_checks, rules, left)


def calls(test: Callable[..., None]) -> Iterator[Callable[[], None]]:
    """A test with each of its parameters, as pytest would call it."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    choices: list[list[dict[str, Any]]] = []
    for mark in marks:
        names = mark.args[0].split(", ") if isinstance(mark.args[0], str) else mark.args[0]
        values = [value if len(names) > 1 else (value,) for value in mark.args[1]]
        choices.append([dict(zip(names, value, strict=True)) for value in values])
    for chosen in itertools.product(*choices):
        given = {name: value for one in chosen for name, value in one.items()}
        yield functools.partial(test, **given)


def fails(test: Callable[..., None]) -> bool:
    """Whether a test fails for any of its parameters."""
    for call in calls(test):
        try:
            call()
        except (AssertionError, pytest.fail.Exception):
            return True
    return False


@pytest.mark.parametrize(("rules", "name"), CONDITIONS)
def test_without_any_one_condition_the_test_of_its_name_fails(
    rules: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = getattr(test_approve, f"test_{name}", None)
    assert test is not None, f"tests/unit/bot/test_approve.py has no test_{name}"
    assert not fails(test)
    without(monkeypatch, rules, name)
    assert fails(test), f"test_{name} passes although {rules} is without {name}"


@pytest.mark.parametrize(
    ("rules", "name", "start", "events", "words"),
    [
        ("AT_APPROVAL", "settled", plain(), 1, "nothing was approved and a is launched"),
        ("AT_APPROVAL", "no_push_between", plain(untimely=2), 3, "nothing was approved"),
        ("AT_APPROVAL", "same_repository", plain(head_repository=FORK), 1, "nothing was approved"),
        ("AT_APPROVAL", "one_plan", plain(), 2, "nothing was approved and a is launched"),
        ("AT_LAUNCH", "same_head", plain(untimely=1), 2, "the head is another commit"),
        ("AT_LAUNCH", "same_base_ref", plain(untimely=1), 2, "merged into another branch"),
        ("AT_LAUNCH", "still_permitted", plain(), 2, "may not approve any more"),
        ("AT_LAUNCH", "same_fingerprint", wide(), 2, "the lab is another one"),
        ("AT_LAUNCH", "younger_than_24h", wide(), 2, "the approval is a day old"),
        ("AT_LAUNCH", "review_stands", wide(), 2, "the review was dismissed"),
    ],
)
def test_the_search_finds_what_a_condition_keeps_out(
    rules: str, name: str, start: World, events: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, rules, name)
    found = explore(start, events)
    assert words in found.violation
    print(f"{rules} without {name}: {found.violation}: {'; '.join(found.trace)}")


def test_the_search_finds_a_cancelled_execution_that_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifecycle, "_halt", lambda _: None)
    assert "go on" in explore(plain(cancels=1), 2).violation
