"""Each condition of an approval and of a launch: a case in which it alone does not hold.

The protocol's tests take conditions out one by one; then the test of that name must fail.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

import pytest

from bot.model.actions import Write
from bot.model.keys import CommandKey, Key
from bot.model.policy_file import Allowance, Permitted, Policy
from bot.model.questions import Question
from bot.model.thread import (
    Commit,
    Contributions,
    Message,
    Pull,
    Push,
    Ran,
    Review,
    Said,
    Thread,
    ThreadId,
)
from bot.rules import approval as rules_approval
from bot.rules import approval_checks, which_plan
from bot.rules.which_plan import Case
from runner.execution import lifecycle
from runner.schema import record
from runner.schema.record import Approval, Person, PlanRecord
from tests import synthetic

START = synthetic.START
HEAD, OTHER, BASE = "a" * 40, "c" * 40, "b" * 40
CODE = "k3f2-abcd-efgh-ijkl-mnop"
SECOND = "z7z2-abcd-efgh-ijkl-mnop"
ADA, GRACE = synthetic.ADA, synthetic.GRACE
HUGO = Person(login="hugo", id=13)
ROBO, GHOST = Person(login="robo[bot]", id=99), Person(login="ghost", id=0)
PLANNED = synthetic.plan()
PULL = Pull(
    HEAD, BASE, open=True, draft=False, base_ref="main", head_repository=7
)  # fmt: skip
PLAN = PlanRecord(
    repository=7,
    pull=2,
    n=1,
    commit=HEAD,
    at=START,
    plan=PLANNED,
    base_ref="main",
    head_repository=7,
    policy="f" * 40,
    code=CODE,
    limit_seconds=7200.0,
)
POLICY = Policy(sha="f" * 40)


def after(seconds: float) -> Any:
    return START + timedelta(seconds=seconds)


def work_of(opener: Person, *authors: Person) -> Contributions:
    """A pull request with a commit of its opener and of each author."""
    people = (opener, *authors)
    return Contributions(
        opener.id,
        tuple(Commit(f"{n:040x}", (), frozenset({who.id})) for n, who in enumerate(people)),
    )


KNOWN: Mapping[Question, Any] = {
    ("pull",): PULL,
    ("policy",): POLICY,
    ("role", "grace"): "maintain",
    ("role", "hugo"): "maintain",
    ("role", "ada"): "maintain",
    ("role", "sam"): "none",
    ("role", "robo[bot]"): "maintain",
    ("role", "ghost"): "maintain",
    ("contributions",): work_of(ADA),
    ("forced",): (),
    ("replan", 1): PLANNED.fingerprint,
    ("replan", 2): PLANNED.fingerprint,
    **{("refusal", p, n, None): None for p in (ADA, GRACE, HUGO, ROBO, GHOST) for n in (1, 2)},
}


def thread(known: Mapping[Question, Any] | None = None, **changes: Any) -> Thread:
    """A pull request whose plan was posted a second after it was made, an hour ago."""
    made = Thread(
        ThreadId(7, 2),
        "r/l",
        "https://github.com/r/l",
        after(3600),
        is_pull=True,
        plans=(PLAN,),
        said={Key.parse("plan.1"): Said("comment", 100, after(1))},
        answers={**KNOWN, **(known or {})},
    )
    return replace(made, **changes)


def said_by(
    who: Person = GRACE,
    seconds: float = 60,
    *,
    via: Literal["comment", "review", "button"] = "comment",
    commit: str | None = None,
) -> Message:
    return Message(50, who, after(seconds), "/run", via=via, commit=commit)


def asked(
    of: Thread, argument: str = CODE, message: Message | None = None, **options: Any
) -> Approval:
    """What becomes of a `/run`."""
    message = message or said_by()
    return rules_approval.run(of, message, message.key(0), argument, **options)


def word(who: Person, at: datetime, review: int = 0, **changes: Any) -> Approval:
    """Somebody's word that the plan may run."""
    (made,) = waiting(who, command=f"r{review}-0" if review else "40-0").values()
    return made.model_copy(update={"at": at, "asked_at": at, **changes})


def refused(of: Thread, argument: str = CODE, message: Message | None = None) -> str:
    """Why a `/run` was refused; the empty string says that it was not."""
    found = asked(of, argument, message)
    assert found.approved == (not found.why)
    return found.why


def launched(
    of: Thread, *words: Approval, of_plan: PlanRecord | None = PLAN
) -> tuple[str, str] | None:
    """Name and clause of what keeps an approved execution from its launch."""
    case = Case(of, which_plan.Wanted("plan", "1"), of_plan, words or (word(GRACE, after(60)),))
    return which_plan.failing(approval_checks.AT_LAUNCH, case)


def void(of: Thread, *words: Approval, of_plan: PlanRecord | None = PLAN) -> str:
    return (launched(of, *words, of_plan=of_plan) or ("", ""))[0]


def now(**changes: Any) -> dict[Question, Any]:
    """The pull request as it is now, with these changes."""
    return {("pull",): replace(PULL, **changes)}


def lab(**changes: Any) -> dict[Question, Any]:
    """The lab's policy, with these changes."""
    return {("policy",): POLICY.model_copy(update=changes)}


# ── What is approved ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("argument", ["", CODE, CODE.upper(), HEAD, HEAD.upper()])
def test_a_run_approves_the_plan_that_it_names_and_says_what_that_rests_on(argument: str) -> None:
    found = asked(thread(), argument)
    assert found.approved
    assert (found.plan, found.commit, found.fingerprint) == (1, HEAD, PLANNED.fingerprint)
    assert (found.policy, found.asked_at, found.by, found.role) == (
        "f" * 40, after(60), GRACE, "maintain",
    )  # fmt: skip


def test_an_execution_names_the_author_of_the_pull_request_beside_who_approved_it() -> None:
    of = thread(plans=(PLAN.model_copy(update={"author": ADA}),))
    origin = rules_approval._execution(of, asked(of, CODE)).origin
    assert origin
    assert (origin.author, origin.approved_by) == (ADA, GRACE)


def test_every_condition_holds_of_a_plain_approval_and_has_a_name_of_its_own() -> None:
    assert refused(thread()) == ""
    assert launched(thread()) is None
    for asked_of in (approval_checks.AT_APPROVAL, approval_checks.AT_LAUNCH):
        names = [condition.__name__ for condition in asked_of]
        assert len(set(names)) == len(names)
    assert approval_checks.AT_APPROVAL[-1].__name__ == "enough_approvers"


def test_each_condition_has_a_test_of_its_name() -> None:
    tests = set(globals())
    for condition in (*approval_checks.AT_APPROVAL, *approval_checks.AT_LAUNCH):
        assert f"test_{condition.__name__}" in tests, condition.__name__


def test_a_code_names_its_own_plan_also_where_a_newer_one_stands() -> None:
    newer = PLAN.model_copy(update={"n": 2, "code": SECOND, "at": after(100)})
    both = thread(plans=(PLAN, newer))
    assert asked(both, CODE).plan == 1
    assert asked(both, SECOND).plan == 2


def test_an_approving_review_approves_the_commit_that_it_is_of() -> None:
    message = said_by(via="review", commit=HEAD)
    known = {("review", 50): Review(50, GRACE, "APPROVED", HEAD, after(60), "/run")}
    found = asked(thread(known), "", message)
    assert found.approved
    assert found.command == "r50-0"
    elsewhere = replace(message, commit=OTHER)
    assert "before there was a plan for `cccccccccccc`" in refused(thread(known), "", elsewhere)


# ── Who ──────────────────────────────────────────────────────────────────────────────────────


def test_known_person() -> None:
    ghost = said_by(GHOST)
    assert "the account that wrote this is gone" in refused(thread(), CODE, ghost).lower()


def test_not_bot() -> None:
    robo = said_by(ROBO)
    assert "`robo[bot]` is an app, and only people can approve" in refused(thread(), CODE, robo)


def test_not_called_off() -> None:
    """A `/cancel` that was written after a `/run` and is heard before it; see homu#178."""

    def after_a_cancel(of: float, command: str = "60-0", **changes: Any) -> str:
        cancel = record.Answered(
            command=command, what="cancel", by=HUGO, at=after(90), yes=False, why="Nothing is …"
        )
        cancel = cancel.model_copy(update={"all_before": after(of), **changes})
        return refused(thread(answered={CommandKey.parse(command): cancel}))

    why = "Hugo wrote `/cancel` after it; post the command again if you still want it."
    assert after_a_cancel(61) == after_a_cancel(60) == why
    assert after_a_cancel(60, "50-1") == after_a_cancel(60, "r3-0") == why
    assert after_a_cancel(59) == after_a_cancel(60, "49-0") == ""
    assert after_a_cancel(61, all_before=None) == ""  # who may not, or one execution only
    both = Message(50, GRACE, after(60), "/cancel\n\n/run")
    before = record.Answered(
        command="50-0", what="cancel", by=GRACE, at=after(90), yes=False, all_before=after(60)
    )
    of = thread(answered={CommandKey.parse("50-0"): before})
    assert rules_approval.run(of, both, both.key(1), CODE).approved


def test_policy_readable() -> None:
    broken = lab(problems=(".github/regatta/policy.yml, line 3: it is wrong",))
    assert refused(thread(broken)) == (
        "Nobody can command runs until this is fixed: "
        ".github/regatta/policy.yml, line 3: it is wrong."
    )
    assert void(thread(broken)) == "policy_readable"


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("none", False),
        ("", False),
        ("read", False),
        ("triage", False),
        ("write", False),
        ("maintain", True),
        ("admin", True),
        ("Admin", False),
        ("maintainers", False),
        ("a custom role", False),
    ],
)
def test_by_default_only_maintain_and_admin_may_approve(role: str, may: bool) -> None:
    why = refused(thread({("role", "grace"): role}))
    assert (why == "") is may
    assert ("`maintain` or `admin` may use `/run` here, and grace has" in why) is not may


def test_role_allowed() -> None:
    assert "grace has the role `write`" in refused(thread({("role", "grace"): "write"}))
    by_name = lab(commands={"run": Permitted(roles=(), people=("Grace",))})
    assert refused(thread({("role", "grace"): "write"} | by_name)) == ""
    assert "Only people with the role" not in refused(thread(by_name), CODE, said_by(HUGO))
    assert "Only Grace may use `/run`" in refused(thread(by_name), CODE, said_by(HUGO))


def test_still_permitted() -> None:
    assert launched(thread({("role", "grace"): "write"})) == (
        "still_permitted", "`grace` is no longer allowed to approve (role: `write`)",
    )  # fmt: skip
    both = word(HUGO, after(60)), word(GRACE, after(70))
    assert void(thread({("role", "hugo"): "none"}), *both) == "still_permitted"


def test_own_allowed() -> None:
    alone = lab(own=False)
    assert refused(thread(), CODE, said_by(ADA)) == ""
    assert "Nobody may approve their own work here" in refused(thread(alone), CODE, said_by(ADA))
    assert refused(thread(alone)) == ""
    wrote = alone | {("contributions",): work_of(ADA, GRACE)}
    assert "grace contributed to this" in refused(thread(wrote))
    assert void(thread(alone), word(ADA, after(60))) == "own_allowed"


def test_a_commit_of_nobody_counts_as_its_pushers_and_without_one_nobody_approves() -> None:
    """palantir/policy-bot#1263: a commit whose address belongs to no account."""
    first, second = "a" * 40, "b" * 40
    commits = Commit(first, (), frozenset({ADA.id})), Commit(second, (first,), frozenset(), True)
    alone = lab(own=False) | {("contributions",): Contributions(ADA.id, commits)}
    answer = refused(thread(alone))
    assert "nobody can tell whose work commit `bbbbbbb` is" in answer
    assert "push it again" in answer
    pushed = Push(START, second, first, by=GRACE.id)
    assert "grace contributed to this" in refused(thread(alone, pushes=(pushed,)))
    pushed = Push(START, second, first, by=HUGO.id)
    assert refused(thread(alone, pushes=(pushed,))) == ""
    large = LARGE | {("contributions",): Contributions(ADA.id, commits)}
    assert "nobody can tell whose work" in refused(thread(large))


def waiting(who: Person, at: float = 60, **changes: Any) -> dict[CommandKey, Approval]:
    """Somebody's approval that waits for another one."""
    made = Approval(
        repository=7,
        pull=2,
        command="40-0",
        by=who,
        role="maintain",
        at=after(at),
        asked_at=after(at),
        approved=False,
        plan=1,
        commit=HEAD,
        waits="One more.",
    )
    made = made.model_copy(update=changes)
    return {CommandKey.parse(made.command): made}


def within(part: record.Narrowing) -> dict[Question, Any]:
    """The lab has room for this part of the plan."""
    return {("refusal", p, 1, part): None for p in (ADA, GRACE, HUGO)}


LARGE = lab(two_approvers_from=12.0)  # what the plan sets aside: two hours of six devices


def test_enough_approvers() -> None:
    first = asked(thread(LARGE))
    assert not first.approved
    assert not first.why
    assert "has to comment `/run k3f2-" in first.waits
    second = asked(thread(LARGE, approvals=waiting(HUGO)))
    assert second.approved
    assert second.besides == ("7/40-0",)
    again = asked(thread(LARGE, approvals=waiting(GRACE)))
    assert again.waits
    renamed = waiting(Person(login="grace-2", id=GRACE.id))
    assert asked(thread(LARGE, approvals=renamed)).waits
    assert asked(thread(lab(two_approvers_from=12.1))).approved
    assert void(thread(LARGE)) == "enough_approvers"
    assert void(thread(LARGE), word(HUGO, after(50)), word(GRACE, after(60))) == ""


@pytest.mark.parametrize(
    ("known", "approvals"),
    [
        ({("role", "hugo"): "write"}, waiting(HUGO)),  # who may not any more
        ({}, waiting(HUGO, -24 * 3600)),
        ({}, waiting(HUGO, plan=3)),
        ({}, waiting(HUGO, waits="", why="No.")),
        *(
            ({("review", 40): review}, waiting(HUGO, command="r40-0"))
            for review in (None, Review(40, HUGO, "DISMISSED", HEAD, START, "/run"))
        ),
        (lab(own=False) | {("contributions",): work_of(ADA, HUGO)}, waiting(HUGO)),
    ],
)
def test_an_approval_that_no_longer_counts_is_not_the_second(
    known: dict[Question, Any], approvals: dict[CommandKey, Approval]
) -> None:
    policy_too = {("policy",): known.get(("policy",), POLICY).model_copy(
        update={"two_approvers_from": 2.0}
    )}  # fmt: skip
    assert asked(thread({**known, **policy_too}, approvals=approvals)).waits


def test_the_second_approver_is_told_the_line_to_type() -> None:
    newer = PLAN.model_copy(update={"n": 2, "code": SECOND, "at": after(100)})
    both = thread(LARGE, plans=(PLAN, newer))
    assert f"has to comment `/run {CODE}`" in asked(both, CODE).waits
    part = record.Narrowing(arms=("fast", "slow"), seeds=(0,))
    small = lab(two_approvers_from=1.0) | within(part)
    words = f"{CODE} arms=slow,fast seeds=0"
    waits = asked(thread(small), words).waits
    assert waits.endswith(f"has to comment `/run {CODE} arms=fast,slow seeds=0`.")
    line = waits.rpartition("`/run ")[2].rstrip("`.")
    first = {CommandKey.parse("40-0"): asked(thread(small), words, replace(said_by(HUGO), id=40))}
    assert asked(thread(small, approvals=first), line).approved


def test_the_second_approver_of_a_repetition_is_told_its_command() -> None:
    approval = asked(thread())
    before = execution_of(thread(), approval)
    failed = record.Result(at=after(65), state="failed")
    ran = Ran(lifecycle.Facts(before, (), None, None, failed), None)
    ended = thread(
        LARGE, approvals={CommandKey.parse(approval.command): approval}, executions=(ran,)
    )
    message = replace(said_by(seconds=70), id=51)
    again = asked(ended, "", message, what="retry", before=before)
    assert again.waits.endswith(f"has to comment `/retry {before.id}`.")


def test_a_button_is_as_old_as_its_press_and_not_as_its_check_run() -> None:
    approval = asked(thread())
    before = execution_of(thread(), approval)
    failed = record.Result(at=after(65), state="failed")
    ran = Ran(lifecycle.Facts(before, (), None, None, failed), None)
    late = after(9 * 86_400)
    ended = thread(
        approvals={CommandKey.parse(approval.command): approval}, executions=(ran,), now=late
    )
    pressed = replace(said_by(via="button"), identifier="retry")
    again = asked(ended, "", pressed, what="retry", before=before)
    assert again.approved
    assert again.asked_at == late
    written = replace(said_by(), id=51)
    assert "more than 24 hours old" in asked(ended, "", written, what="retry", before=before).why


def test_an_execution_rests_on_both_approvals() -> None:
    first = waiting(HUGO)
    second = asked(thread(LARGE, approvals=first))
    done = thread(LARGE, approvals=first | {CommandKey.parse(second.command): second})
    (written,) = [action for action in rules_approval.follow(done) if isinstance(action, Write)]
    assert isinstance(written.record, record.Execution)
    assert written.record.approvals == ("7/40-0", "7/50-0")
    assert written.record.limit_seconds == 7200
    assert [one.by for one in rules_approval.words_of(done, written.record)] == [HUGO, GRACE]


def test_not_author_or_committer() -> None:
    assert "and ada contributed to this" in refused(thread(LARGE), CODE, said_by(ADA))
    wrote = LARGE | {("contributions",): work_of(ADA, GRACE)}
    assert "and grace contributed to this" in refused(thread(wrote))
    both = word(HUGO, after(50)), word(GRACE, after(60))
    assert void(thread(wrote), *both) == "not_author_or_committer"
    assert refused(thread(), CODE, said_by(ADA)) == ""


# ── Which plan ───────────────────────────────────────────────────────────────────────────────


def test_on_pull_request() -> None:
    assert "comment on the pull request" in refused(thread(is_pull=False))


def test_not_restored() -> None:
    assert "lost its records" in refused(thread(restored=after(60)))
    assert refused(thread(restored=after(59))) == ""
    assert void(thread(restored=after(60))) == "not_restored"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (HEAD[:7], "is a shortened SHA"),
        (HEAD[:39], "is a shortened SHA"),
        ("please", "is neither a plan's code nor"),
        (HEAD + "a", "is neither a plan's code nor"),
        (CODE[:-1], "is neither a plan's code nor"),
        (f"--plan {CODE}", "is neither a plan's code nor"),
    ],
)
def test_code_or_sha(argument: str, words: str) -> None:
    why = refused(thread(), argument)
    assert words in why
    assert f"comment `/run {CODE}`" in why


def test_narrow_only() -> None:
    for words, why in (
        ("learning_rate=3", "`learning_rate=3` is neither"),
        ("arms=fast,faster", "The plan has no arm `faster`"),
        ("seeds=7", "The plan has no seed `7`"),
        ("kind=cpu", "`kind=cpu` is neither"),
    ):
        for first in (f"{CODE} ", ""):
            refusal = refused(thread(), f"{first}{words}")
            assert why in refusal
            assert "To run something else, push it" in refusal


def execution_of(of: Thread, approval: Approval) -> record.Execution:
    done = replace(of, approvals={**of.approvals, CommandKey.parse(approval.command): approval})
    (written,) = [action for action in rules_approval.follow(done) if isinstance(action, Write)]
    assert isinstance(written.record, record.Execution)
    return written.record


def test_a_subset_is_recorded_as_a_deviation() -> None:
    slow = PLANNED.cost.model_copy(update={"seconds": (400.0, 1000.0)})
    plan = PLAN.model_copy(update={"plan": PLANNED.model_copy(update={"cost": slow})})
    part = record.Narrowing(arms=("fast",), seeds=(0, 1))
    known = {("replan", 1): PLANNED.fingerprint} | within(part)
    of = thread(known, plans=(plan.model_copy(update={"limit_seconds": 9000.0}),))
    approval = asked(of, f"{CODE} arms=fast seeds=0, 1")
    assert approval.narrowing == part
    assert approval.fingerprint == PLANNED.fingerprint
    execution = execution_of(of, approval)
    assert execution.plan.runs() == [("fast", 0), ("fast", 1)]
    assert execution.plan.fingerprint != PLANNED.fingerprint
    assert execution.limit_seconds == 3600
    assert execution.deviations == (
        "It leaves out 1 of 2 arms: `slow`.",
        "It leaves out 1 of 3 seeds: 2.",
    )

    # What runs once more is the same part of the plan.
    failed = record.Result(at=after(65), state="failed")
    ran = Ran(lifecycle.Facts(execution, (), None, None, failed), None)
    ended = replace(of, approvals={CommandKey.parse(approval.command): approval}, executions=(ran,))
    message = replace(said_by(seconds=70), id=51)
    again = asked(ended, "", message, what="retry", before=execution)
    assert again.approved
    assert again.narrowing == approval.narrowing


def test_two_people_approve_the_same_part_of_a_plan() -> None:
    part = record.Narrowing(seeds=(0,))
    small = lab(two_approvers_from=1.0) | within(part)
    of = thread(small, approvals=waiting(HUGO, narrowing=part))
    assert asked(of, CODE).waits
    assert asked(of, f"{CODE} seeds=0").approved


def test_two_people_are_needed_for_the_size_of_what_remains() -> None:
    part = record.Narrowing(seeds=(0,))
    of = thread(LARGE | within(part))
    assert asked(of, CODE).waits
    approval = asked(of, f"{CODE} seeds=0")  # it may take an hour, the whole two
    assert approval.approved
    assert launched(of, word(GRACE, after(60), narrowing=part)) is None
    assert launched(of) is not None
    execution = execution_of(of, approval)
    ran = Ran(lifecycle.Facts(execution, (), None, None, None), None)
    held = replace(of, approvals={CommandKey.parse(approval.command): approval}, executions=(ran,))
    assert rules_approval.words_of(held, execution)[-1].narrowing == part


def test_the_budget_counts_only_the_approved_subset() -> None:
    part = record.Narrowing(seeds=(0,))
    whole = {("refusal", GRACE, 1, None): "The budget is spent."}
    assert refused(thread(whole | within(part))) == "The budget is spent."
    assert refused(thread(whole | within(part)), f"{CODE} seeds=0") == ""


@pytest.mark.parametrize(
    ("of", "argument", "seconds"),
    [
        (thread(said={}), "", 60),
        (thread(said={}), HEAD, 60),
        (thread(), "", 1),  # in the same second as the plan's comment
        (thread(), HEAD, 1),
        (thread(), "z" * 4 + CODE[4:], 60),
        (thread(), OTHER, 60),
        # A comment from before the plan, which somebody has edited to bear its mark.
        (thread(said={Key.parse("plan.1"): Said("comment", 9, after(-60))}), "", 60),
    ],
)
def test_plan_there(of: Thread, argument: str, seconds: float) -> None:
    why = refused(of, argument, said_by(seconds=seconds))
    assert re.search("^No plan|before there was a plan", why)

    assert void(thread(plans=()), of_plan=None) == "plan_there"


@pytest.mark.parametrize("argument", ["", CODE, HEAD, HEAD[:12], "please"])
def test_any_plan(argument: str) -> None:
    why = refused(thread(plans=(), said={}), argument)
    assert why == (
        "There is no plan here; one comes when the branch changes an experiment, which is a folder "
        "in `experiments/`; then comment the line that it shows."
    )


def test_plan_whole() -> None:
    wrong = PLAN.model_copy(update={"plan": None, "problems": ("it is wrong",)})
    assert "lists problems" in refused(thread(plans=(wrong,)), HEAD)
    assert void(thread(plans=(wrong,)), of_plan=wrong) == "plan_whole"


@pytest.mark.parametrize("via", ["comment", "review"])
def test_one_plan(via: Any) -> None:
    """A commit was planned twice, and who names it can have read either."""
    stands = {("review", 50): Review(50, GRACE, "APPROVED", HEAD, after(700), "/run")}
    message = said_by(seconds=700, via=via, commit=HEAD if via == "review" else None)
    argument = "" if via == "review" else HEAD
    bigger = PLANNED.model_copy(update={"fingerprint": "9" * 64})
    for changes in ({"base_ref": "y"}, {"plan": bigger}, {"isolation": "trusted"}):
        older = PLAN.model_copy(update=changes)
        newer = PLAN.model_copy(update={"n": 2, "code": SECOND, "at": after(600)})
        there = {
            Key.parse("plan.1"): Said("comment", 100, after(1)),
            Key.parse("plan.2"): Said("comment", 101, after(601)),
        }
        both = thread(stands, plans=(older, newer), said=there)
        why = refused(both, argument, message)
        assert "Commit `aaaaaaaaaaaa` has several plans" in why
        assert f"comment `/run {SECOND}`" in why
        assert refused(both, SECOND, said_by(seconds=700)) == ""
    same = PLAN.model_copy(update={"n": 2, "code": SECOND, "at": after(600)})
    assert refused(thread(stands, plans=(PLAN, same), said=there), argument, message) == ""
    wrong = PLAN.model_copy(update={"plan": None, "problems": ("it is wrong",)})
    assert refused(thread(stands, plans=(wrong, same), said=there), argument, message) == ""


def test_younger_than_24h() -> None:
    day = 24 * 3600
    late = thread(now=after(60 + day))
    assert "more than 24 hours old" in refused(late)
    assert void(late) == "younger_than_24h"
    early = thread(now=after(60 + day - 1))
    assert refused(early) == ""
    assert void(early) == ""


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (None, "was dismissed"),
        (Review(50, GRACE, "DISMISSED", HEAD, after(60), "/run"), "was dismissed"),
        (Review(50, GRACE, "COMMENTED", HEAD, after(60), "/run"), "does not approve"),
        (Review(50, GRACE, "CHANGES_REQUESTED", HEAD, after(60), ""), "does not approve"),
        (Review(50, GRACE, "APPROVED", OTHER, after(60), "/run"), "is of another commit"),
    ],
)
def test_review_stands(now: Review | None, words: str) -> None:
    known = {("review", 50): now}
    message = said_by(via="review", commit=HEAD)
    assert words in refused(thread(known), "", message)
    assert void(thread(known), word(GRACE, after(60), review=50)) == "review_stands"


def test_same_repository() -> None:
    for elsewhere in (8, None):
        fork = thread(now(head_repository=elsewhere))
        why = refused(fork, "")
        assert "needs the code of the plan" in why
        assert f"comment `/run {CODE}`" in why
        assert refused(fork, CODE) == ""
        assert refused(fork, HEAD) == ""


def test_settled() -> None:
    assert "less than 30 seconds earlier" in refused(thread(), "", said_by(seconds=30.5))
    assert refused(thread(), "", said_by(seconds=31)) == ""
    assert refused(thread(), CODE, said_by(seconds=2)) == ""
    quick = lab(settle_seconds=5)
    assert refused(thread(quick), "", said_by(seconds=6)) == ""
    assert "less than 5 seconds" in refused(thread(quick), "", said_by(seconds=5))


@pytest.mark.parametrize(
    "pushes",
    [
        (Push(after(20), OTHER), Push(after(21), HEAD)),  # A → B → A
        (Push(after(20), HEAD),),
        (Push(after(0), OTHER), Push(after(0), HEAD)),  # all in the second of the plan
    ],
)
def test_no_push_between(pushes: tuple[Push, ...]) -> None:
    why = refused(thread(pushes=pushes), "")
    assert "The branch changed after plan 1" in why
    assert f"comment `/run {CODE}`" in why
    assert refused(thread(pushes=pushes), CODE) == ""
    assert refused(thread({("forced",): pushes}), "") == why  # no delivery told of it


def test_a_newer_plan_of_the_same_commit_is_a_change_in_between() -> None:
    newer = PLAN.model_copy(update={"n": 2, "code": SECOND, "at": after(100)})
    both = thread(plans=(PLAN, newer))
    assert f"comment `/run {SECOND}`" in refused(both, "")


def test_the_planned_push_itself_is_no_later_push() -> None:
    pushes = (Push(after(-30), OTHER), Push(after(0), HEAD))
    assert refused(thread(pushes=pushes), "") == ""


# ── The pull request now ─────────────────────────────────────────────────────────────────────


def test_pull_open() -> None:
    for gone in (now(open=False), {("pull",): None}):
        assert "The pull request is closed" in refused(thread(gone))
        assert void(thread(gone)) == "pull_open"


def test_not_draft() -> None:
    assert "is a draft" in refused(thread(now(draft=True)))
    assert void(thread(now(draft=True))) == "not_draft"


def test_same_head() -> None:
    for argument in ("", CODE, HEAD):
        why = refused(thread(now(head=OTHER)), argument)
        assert "The branch has moved" in why
        assert "from `aaaaaaaaaaaa` (plan 1) to `cccccccccccc`" in why
    assert void(thread(now(head=OTHER))) == "same_head"


def test_same_base_ref() -> None:
    elsewhere = thread(now(base_ref="release"))
    assert "The base branch changed from `main` (plan 1) to `release`" in refused(elsewhere)
    assert void(elsewhere) == "same_base_ref"


def test_a_base_branch_that_moves_forward_voids_nothing() -> None:
    forward = thread(now(base="d" * 40))
    assert refused(forward) == ""
    assert void(forward) == ""


def test_same_fingerprint() -> None:
    for other in ("0" * 64, None):
        upgraded = thread({("replan", 1): other})
        assert "The lab's code has changed since plan 1" in refused(upgraded)
        assert void(upgraded) == "same_fingerprint"


def test_kind_allowed() -> None:
    assert "does not allow `cpu`" in refused(thread(lab(kinds=("h100",))))
    assert refused(thread(lab(kinds=("h100", "cpu")))) == ""
    assert void(thread(lab(kinds=()))) == "kind_allowed"


def test_isolation() -> None:
    own = PLANNED.model_copy(update={"compiled": True})
    plan = PLAN.model_copy(update={"plan": own})
    bare = thread(plans=(plan,))
    assert "its own Python code (`experiment.py`, its declaration)" in refused(bare)
    case = Case(bare, which_plan.Wanted("plan", "1"), plan, (word(GRACE, after(60)),))
    assert (which_plan.failing(approval_checks.AT_LAUNCH, case) or [""])[0] == "isolation"
    isolated = thread(plans=(plan,), isolation="bubblewrap")
    assert "does not run, but here it now runs in isolation" in refused(isolated)
    read = plan.model_copy(update={"isolation": "bubblewrap"})
    isolated = replace(isolated, plans=(read,))
    assert refused(isolated) == ""
    case = replace(case, found=read, thread=isolated)
    assert which_plan.failing(approval_checks.AT_LAUNCH, case) is None
    trusted = replace(isolated, isolation="trusted")
    assert "here it now runs without isolation" in refused(trusted)
    assert (which_plan.failing(approval_checks.AT_LAUNCH, replace(case, thread=trusted)) or [""])[0]


def test_not_running() -> None:
    earlier = waiting(HUGO, approved=True, waits="")
    assert "already has an execution" in refused(thread(approvals=earlier))


def test_budget() -> None:
    full = {("refusal", GRACE, 1, None): "There is nothing left."}
    assert refused(thread(full)) == "There is nothing left."


# ── Agents ───────────────────────────────────────────────────────────────────────────────────

MIRA = record.Agent(login="mira", id=31, sponsor="grace")
AGENTS = {"mira": Allowance(sponsor="grace", device_hours_per_month=100, gate_1="policy")}
OF_MIRA = PLAN.model_copy(update={"agent": MIRA})


def of_agent(known: Mapping[Question, Any] | None = None, **changes: Any) -> Thread:
    """A pull request that an agent opened."""
    agents = changes.pop("agents", AGENTS)
    own = now(author=Person(login="mira", id=31)) | lab(agents=agents)
    own |= {("proposals", 31): (2,), ("refusal", MIRA, 1, None): None}
    pushed = Push(after(-60), HEAD, by=31)
    return thread(own | dict(known or {}), **{"plans": (OF_MIRA,), "pushes": (pushed,), **changes})


def test_agent_kinds() -> None:
    gpus = {"mira": AGENTS["mira"].model_copy(update={"kinds": ("h100", "a100")})}
    why = refused(of_agent(agents=gpus))
    assert "The plan asks for `cpu`, and the policy gives this agent `h100`, `a100`" in why
    assert why.endswith("declare one of these as `kind` of `resources`.")
    assert void(of_agent(agents=gpus)) == "agent_kinds"
    assert refused(of_agent()) == ""
    assert refused(thread(lab(agents=gpus))) == "", "people's plans are no agent's"


def test_agent_proposals() -> None:
    one = {"mira": AGENTS["mira"].model_copy(update={"open_proposals": 1})}
    older = {("proposals", 31): (1, 2, 5)}
    why = refused(of_agent(older, agents=one))
    assert "gives this agent 1 open pull requests at a time" in why
    assert "it has 1 older ones (pull request 1); close or merge one, then comment `/plan`" in why
    assert refused(of_agent({("proposals", 31): (2, 5)}, agents=one)) == ""


@pytest.mark.parametrize("login", ["mira", "MIRA"])
def test_an_agent_approves_nothing_whatever_its_role_and_on_whosesoever_pull_request(
    login: str,
) -> None:
    mira = Person(login=login, id=31)
    named = lab(agents=AGENTS, commands={"run": Permitted(people=("mira",))})
    for of in (thread(named), of_agent()):  # its role is not even asked
        assert "is an agent, and agents never approve anything" in refused(of, CODE, said_by(mira))
    assert void(thread(named), word(mira, after(60))) == "still_permitted"


def test_who_answers_for_an_agent_has_a_part_in_what_it_proposes() -> None:
    alone = lab(own=False, agents=AGENTS)
    assert "grace contributed to this" in refused(of_agent(alone))
    assert refused(of_agent(alone), CODE, said_by(HUGO)) == ""


def test_what_the_policy_approved_starts_only_while_the_policy_would_approve_it() -> None:
    by_policy = word(record.policy_at("f" * 40), after(60), heard=record.POLICY)
    assert void(of_agent(), by_policy, of_plan=OF_MIRA) == ""
    itself = {
        CommandKey.parse(by_policy.command): by_policy.model_copy(
            update={"approved": True, "fingerprint": PLANNED.fingerprint}
        )
    }
    assert void(of_agent(approvals=itself), by_policy, of_plan=OF_MIRA) == ""
    gone = launched(of_agent(agents={}), by_policy, of_plan=OF_MIRA)
    assert gone == (
        "still_permitted",
        "the policy no longer approves this by itself: the policy does not name the author of the "
        "pull request as an agent",
    )
    careful = {"mira": AGENTS["mira"].model_copy(update={"gate_1": "maintainer"})}
    assert void(of_agent(agents=careful), by_policy, of_plan=OF_MIRA) == "still_permitted"
    other = by_policy.model_copy(
        update={
            "command": "p2-9",
            "approved": True,
            "fingerprint": PLANNED.fingerprint,
        }
    )
    before = of_agent(approvals={CommandKey.parse("p2-9"): other})
    assert void(before, by_policy, of_plan=OF_MIRA) == "still_permitted"
