"""`decide` is a pure function of a thread: what to ask, or else what is due."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bot.model.actions import Action, Check, Drive, Label, React, Say, Show, Write
from bot.model.keys import CommandKey, Key
from bot.model.policy_file import Policy
from bot.model.questions import Question
from bot.model.thread import Finding, Issue, Message, Pull, Ran, Said, Shown, Thread, ThreadId
from bot.rules.decide import POLL_EVERY, decide
from bot.rules.execution import EDIT_EVERY
from runner.execution import lifecycle
from runner.schema import record
from tests import synthetic
from tests.scenarios.lab import form_body

NOW = synthetic.START
HEAD, BASE = "a" * 40, "b" * 40
PULL = Pull(HEAD, BASE, open=True, draft=False, head_repository=7)
PLANNED = record.PlanRecord(
    repository=7,
    pull=2,
    n=1,
    commit=HEAD,
    at=NOW,
    plan=synthetic.plan(preregistration=1, predictions=[synthetic.prediction()]),
)
SAID = Said("comment", 100, NOW)


KNOWN = {
    ("pull",): PULL,
    ("role", "grace"): "maintain",
    ("role", "sam"): "none",
    ("policy",): Policy(sha="f" * 40),
    ("refusal", synthetic.GRACE, 1, None): None,
    ("forced",): (),
    ("replan", 1): PLANNED.plan.fingerprint if PLANNED.plan else "",
    ("registration", 1): None,
    ("code", 1): "abcd-efgh-ijkl-mnop-qrst",
    ("code", 2): "bbcd-efgh-ijkl-mnop-qrst",
    ("finding", BASE, HEAD, 1): Finding("experiments/warm", plan=PLANNED.plan),
}


def comment(body: str, who: record.Person = synthetic.GRACE, id: int = 50) -> Message:
    return Message(id, who, NOW + timedelta(seconds=id), body)


def issue(**changes: Any) -> Thread:
    thread = Thread(ThreadId(7, 1), "r/l", "https://github.com/r/l", NOW, is_pull=False)
    return replace(thread, **changes)


def pull(**changes: Any) -> Thread:
    """A pull request whose plan was said, and of which GitHub's answers are known. What runs on it
    was approved."""
    begun = changes.get("executions", ())
    keys = [CommandKey.parse(record.command_of(one.execution.origin.approval)) for one in begun]
    approvals = {key: approval(key.id, key.nth) for key in keys}
    thread = Thread(
        ThreadId(7, 2),
        "r/l",
        "https://github.com/r/l",
        NOW + timedelta(seconds=90),
        is_pull=True,
        plans=(PLANNED,),
        said={Key.parse("plan.1"): SAID, Key.parse("check.plan.1"): SAID},
        answers=KNOWN,
        approvals=approvals,
    )
    thread = replace(thread, **changes)
    answered = {Key("react", f"{key.id}.rocket"): SAID for key in keys}
    return replace(thread, said={**thread.said, **answered})


def approval(comment: int = 50, index: int = 0, **changes: Any) -> record.Approval:
    made = record.Approval(
        repository=7,
        pull=2,
        command=f"{comment}-{index}",
        by=synthetic.GRACE,
        role="maintain",
        at=NOW,
        approved=True,
        plan=1,
        commit=HEAD,
    )
    return made.model_copy(update=changes)


def ran(
    *,
    of: record.Approval | None = None,
    started: bool = False,
    result: record.Result | None = None,
    cancelled: record.Cancelled | None = None,
) -> Ran:
    of = of or approval()
    name = record.execution_id(of.id)
    execution = synthetic.execution(PLANNED.plan or synthetic.plan(), name)
    assert execution.origin
    origin = execution.origin.model_copy(update={"approval": of.id, "commit": HEAD})
    execution = execution.model_copy(update={"id": name, "origin": origin})
    claimed = record.Claimed(at=NOW, nonce="0" * 16, spec_sha256="0" * 64)
    attempts = (
        lifecycle.Attempt("t1", f"{name}.t1-{'0' * 16}", claimed, started=started, ended=None),
    )
    return Ran(lifecycle.Facts(execution, attempts, cancelled, None, result), None)


def ended(state: str, seconds: int = 60) -> record.Result:
    at = NOW + timedelta(seconds=seconds)
    return record.Result.model_validate({"at": at, "state": state, "why": "words"})


def actions(thread: Thread, *recorded: str) -> tuple[Action, ...]:
    begun = [f"executions/{one.execution.id}/execution" for one in thread.executions]
    decision = decide(thread, [*begun, *recorded])
    assert not decision.questions, decision.questions
    return decision.actions


def of_kind(kind: type[Any], thread: Thread, *recorded: str) -> list[Any]:
    return [action for action in actions(thread, *recorded) if isinstance(action, kind)]


THREADS = {
    "nothing": pull(),
    "a new pull request": pull(plans=(), said={}, news=True),
    "a command": pull(messages=(comment("/run"),), news=True),
    "a stranger's": pull(messages=(comment("/run", record.Person(login="sam", id=9)),)),
    "an approval": pull(approvals={CommandKey.parse("50-0"): approval()}),
    "a launch": pull(executions=(ran(),), approvals={CommandKey.parse("50-0"): approval()}),
    "a result": pull(executions=(ran(started=True, result=ended("cancelled")),)),
    "an issue": issue(
        news=True,
        answers={
            ("issue",): Issue("Warm", form_body(), synthetic.ADA, open=True),
            ("form",): {"hypothesis": "Hypothesis", "predictions": "Predictions",
                                 "notes": "Notes"},
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", THREADS)
def test_the_same_thread_gives_the_same_decision(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = decide(THREADS[name])

    def effect(*_: object, **__: object) -> None:
        raise AssertionError("a rule has an effect")

    for where in ("builtins.open", "socket.socket", "os.open", "time.time", "time.monotonic"):
        monkeypatch.setattr(where, effect)
    second = decide(THREADS[name])
    monkeypatch.undo()
    assert first == second
    assert first.actions or first.questions or name == "nothing"


# ── Asking ───────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_done_before_everything_is_known() -> None:
    thread = pull(messages=(comment("/run\n\n/help"),), news=True, answers={})
    assert set(decide(thread).questions) == {("pull",), ("policy",)}
    assert decide(thread).actions == (React(50, "eyes"),)  # which says no more than: heard
    thread = replace(thread, said={**thread.said, Key.parse("react.50.eyes"): SAID})
    assert decide(thread).actions == ()
    thread = replace(thread, answers={("pull",): PULL, ("policy",): KNOWN["policy",]})
    assert set(decide(thread).questions) == {("replan", 1), ("role", "grace")}


def test_an_idle_thread_asks_no_question() -> None:
    for thread in (pull(answers={}), issue(), issue(seal=None)):
        decision = decide(thread)
        assert decision.questions == ()
        assert decision.look_again is None


def test_a_command_that_has_its_answer_asks_for_nobodys_role() -> None:
    refused = approval(approved=False, why="no", plan=None, commit=None)
    thread = pull(
        messages=(comment("/run"),), approvals={CommandKey.parse("50-0"): refused}, answers={}
    )
    assert decide(thread).questions == ()


# ── What is due ──────────────────────────────────────────────────────────────────────────────


def test_a_new_head_has_a_plan_and_a_known_one_has_not() -> None:
    (written,) = of_kind(Write, pull(plans=(), said={}, news=True))
    assert written.path == "plans/7/2/1"
    assert of_kind(Write, pull(news=True)) == []
    moved = {**KNOWN, ("pull",): replace(PULL, head="c" * 40)}
    moved[("finding", BASE, "c" * 40, 1)] = Finding(None)
    assert of_kind(Write, pull(news=True, answers=moved)) == []
    moved[("finding", BASE, "c" * 40, 1)] = Finding("experiments/warm", problems=("words",))
    (written,) = of_kind(Write, pull(news=True, answers=moved))
    assert written.path == "plans/7/2/2"


def test_a_posted_comment_is_not_posted_again() -> None:
    fresh = pull(said={})
    assert {str(a.key) for a in actions(fresh) if isinstance(a, Say | Check)} == {
        "plan.1",
        "check.plan.1",
    }
    assert actions(pull()) == ()
    claimed = pull(
        said={Key.parse("plan.1"): Said("comment", None, None), Key.parse("check.plan.1"): SAID}
    )
    assert actions(claimed) == ()


def test_a_record_is_not_written_again() -> None:
    thread = pull(messages=(comment("/run"),))
    assert of_kind(Write, thread)[0].path == "approvals/7/2/50-0"
    assert of_kind(Write, thread, "approvals/7/2/50-0") == []


def test_two_runs_are_answered_one_after_the_other() -> None:
    thread = pull(messages=(comment("/run\n\n/run"), comment("/run", id=60)))
    assert [w.path for w in of_kind(Write, thread)] == ["approvals/7/2/50-0"]
    thread = replace(thread, approvals={CommandKey.parse("50-0"): approval()})
    (begun,) = of_kind(Write, thread)
    assert begun.path.startswith("executions/x")
    thread = replace(thread, executions=(ran(started=True),))
    (second,) = [w for w in of_kind(Write, thread) if w.path.startswith("approvals/")]
    assert second.path == "approvals/7/2/50-1"
    assert "already has an execution" in second.record.why


def test_the_first_launch_looks_at_head_and_role_again_and_a_later_look_does_not() -> None:
    due = pull(executions=(ran(),), answers={})
    looked_up: dict[Question, Any] = {}
    while asked := decide(replace(due, answers=looked_up)).questions:
        looked_up |= {question: KNOWN[question] for question in asked}
    assert set(looked_up) == {
        ("pull",), ("policy",), ("role", "grace"), ("replan", 1),
    }  # fmt: skip
    due = replace(due, answers=KNOWN)
    assert of_kind(Drive, due) == []  # its status comment comes first, and then a look of its own
    name = ran().execution.id
    status, check = Key("status", name), Key("check", name)
    bodies = {
        action.key: action.body if isinstance(action, Say) else action.summary
        for action in actions(due)
        if isinstance(action, Say | Check)
    }
    known = {**due.said, status: SAID, check: SAID}
    now = {key: Shown(bodies[key], "queued", due.now) for key in (status, check)}
    alone = replace(due, said=known, shown=now)
    assert actions(alone) == (Drive(name, lifecycle.Submit("t1")),)
    begun = pull(executions=(ran(started=True),), answers={})
    assert decide(begun).questions == ()


@pytest.mark.parametrize(
    "answers",
    [
        {("pull",): replace(PULL, head="c" * 40)},
        {("pull",): replace(PULL, open=False)},
        {("pull",): None},
        {("role", "grace"): "write"},
        {("role", "grace"): "none"},
        {("policy",): Policy(problems=("it is wrong",))},
        {("replan", 1): "0" * 64},
    ],
)
def test_an_approval_that_no_longer_holds_is_voided_and_not_launched(
    answers: dict[Question, Any],
) -> None:
    thread = pull(executions=(ran(),), answers={**KNOWN, **answers})
    assert of_kind(Drive, thread) == []
    assert [w.path for w in of_kind(Write, thread)] == [f"executions/{ran().execution.id}/voided"]


# ── Showing ──────────────────────────────────────────────────────────────────────────────────


def shown(thread: Thread) -> set[str]:
    return {action.of for action in of_kind(Show, thread)}


def test_a_status_is_edited_at_once_when_the_state_changes_and_else_every_half_minute() -> None:
    one = ran(started=True)
    status, check = Key("status", one.execution.id), Key("check", one.execution.id)
    thread = pull(
        executions=(one,),
        said={**pull().said, status: SAID, check: SAID},
        shown={
            status: Shown("other figures", "running", NOW),
            check: Shown("", "running", NOW),
        },
    )
    assert shown(replace(thread, now=NOW + EDIT_EVERY - timedelta(seconds=1))) == set()
    assert shown(replace(thread, now=NOW + EDIT_EVERY)) == {status}
    changed = {
        status: Shown("other figures", "queued", NOW),
        check: Shown("", "queued", NOW),
    }
    assert shown(replace(thread, now=NOW, shown=changed)) == {status, check}
    assert shown(replace(thread, now=NOW, shown={})) == {status, check}


def test_a_comment_that_was_never_posted_is_not_edited() -> None:
    thread = pull(executions=(ran(started=True),))
    assert shown(thread) == set()


def test_a_final_look_is_shown_once_for_all_lives_of_the_bot() -> None:
    one = ran(started=True, result=ended("cancelled"))
    status, check = Key("status", one.execution.id), Key("check", one.execution.id)
    said = {**pull().said, status: SAID, check: SAID}
    thread = pull(executions=(one,), said=said)
    assert {(s.of, s.final) for s in of_kind(Show, thread)} == {(status, True), (check, True)}
    done = {**said, status._replace(final=True): SAID, check._replace(final=True): SAID}
    assert shown(replace(thread, said=done)) == set()


def test_only_a_living_execution_is_looked_at_again() -> None:
    assert decide(pull(executions=(ran(started=True),))).look_again == POLL_EVERY
    assert decide(pull(executions=(ran(result=ended("done")),))).look_again is None
    assert decide(issue(executions=(ran(started=True),))).look_again is None


# ── Labels ───────────────────────────────────────────────────────────────────────────────────

SEAL = record.Preregistration(
    repository=7,
    issue=1,
    title="Warm",
    hypothesis="Because.",
    predictions=(synthetic.prediction(),),
    author=synthetic.ADA,
    at=NOW,
    text_sha256="0" * 64,
)
FIRST, SECOND = approval(50), approval(60)


def again(result: record.Result) -> Ran:
    """A second execution."""
    return ran(of=SECOND, result=result)


@pytest.mark.parametrize(
    ("label", "plans", "executions"),
    [
        ("wishlist", (), ()),
        ("wishlist", (PLANNED.model_copy(update={"plan": None, "problems": ("x",)}),), ()),
        ("planned", (PLANNED,), ()),
        ("running", (PLANNED,), (ran(),)),
        ("planned", (PLANNED,), (ran(result=ended("cancelled")),)),
        ("planned", (PLANNED,), (ran(result=ended("voided")),)),
        ("done", (PLANNED,), (ran(result=ended("done")),)),
        ("failed", (PLANNED,), (ran(result=ended("failed")),)),
        ("running", (PLANNED,), (ran(result=ended("done")), ran(of=SECOND))),
        ("done", (PLANNED,), (ran(result=ended("failed", 1)), again(result=ended("done", 2)))),
        ("failed", (PLANNED,), (ran(result=ended("failed", 2)), again(result=ended("done", 1)))),
        ("done", (PLANNED,), (ran(result=ended("done")), again(result=ended("cancelled")))),
    ],
)  # fmt: skip
def test_a_preregistration_has_the_one_label_that_follows_from_what_is_under_it(
    label: str, plans: tuple[record.PlanRecord, ...], executions: tuple[Ran, ...]
) -> None:
    thread = issue(seal=SEAL, plans=plans, executions=executions, answers=KNOWN)
    (found,) = of_kind(Label, thread)
    assert found.name == f"experiment: {label}"


def test_a_label_comes_back_after_each_execution_that_came_to_nothing() -> None:
    done = ran(of=FIRST, result=ended("done"))
    stories = [
        issue(seal=SEAL, plans=(PLANNED,), executions=executions, answers=KNOWN)
        for executions in (
            (),
            (ran(of=FIRST),),
            (done,),
            (done, ran(of=SECOND)),
            (done, ran(of=SECOND, result=ended("cancelled"))),
        )
    ]
    keys = [str(of_kind(Label, thread)[0].key) for thread in stories]
    assert len(set(keys)) == len(keys)


def test_a_pull_request_has_no_label() -> None:
    assert of_kind(Label, pull(executions=(ran(),), said={})) == []


def test_reactions_say_that_a_command_was_seen_and_what_became_of_it() -> None:
    (seen,) = of_kind(React, pull(messages=(comment("/run"),)))
    assert seen.content == "eyes"
    approved = of_kind(React, pull(approvals={CommandKey.parse("50-0"): approval()}))
    refused = of_kind(
        React, pull(approvals={CommandKey.parse("50-0"): approval(approved=False, why="no")})
    )
    assert [r.content for r in approved + refused] == ["rocket", "confused"]
