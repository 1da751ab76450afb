"""What people command is answered once: by a comment, a review or a button."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bot.inbox import payloads
from bot.model import commands
from bot.model.actions import Button, Check, React, Say, Show, Write
from bot.model.keys import CommandKey, Key
from bot.model.policy_file import Permitted, Policy
from bot.model.thread import Finding, Message, Push, Ran, Thread
from bot.rules import plan, slash_commands
from bot.rules.decide import decide
from runner.schema import record
from tests import synthetic
from tests.unit.bot.test_decide import (
    BASE,
    HEAD,
    KNOWN,
    NOW,
    PLANNED,
    PULL,
    SAID,
    actions,
    approval,
    comment,
    ended,
    issue,
    of_kind,
    pull,
    ran,
)

SAM = record.Person(login="sam", id=9)
ALICE = record.Person(login="alice", id=10)


def answered(key: str, what: str, **changes: Any) -> record.Answered:
    made = record.Answered(
        command=key, what="cancel", by=synthetic.GRACE, at=NOW, yes=True
    ).model_copy(update={"what": what, **changes})
    return record.Answered.model_validate(made.model_dump())


def running(**changes: Any) -> Thread:
    """A pull request with an execution that trains."""
    known = {**pull().said, Key.parse("react.50.rocket"): SAID}
    thread = pull(
        executions=(ran(started=True),),
        approvals={CommandKey.parse("50-0"): approval()},
        said=known,
    )
    return replace(thread, **changes)


def over(state: str) -> Thread:
    """One whose execution has ended so."""
    of = approval(50, asked_at=NOW + timedelta(seconds=50))
    done = ran(of=of, started=True, result=ended(state))
    return running(executions=(done,), approvals={CommandKey.parse("50-0"): of})


def writes(thread: Thread) -> list[Any]:
    return of_kind(Write, thread, f"executions/{EXECUTION}/execution")


def answers_of(thread: Thread) -> list[record.Answered]:
    return [w.record for w in writes(thread) if w.path.startswith("answers/")]


def approvals_of(thread: Thread) -> list[record.Approval]:
    return [w.record for w in writes(thread) if w.path.startswith("approvals/")]


def reactions(thread: Thread) -> set[tuple[int, str]]:
    return {(action.comment, action.content) for action in of_kind(React, thread)}


def said(thread: Thread) -> dict[str, str]:
    return {str(action.key): action.body for action in of_kind(Say, thread)}


EXECUTION = ran().execution.id

# ── One answer ───────────────────────────────────────────────────────────────────────────────


def test_a_cancel_is_answered_by_a_record_and_stops_what_that_names() -> None:
    thread = running(messages=(comment("/cancel", id=60),))
    (answer,) = answers_of(thread)
    assert (answer.yes, answer.executions) == (True, (EXECUTION,))
    thread = replace(thread, answered={CommandKey.parse("60-0"): answer})
    (stopped,) = writes(thread)
    assert stopped.path == f"executions/{EXECUTION}/cancelled"
    assert stopped.record.command == "60-0"
    assert (60, "rocket") in reactions(thread)


def test_a_cancel_of_everything_by_who_may_records_when_it_was_written() -> None:
    for body, by, is_recorded in (
        ("/cancel", synthetic.GRACE, True),
        (f"/cancel {EXECUTION}", synthetic.GRACE, False),
        ("/cancel", SAM, False),
    ):
        message = Message(60, by, NOW + timedelta(seconds=7), body)
        for of in (running(messages=(message,)), pull(messages=(message,))):
            (answer,) = answers_of(of)
            assert answer.all_before == (message.at if is_recorded else None)


def test_a_cancel_means_what_was_begun_before_it() -> None:
    thread = running(messages=(comment("/cancel", id=40),))
    (answer,) = answers_of(thread)
    assert not answer.yes
    assert (
        "Nothing is running here"
        in said(replace(thread, answered={CommandKey.parse("40-0"): answer}))["cancel.40-0"]
    )
    asked_at = {CommandKey.parse("50-0"): approval(asked_at=NOW + timedelta(seconds=50))}
    cases: tuple[tuple[Any, int, int, bool], ...] = (
        ("review", 3, 49, False),
        ("review", 3, 50, True),  # to stop is the safe side of a tie
        ("button", 3, 51, True),
        ("comment", 60, 49, False),
        ("comment", 50, 50, True),
    )
    for via, id, seconds, meant in cases:
        message = Message(id, synthetic.GRACE, NOW + timedelta(seconds=seconds), "/cancel", via)
        (answer,) = answers_of(running(approvals=asked_at, messages=(message,)))
        assert answer.yes is meant, (via, seconds)


def test_a_refused_cancel_stays_refused_when_it_comes_again_and_its_author_was_promoted() -> None:
    thread = running(messages=(comment("/cancel", SAM, id=60),))
    (answer,) = answers_of(thread)
    assert not answer.yes
    thread = replace(
        thread,
        answered={CommandKey.parse("60-0"): answer},
        answers={("role", "sam"): "admin"},
    )
    assert [w.path for w in writes(thread)] == []
    assert (60, "confused") in reactions(thread)
    assert "no role" in said(thread)["cancel.60-0"]


def test_a_cancel_that_was_granted_stops_nothing_that_began_after_it() -> None:
    granted = answered("60-0", "cancel", executions=(EXECUTION,))
    again = ran(of=approval(70), started=True)
    thread = running(answered={CommandKey.parse("60-0"): granted})
    thread = replace(thread, executions=(*thread.executions, again))
    assert [w.path for w in writes(thread)] == [f"executions/{EXECUTION}/cancelled"]
    ended_meanwhile = ran(started=True, result=ended("done"))
    thread = replace(thread, executions=(ended_meanwhile, again))
    assert [w.path for w in writes(thread)] == []


def test_an_answered_command_asks_for_nobodys_role() -> None:
    for what in ("cancel", "plan"):
        thread = pull(
            messages=(comment(f"/{what}"),),
            answered={CommandKey.parse("50-0"): answered("50-0", what, yes=False, why="no")},
            answers={},
        )
        assert decide(thread).questions == ()


# ── Reactions ────────────────────────────────────────────────────────────────────────────────


def test_every_command_is_heard_before_the_first_is_answered() -> None:
    thread = pull(messages=(comment("/run"), comment("/help", id=60)), answers={})
    assert reactions_of_due(thread) == {(50, "eyes"), (60, "eyes")}
    assert decide(thread).questions
    assert not reactions_of_due(pull(messages=(comment("Nice."), comment("/lgtm", id=60))))


def reactions_of_due(thread: Thread) -> set[tuple[int, str]]:
    due = decide(thread).actions
    return {(action.comment, action.content) for action in due if isinstance(action, React)}


@pytest.mark.parametrize("body", ["/status", "/help", "/status\n/help"])
def test_a_command_for_anybody_gets_its_answer_and_a_rocket(body: str) -> None:
    assert (50, "rocket") in reactions(pull(messages=(comment(body, SAM),)))


@pytest.mark.parametrize("via", ["review", "button"])
def test_a_review_and_a_button_get_no_reaction(via: Any) -> None:
    message = replace(comment("/cancel", id=60), via=via, identifier="cancel")
    thread = running(messages=(message,))
    assert reactions(thread) == set()
    (answer,) = answers_of(thread)
    assert answer.command == {"review": "r60-0", "button": "b60-cancel-12"}[via]
    thread = replace(thread, messages=(), answered={CommandKey.parse(answer.command): answer})
    assert reactions(thread) == set()
    assert [w.path for w in writes(thread)] == [f"executions/{EXECUTION}/cancelled"]


def test_a_refusal_of_a_review_or_a_button_is_a_comment() -> None:
    for message in (
        replace(comment("/cancel", SAM, id=60), via="review"),
        replace(comment("/cancel", SAM, id=60), via="button", identifier="cancel"),
    ):
        thread = running(messages=(message,))
        (answer,) = answers_of(thread)
        assert not answer.yes
        refused = replace(thread, answered={CommandKey.parse(answer.command): answer})
        assert "by sam" in said(refused)[f"cancel.{answer.command}"]
        assert reactions(refused) == set()


def test_a_comment_and_a_review_of_one_number_do_not_share_their_answers() -> None:
    for body, kind, end in (("/status\n/x/runn", "status-of", "-0"), ("/runn", "hint", "")):
        both = (comment(body), replace(comment(body), via="review"))
        keys = [next(key for key in said(pull(messages=(one,))) if kind in key) for one in both]
        assert keys == [f"{kind}.50{end}", f"{kind}.r50{end}"]


def test_a_repeated_status_is_answered_once() -> None:
    first, second = comment("/status"), replace(comment("/status"), id=51)
    both = pull(messages=(first, second))
    assert [key for key in said(both) if "status-of" in key] == ["status-of.50-0"]
    assert "react.51.eyes" not in {str(x.key) for x in actions(both) if isinstance(x, React)}
    key, text = Key.parse("status-of.50-0"), said(both)["status-of.50-0"]
    answered = {**both.said, key: replace(SAID, at=second.at, body=text)}
    again = pull(messages=(second,), said=answered)
    assert "status-of.51-0" not in said(again)
    (reaction,) = [x for x in actions(again) if isinstance(x, React)]
    assert (reaction.content, reaction.optional) == ("rocket", True)
    later = replace(second, at=second.at + timedelta(minutes=11))
    assert "status-of.51-0" in said(pull(messages=(later,), said=answered))
    other = {**answered, key: replace(SAID, at=second.at - timedelta(minutes=1), body="other")}
    assert "status-of.51-0" in said(pull(messages=(second,), said=other))


def test_the_same_refusal_of_the_same_person_is_posted_once() -> None:
    def no(key: str, by: record.Person, minutes: int, why: str = "No.") -> record.Answered:
        at = NOW + timedelta(minutes=minutes)
        return answered(key, "cancel", by=by, at=at, yes=False, why=why)

    told = (
        *(no("50-0", SAM, 0), no("51-0", SAM, 9), no("52-0", ALICE, 1)),
        *(no("53-0", SAM, 11), no("54-0", SAM, 12, "Not this either.")),
    )
    thread = pull(answered={CommandKey.parse(one.command): one for one in told})
    posted = {key for key in said(thread) if key.startswith("cancel.")}
    assert posted == {"cancel.50-0", "cancel.52-0", "cancel.53-0", "cancel.54-0"}


# ── Buttons ──────────────────────────────────────────────────────────────────────────────────


def test_a_button_does_what_its_command_does() -> None:
    ours = {
        button.identifier: button
        for button in (slash_commands.CANCEL, slash_commands.RETRY, slash_commands.REPLAN)
    }
    assert ours.keys() == payloads.BUTTONS.keys()
    for identifier, words in payloads.BUTTONS.items():
        (command,) = commands.read(words.format(execution=EXECUTION)).commands
        assert command.name == identifier.removeprefix("re" if identifier == "replan" else "")
        assert command.argument == ("" if identifier == "replan" else EXECUTION)
        button = ours[identifier]
        assert len(button.label) <= 20
        assert len(button.identifier) <= 20
        assert len(button.description) <= 40


def buttons(thread: Thread, key: str) -> tuple[Button, ...]:
    (check,) = (x for x in actions(thread) if isinstance(x, Check) and str(x.key) == key)
    return check.buttons


def test_a_check_run_has_the_buttons_that_mean_something_now() -> None:
    check = f"check.{EXECUTION}"
    assert buttons(running(), check) == (slash_commands.CANCEL,)
    assert buttons(over("failed"), check) == (slash_commands.RETRY, slash_commands.REPLAN)
    assert buttons(over("done"), check) == (slash_commands.REPLAN,)
    assert buttons(pull(said={}), "check.plan.1") == (slash_commands.REPLAN,)
    cancelled = record.Cancelled(at=NOW, by="grace")
    assert buttons(pull(executions=(ran(started=True, cancelled=cancelled),)), check) == ()
    shown = of_kind(Show, replace(over("failed"), said={**pull().said, Key.parse(check): SAID}))
    assert [show.buttons for show in shown if str(show.of) == check] == [
        (slash_commands.RETRY, slash_commands.REPLAN)
    ]


# ── /retry, /reproduce ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", ["failed", "cancelled", "voided"])
@pytest.mark.parametrize("argument", ["", f" {EXECUTION}"])
def test_a_retry_approves_the_plan_of_what_came_to_nothing_anew(state: str, argument: str) -> None:
    thread = replace(over(state), messages=(comment(f"/retry{argument}", id=80),))
    (new,) = approvals_of(thread)
    assert (new.approved, new.what, new.plan, new.commit) == (True, "retry", 1, HEAD)
    assert new.execution != EXECUTION
    thread = replace(thread, approvals={**thread.approvals, CommandKey.parse("80-0"): new})
    (begun,) = writes(thread)
    assert begun.record.plan == PLANNED.plan
    assert begun.record.reproduces == ""
    assert (80, "rocket") in reactions(thread)


@pytest.mark.parametrize(
    ("body", "state", "why"),
    [
        ("/retry", "done", "nothing to retry"),
        (f"/retry {EXECUTION}", "done", "Use `/reproduce`"),
        ("/retry x0000000000000000", "failed", "no execution `x0000000000000000`"),
        ("/reproduce", "failed", "nothing to reproduce"),
        (f"/reproduce {EXECUTION}", "failed", "Use `/retry`"),
    ],
)
def test_a_command_to_repeat_is_refused_with_a_reason(body: str, state: str, why: str) -> None:
    thread = replace(over(state), messages=(comment(body, id=80),))
    (refused,) = approvals_of(thread)
    assert not refused.approved
    assert why in refused.why
    thread = replace(thread, approvals={**thread.approvals, CommandKey.parse("80-0"): refused})
    assert f"`{body.partition(' ')[0]}` by grace" in said(thread)["refused.80-0"]


@pytest.mark.parametrize(
    "answers",
    [
        {("role", "grace"): "write"},
        {("pull",): replace(PULL, head="c" * 40)},
        {("pull",): replace(PULL, open=False)},
        {("refusal", synthetic.GRACE, 1, None): "The budget is spent."},
    ],
)
def test_a_retry_is_under_all_conditions_of_a_run(answers: dict[Any, Any]) -> None:
    messages = (comment("/retry", id=80),)
    thread = replace(over("failed"), messages=messages, answers={**KNOWN, **answers})
    (refused,) = approvals_of(thread)
    assert not refused.approved


def test_a_retry_of_what_runs_again_already_is_refused() -> None:
    once, twice = over("failed"), approval(70)
    thread = replace(
        once,
        executions=(*once.executions, ran(of=twice, started=True)),
        approvals={**once.approvals, CommandKey.parse("70-0"): twice},
        messages=(comment("/retry", id=80),),
    )
    (refused,) = approvals_of(thread)
    assert "already has an execution" in refused.why


@pytest.mark.parametrize(("may", "state"), [("retry", "queued"), ("run", "voided")])
def test_permission_to_retry_suffices_for_a_retry(may: Any, state: str) -> None:
    nobody = Permitted(roles=())
    only = {"run": nobody, "retry": nobody, may: Permitted(roles=(), people=("grace",))}
    known = {**KNOWN, ("policy",): Policy(sha="f" * 40, commands=only)}
    again = approval(70, what="retry")
    first = over("failed")
    thread = replace(
        first,
        answers=known,
        executions=(*first.executions, ran(of=again)),
        approvals={**first.approvals, CommandKey.parse("70-0"): again},
    )
    paths = [write.path for write in writes(thread)]
    assert any(path.endswith("/voided") for path in paths) is (state == "voided")


def test_a_reproduction_names_what_it_is_to_be_compared_with() -> None:
    thread = replace(over("done"), messages=(comment("/reproduce", id=80),))
    (new,) = approvals_of(thread)
    assert (new.approved, new.what, new.reproduces) == (True, "reproduce", EXECUTION)
    thread = replace(thread, approvals={**thread.approvals, CommandKey.parse("80-0"): new})
    (begun,) = writes(thread)
    assert begun.record.reproduces == EXECUTION


def test_commands_of_a_pull_request_are_refused_on_an_issue() -> None:
    for what in ("retry", "reproduce"):
        known = {("role", "grace"): "maintain", ("policy",): Policy()}
        thread = issue(messages=(comment(f"/{what}"),), answers=known)
        assert "belongs on the pull request" in approvals_of(thread)[0].why
    thread = issue(messages=(comment("/plan"),), answers={})
    assert "belongs on the pull request" in answers_of(thread)[0].why


# ── /plan ────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_that_was_asked_for_is_made_also_of_a_head_that_has_one() -> None:
    thread = pull(messages=(comment("/plan"),), news=True)
    (answer,) = answers_of(thread)
    assert (answer.yes, answer.plan) == (True, 2)
    thread = replace(thread, answered={CommandKey.parse("50-0"): answer})
    assert [w.path for w in writes(thread)] == ["plans/7/2/2"]
    second = PLANNED.model_copy(update={"n": 2})
    fingerprint = second.plan.fingerprint if second.plan else ""
    known = {**KNOWN, ("replan", 2): fingerprint}
    thread = replace(thread, plans=(PLANNED, second), answers=known)
    assert writes(thread) == []
    assert (50, "rocket") in reactions(thread)


@pytest.mark.parametrize(
    ("who", "body", "answers", "why"),
    [
        (SAM, "/plan", {}, "no role"),
        (synthetic.GRACE, "/plan now", {}, "Write `/plan` alone"),
        (synthetic.GRACE, "/plan", {("pull",): replace(PULL, open=False)}, "closed"),
        (synthetic.GRACE, "/plan", {("pull",): None}, "closed"),
        (synthetic.GRACE, "/plan", {("finding", BASE, HEAD, 1): Finding(None)}, "nothing to"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    who: record.Person, body: str, answers: dict[Any, Any], why: str
) -> None:
    thread = pull(messages=(comment(body, who),), answers={**KNOWN, **answers})
    (answer,) = answers_of(thread)
    assert not answer.yes
    assert why in answer.why


def test_older_plans_are_folded_once() -> None:
    second = PLANNED.model_copy(update={"n": 2, "commit": "c" * 40})
    thread = pull(plans=(PLANNED, second))
    thread = replace(
        thread, said={**thread.said, Key.parse("plan.2"): SAID, Key.parse("check.plan.2"): SAID}
    )
    (fold,) = propose_shows(thread)
    assert (str(fold.of), fold.final) == ("plan.1", True)
    assert fold.body.startswith("<details><summary>Plan 1, for aaaaaaaaaaaa: replaced by plan 2")
    assert fold.body.rstrip().endswith("</details>")
    assert (
        propose_shows(replace(thread, said={**thread.said, Key.parse("plan.1.final"): SAID})) == []
    )


def propose_shows(thread: Thread) -> list[Show]:
    return [action for action in plan.rules(thread) if isinstance(action, Show)]


# ── Words that came late ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("heard", "edited", "hours", "again"),
    [
        ("sweep", False, 23, False),
        ("sweep", False, 25, True),
        ("sweep", True, 1, True),
        ("delivery", True, 25, False),
        ("app-list", True, 25, False),
        ("event-file", False, 25, False),
    ],
)
def test_an_edited_or_old_command_from_a_sweep_must_be_typed_again(
    heard: Any, edited: bool, hours: int, again: bool
) -> None:
    message = replace(comment("/cancel", id=60), heard=heard, edited=edited)
    thread = running(messages=(message,), now=message.at + timedelta(hours=hours))
    asks = {key for key in said(thread) if key.startswith("again.")}
    assert asks == ({"again.60"} if again else set())
    assert bool(answers_of(thread)) is not again
    assert ((60, "confused") in reactions(thread)) is again
    assert ((60, "eyes") in reactions(thread)) is not again


def test_an_answered_command_need_not_be_typed_again() -> None:
    message = replace(comment("/cancel", id=60), heard="sweep")
    known = {CommandKey.parse("60-0"): answered("60-0", "cancel", yes=False, why="no")}
    thread = running(messages=(message,), now=message.at + timedelta(days=9), answered=known)
    assert not [key for key in said(thread) if key.startswith("again.")]
    talk = replace(message, body="Nice.")
    thread = running(messages=(talk,), now=message.at + timedelta(days=9))
    assert not [key for key in said(thread) if key.startswith("again.")]


# ── What is shown ────────────────────────────────────────────────────────────────────────────


def status_of(thread: Thread) -> str:
    return said(thread)[f"status.{EXECUTION}"]


def test_a_push_after_the_approval_is_shown_and_one_before_it_is_not() -> None:
    early = Push(NOW - timedelta(seconds=1), "d" * 40)
    late = Push(NOW + timedelta(seconds=70), "c" * 40)
    back = Push(NOW + timedelta(seconds=80), HEAD)
    assert "was pushed to" not in status_of(running(pushes=(early,)))
    assert "moved to `cccccccccccc`" in status_of(running(pushes=(early, late)))
    assert "was pushed to" not in status_of(running(pushes=(early, late, back)))
    moved = PLANNED.model_copy(
        update={"n": 2, "commit": "c" * 40, "at": NOW + timedelta(seconds=70)}
    )
    assert "moved to `cccccccccccc`" in status_of(running(plans=(PLANNED, moved)))


@pytest.mark.parametrize(("key", "words"), [("r9-0", "in a review"), ("b9-retry", "by a button")])
def test_the_status_says_how_it_was_approved_where_no_reaction_can(key: str, words: str) -> None:
    of = approval(command=key)
    one: Ran = ran(of=of, started=True)
    thread = pull(executions=(one,), approvals={CommandKey.parse(key): of})
    assert f"approved by grace {words}" in said(thread)[f"status.{one.execution.id}"]
