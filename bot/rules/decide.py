"""`decide`: all rules of the lab, and nothing but rules. Pure.

Each feature is a generator of what should exist on a thread. This is the only place that filters
out what exists. If a rule lacks a fact of GitHub it raises `Unknown`; then nothing is done before
the fact is known, so every action is based on one consistent set of facts. Only the 👀 on a command
goes first, because it needs no further facts. If a feature fails, because of what a stranger wrote,
or has to wait, because GitHub does not give a fact now, the others go on: a pull request that
cannot be planned can be cancelled.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from bot.model.actions import Action, Check, Drive, Picture, React, Say, Show, Write
from bot.model.keys import Key
from bot.model.questions import NotYet, Question, Unknown
from bot.model.thread import Thread
from bot.rules import agents, execution, notices, plan, results_entry, sealing, slash_commands
from runner.execution import lifecycle

COMMANDS = "slash_commands"  # the feature that answers people
POLL_EVERY = timedelta(seconds=2)  # while an execution runs


@dataclass(frozen=True)
class Due:
    """What to look up, with actions that go first; or the actions to do. And when to look again if
    nothing happens."""

    questions: tuple[Question, ...] = ()
    actions: tuple[Action, ...] = ()
    look_again: timedelta | None = None
    failures: Mapping[str, Exception] = field(default_factory=dict)  # by feature
    waits_for: NotYet | None = None  # what a feature waits for


def decide(thread: Thread, recorded: Container[str] = (), postponed: Container[Key] = ()) -> Due:
    """What is due on `thread`. `recorded` are the paths of existing records; `postponed` are the
    keys of writes to GitHub that have to wait; nothing else waits for them."""
    features = (
        [results_entry, plan, agents, slash_commands, execution]
        if thread.is_pull
        else [sealing, slash_commands, execution]
    )
    features.append(notices)
    questions: list[Question] = []
    actions: list[Action] = []
    failures: dict[str, Exception] = {}
    waits_for: NotYet | None = None
    for feature in features:
        try:
            for action in feature.rules(thread):
                actions.append(action)
        except Unknown as unknown:
            questions.append(unknown.question)
        except NotYet as error:
            waits_for = error
        except Exception as error:
            failures[feature.__name__.rpartition(".")[2]] = error
    # Commands that cannot be answered are the quarantine's.
    actions += [notices.failed(name) for name in failures if name != COMMANDS]
    due = tuple(
        action
        for action in actions
        if _is_due(action, thread, recorded) and getattr(action, "key", None) not in postponed
    )
    if questions:
        heard = tuple(x for x in due if isinstance(x, React) and x.content == "eyes")
        return Due(tuple(dict.fromkeys(questions)), heard, failures=failures)
    pictures = {action.key for action in due if isinstance(action, Picture)}
    due = tuple(x for x in due if not (isinstance(x, Say) and x.lacks in pictures))
    if any(not _is_submit(action) for action in due):
        # A launch comes only when nothing else is due, so that it is based on current facts.
        due = tuple(action for action in due if not _is_submit(action))
    due = tuple(sorted(due, key=lambda action: not isinstance(action, Drive)))
    live = thread.is_pull and any(not ran.result for ran in thread.executions)
    again = POLL_EVERY if live else None
    return Due(actions=due, look_again=again, failures=failures, waits_for=waits_for)


def _is_submit(action: Action) -> bool:
    return isinstance(action, Drive) and isinstance(action.action, lifecycle.Submit)


def _is_due(action: Action, thread: Thread, recorded: Container[str]) -> bool:
    match action:
        case Drive():
            return True
        case Write(path=path):
            return path not in recorded
        case Show(of=of):
            said = thread.said.get(of)
            return said is not None and said.id is not None and action.key not in thread.said
        case Say(key=key) | Check(key=key):
            return key not in thread.said
        case _:
            return action.key not in thread.said
