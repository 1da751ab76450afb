"""The lab's stories on the sandbox: a comment arrives, the bot answers this."""

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from bot.fake_github.world.faults import Fault
from runner.publish import charts
from tests import stub_trainer
from tests.scenarios.lab import EXPERIMENT, READING, TEXT, Lab, Mode, a_lab, form_body
from tests.stub_trainer import StubJob, StubRay

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0"
    "000003010100c9fe92ef0000000049454e44ae426082"
)
FILE = "experiments/warm/experiment.yaml"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of one pixel: to draw a real one takes a second."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)


@pytest.fixture(params=["server", pytest.param("actions", marks=pytest.mark.long)])
def mode(request: pytest.FixtureRequest) -> Mode:
    """How the bot runs: every story is told in both ways."""
    return request.param


@pytest.fixture
def lab(tmp_path: Path, drawn: None, mode: Mode) -> Iterator[Lab]:  # noqa: ARG001
    """A lab whose trainer is done at once."""
    with a_lab(tmp_path, mode=mode) as lab:
        yield lab


@pytest.fixture
def slow_lab(tmp_path: Path, drawn: None, mode: Mode) -> Iterator[Lab]:  # noqa: ARG001
    """A lab whose trainer takes steps only when it is told to."""
    with a_lab(tmp_path, StubRay(pace=0), mode=mode) as lab:
        yield lab


@pytest.fixture
def lab_with(
    tmp_path: Path,
    drawn: None,  # noqa: ARG001
    mode: Mode,
) -> Iterator[Callable[[StubRay], Lab]]:
    """Makes a lab with a trainer of one's own."""
    opened = []

    def make(trainer: StubRay) -> Lab:
        context = a_lab(tmp_path, trainer, mode=mode)
        opened.append(context)
        return context.__enter__()

    yield make
    for context in opened:
        context.__exit__(None, None, None)


def tell(lab: Lab, who: str, number: int, body: str) -> None:
    """Somebody comments while an execution lives, which is never at rest."""
    lab.clock.advance(1)
    lab.sandbox.comment(who, number, body)
    lab.look()


def begun(lab: Lab) -> int:
    """A pull request whose execution trains, 24 steps of 96 taken; the issue is #1."""
    lab.preregister()
    pull = lab.propose()
    tell(lab, "grace", pull, "/run")
    lab.trainer.advance(1 + 24)  # the text is a step, too
    lab.look(20)
    return pull


def finish(lab: Lab) -> None:
    """Let everything that runs come to its end."""
    lab.trainer.pace = None
    lab.settle()


def push(lab: Lab, declaration: str, settle: bool = True) -> str:
    lab.clock.advance(1)
    sha = lab.sandbox.commit("ada", "warm", {FILE: declaration.encode()}, "Another thought")
    if settle:
        lab.settle()
    return sha


def reactions(lab: Lab, number: int) -> list[tuple[str, list[str]]]:
    """People's comments on a thread with the bot's reactions to them. In a climate, 👀 may come
    late."""
    return [
        (
            comment.body,
            sorted(
                (reaction.content for reaction in comment.reactions),
                key=lambda content: lab.climate is not None and content != "eyes",
            ),
        )
        for comment in lab.sandbox.issue(number).comments
        if not lab.sandbox.is_app(comment.user)
    ]


def checks(lab: Lab, number: int) -> list[tuple[str, str, str | None]]:
    """Name, status and conclusion of the checks on a pull request's head, oldest first."""
    head = lab.sandbox.pull(number).pull
    assert head is not None
    found = lab.sandbox.check_runs(head.head_sha, every=True)
    return [(run.name, run.status, run.conclusion) for run in reversed(found)]


def executions(lab: Lab) -> list[str]:
    """Ids of all executions, in the order of their approvals."""
    approvals = [fact for fact in lab.records("approvals").values() if fact["approved"]]
    found = {path.partition("/")[0] for path in lab.records("executions")}
    assert len(found) == len(approvals)
    by_approval = {
        fact["origin"]["approval"]: fact["id"]
        for path, fact in lab.records("executions").items()
        if path.endswith("/execution.json")
    }
    keys = sorted(approvals, key=lambda fact: int(fact["command"].lstrip("rb").partition("-")[0]))
    return [by_approval[f"{fact['repository']}/{fact['command']}"] for fact in keys]


def results(lab: Lab) -> list[dict]:  # type: ignore[type-arg]
    return [lab.records("executions").get(f"{x}/result.json", {}) for x in executions(lab)]


def bpb(lab: Lab) -> dict[str, float]:
    """The figure of every run on record."""
    return {
        path.removesuffix(".json").partition(".")[2]: fact["evaluated"]["bpb"]
        for path, fact in lab.records("runs").items()
        if fact["evaluated"]
    }


HONEST = {
    f"{arm}.s{n}": (2.4 if arm == "fast" else 3.2) + n / 100
    for arm in ("fast", "slow")
    for n in range(3)
}


# ── The whole story ──────────────────────────────────────────────────────────────────────────


def test_an_issue_a_plan_an_approval_and_the_verdict_where_the_question_was_asked(
    tmp_path: Path,
) -> None:
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        # Ada preregisters; the bot says what it understood and seals it.
        issue = lab.preregister()
        sealed = lab.last(issue)
        assert "`eval/bpb` of `fast` minus `slow` is **< -0.05** — 80\u00a0%\u00a0sure" in sealed
        assert "`eval/bpb` of `fast` is **1 ± 0.2** — 60\u00a0%\u00a0sure" in sealed
        assert "A tenfold warmer learning rate learns more in 16 steps." in sealed
        seal = lab.records("preregistrations")["700001/1/1.json"]
        assert seal["author"]["login"] == "ada"
        assert lab.labels(issue) == ["experiment: wishlist"]

        # Ada declares the experiment; the bot runs nothing and says what would run.
        pull = lab.propose()
        plan = lab.records("plans")[f"700001/{pull}/1.json"]
        assert "**6 runs** (2 arms × 3 seeds) · 6,144 tokens" in lab.last(pull)
        for fact in (plan["commit"], plan["plan"]["fingerprint"], "| `slow` | 0.0003 | 13,392 |"):
            assert fact in lab.last(pull)
        assert checks(lab, pull) == [("regatta / plan", "completed", "success")]
        assert lab.labels(issue) == ["experiment: planned"]
        assert lab.trainer.submissions == []

        # Sam, a stranger, is refused.
        lab.say("sam", pull, "/run")
        assert "sam has no role in this repository" in lab.last(pull)
        assert "`maintain` or `admin`" in lab.last(pull)
        assert reactions(lab, pull) == [("/run", ["eyes", "confused"])]
        assert lab.trainer.submissions == []
        assert lab.labels(issue) == ["experiment: planned"]

        # Grace approves; one status comment follows the execution by edits.
        tell(lab, "grace", pull, "/run")
        lab.trainer.advance(1 + 24)  # the text is a step, too
        lab.look(20)
        (execution,) = executions(lab)
        assert reactions(lab, pull)[1] == ("/run", ["eyes", "rocket"])
        assert lab.labels(issue) == ["experiment: running"]
        assert lab.last(pull).startswith("### 🏃 Training")
        assert "25 %" in lab.last(pull)
        assert "| `slow.s0` | 16 / 16 |" in lab.last(pull)
        assert "| `slow.s1` | 8 / 16 |" in lab.last(pull)
        assert checks(lab, pull)[1:] == [(f"regatta / {execution}", "in_progress", None)]
        comments = len(lab.comments(pull))

        # The answer: a new comment, its verdict first, with the curves as a picture.
        finish(lab)
        assert len(lab.comments(pull)) == comments + 1
        assert lab.comments(pull)[-2].startswith("🏁 This execution has ended")
        first, second, third = [line for line in lab.last(pull).splitlines() if line][:3]
        assert first == (
            "## ✅ `fast` beats `slow` by **0.8000 bits per byte** (95 % CI 0.8000 to 0.8000, "
            "3 seeds)"
        )
        assert second == "**Confirmed.** ada predicted: by more than 0.05, 80\u00a0%\u00a0sure."
        assert third.startswith("❌ **Refuted**: `fast` scores **")
        assert "ada predicted: within 1 ± 0.2, " in third
        assert "| `fast` | 2.410 ± 0.010 | 2.4000, 2.4100, 2.4200 |" in lab.last(pull)
        picture = re.search(r"!\[.*?\]\((http\S+/raw/([0-9a-f]{40})/(\S+\.png))\)", lab.last(pull))
        assert picture
        kept = lab.sandbox.world.git.file(picture[2], picture[3])
        assert kept is not None
        assert kept.startswith(b"\x89PNG\r\n\x1a\n")
        assert requests.get(picture[1], timeout=10).content == kept
        assert checks(lab, pull)[1:] == [(f"regatta / {execution}", "completed", "success")]
        assert lab.last(issue).startswith(first)
        (check,) = [one for one in lab.sandbox.world.checks.values() if execution in one.name]
        assert (check.summary or "").startswith(first)
        assert lab.labels(issue) == ["experiment: done"]
        assert lab.labels(pull) == []
        assert bpb(lab) == pytest.approx(HONEST)


def test_the_issue_goes_from_label_to_label_and_is_never_without_and_the_pull_request_has_none(
    slow_lab: Lab,
) -> None:
    lab = slow_lab
    seen = _watch_labels(lab, lambda: (begun(lab), finish(lab)))
    states = [f"experiment: {name}" for name in ("wishlist", "planned", "running", "done")]
    between = [pair for old, new in itertools.pairwise(states) for pair in ({old, new}, {new})]
    assert seen == [{"experiment: wishlist"}, *between]
    assert lab.labels(2) == []


def _watch_labels(lab: Lab, story: Callable[[], object]) -> list[set[str]]:
    """Tell a story; the labels that each request for labels left, one after the other."""
    set_labels, seen = lab.sandbox.set_labels, list[set[str]]()

    def watched(login: str, number: int, names: object) -> object:
        done = set_labels(login, number, names)  # type: ignore[arg-type]
        assert number == 1
        seen.append(set(lab.labels(number)))
        return done

    lab.sandbox.set_labels = watched  # type: ignore[method-assign,assignment]
    story()
    return seen


# ── What an approval is good for ─────────────────────────────────────────────────────────────


def test_a_push_after_the_plan_voids_a_bare_run(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    old = lab.records("plans")[f"700001/{pull}/1.json"]["commit"]
    lab.clock.advance(1)
    # The push and the command arrive together: nobody can have read the new plan.
    new = push(lab, EXPERIMENT.replace("0.003,", "0.004,"), settle=False)
    lab.say("grace", pull, "/run")
    refusal = next(c for c in lab.comments(pull) if c.startswith("**Not done:**"))
    assert "The branch has moved from" in refusal
    assert old[:12] in refusal
    assert new[:12] in refusal
    assert any(c.startswith("### Plan 2:") and new in c for c in lab.comments(pull))
    assert lab.trainer.submissions == []
    lab.say("grace", pull, "/run")
    assert results(lab)[0]["state"] == "done"
    assert (
        lab.records("executions")[f"{executions(lab)[0]}/execution.json"]["origin"]["commit"] == new
    )


def test_going_back_to_an_earlier_commit_is_a_new_plan_that_can_run(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    first = lab.records("plans")[f"700001/{pull}/1.json"]
    push(lab, EXPERIMENT.replace("0.003,", "0.004,"))
    lab.clock.advance(1)
    lab.sandbox.update_ref("ada", "refs/heads/warm", first["commit"], force=True)
    lab.settle()
    third = lab.records("plans")[f"700001/{pull}/3.json"]
    assert third["commit"] == first["commit"]
    assert third["plan"] == first["plan"]
    lab.say("grace", pull, "/run")
    assert lab.records("executions")[f"{executions(lab)[0]}/execution.json"]["origin"]["plan"] == 3
    assert results(lab)[0]["state"] == "done"


def test_a_push_between_approval_and_launch_voids_it_visibly(slow_lab: Lab) -> None:
    lab = slow_lab
    lab.preregister()
    pull = lab.propose()
    lab.trainer.reachable = False
    tell(lab, "grace", pull, "/run")
    (execution,) = executions(lab)
    assert lab.labels(1) == ["experiment: running"]
    push(lab, EXPERIMENT.replace("0.003,", "0.004,"), settle=False)
    lab.trainer.reachable = True
    lab.settle()
    assert lab.trainer.submissions == []
    assert results(lab)[0]["state"] == "voided"
    (told,) = [c for c in lab.comments(pull) if c.startswith("## 🛑 Not started")]
    assert "the branch has moved from" in told
    run = next(r for r in lab.sandbox.world.checks.values() if execution in r.name)
    assert (run.status, run.conclusion) == ("completed", "cancelled")
    assert lab.labels(1) == ["experiment: planned"]
    # The new plan can be approved.
    lab.trainer.pace = None
    lab.say("grace", pull, "/run")
    assert [result["state"] for result in results(lab)] == ["voided", "done"]
    assert lab.labels(1) == ["experiment: done"]


def test_an_approver_who_loses_the_role_before_the_launch_has_approved_nothing(
    slow_lab: Lab,
) -> None:
    lab = slow_lab
    lab.preregister()
    pull = lab.propose()
    lab.trainer.reachable = False
    tell(lab, "grace", pull, "/run")
    lab.sandbox.set_role("grace", "write")
    lab.trainer.reachable = True
    lab.settle()
    assert lab.trainer.submissions == []
    assert "`grace` is no longer allowed to approve (role: `write`)" in lab.last(pull)
    assert results(lab)[0]["state"] == "voided"


def test_a_pull_request_closed_before_the_launch_is_not_launched(slow_lab: Lab) -> None:
    lab = slow_lab
    lab.preregister()
    pull = lab.propose()
    lab.trainer.reachable = False
    tell(lab, "grace", pull, "/run")
    lab.sandbox.edit_issue("ada", pull, state="closed")
    lab.trainer.reachable = True
    lab.settle()
    assert lab.trainer.submissions == []
    assert "The approval no longer held: the pull request is closed" in lab.last(pull)
    lab.say("grace", pull, "/run")
    assert "The pull request is closed" in lab.last(pull)


def test_the_role_counts_at_the_moment_of_the_command(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    for role, answer in ((None, "has no role"), ("write", "has the role `write`")):
        lab.sandbox.set_role("grace", role)
        lab.say("grace", pull, "/run")
        assert answer in lab.last(pull)
    assert lab.trainer.submissions == []
    lab.sandbox.set_role("sam", "admin")
    lab.say("sam", pull, "/run")
    assert results(lab)[0]["state"] == "done"


@pytest.mark.calm("in a climate, seconds pass after the plan")
def test_a_command_in_the_same_second_as_the_plan_is_refused(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose(reading=0)
    lab.sandbox.comment("grace", pull, "/run")
    lab.settle()
    assert "This was written before there was a plan" in lab.last(pull)
    assert lab.trainer.submissions == []
    lab.say("grace", pull, "/run")
    assert results(lab)[0]["state"] == "done"


# ── Once ─────────────────────────────────────────────────────────────────────────────────────


def test_a_second_run_of_the_same_plan_is_refused_and_names_the_execution(slow_lab: Lab) -> None:
    lab = slow_lab
    pull = begun(lab)
    (execution,) = executions(lab)
    tell(lab, "grace", pull, "/run")
    assert f"This plan already has an execution: `{execution}` is running" in lab.last(pull)
    finish(lab)
    lab.say("grace", pull, "/run")
    assert f"`{execution}` is done" in lab.last(pull)
    assert executions(lab) == [execution]


@pytest.mark.parametrize("together", [["/run\n\n/run"], ["/run", "/run"]])
def test_two_runs_that_are_heard_at_once_start_one_execution(lab: Lab, together: list[str]) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.clock.advance(1)
    for body in together:
        lab.sandbox.comment("grace", pull, body)
    lab.settle()
    (execution,) = executions(lab)
    assert sum(f"`{execution}` is " in c for c in lab.comments(pull)) == 1
    assert len(lab.trainer.submissions) == 1


def test_a_run_delivered_twice_under_another_id_has_one_answer(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.say("sam", pull, "/run")
    lab.say("grace", pull, "/run")
    before = lab.comments(pull)
    for delivery in list(lab.sandbox.webhooks.deliveries):
        if delivery.event == "issue_comment":
            assert lab.gate is not None
            replayed = {**delivery.headers, "X-GitHub-Delivery": f"again-{delivery.id}"}
            status, _ = lab.gate.receive(replayed, delivery.body)
            assert status == 202 or b'"type":"Bot"' in delivery.body
    lab.settle()
    assert lab.comments(pull) == before
    assert len(executions(lab)) == 1


def test_a_cancel_delivered_again_later_does_not_stop_what_began_after_it(slow_lab: Lab) -> None:
    lab = slow_lab
    pull = begun(lab)
    tell(lab, "grace", pull, "/cancel")
    lab.settle()
    cancel = lab.sandbox.webhooks.deliveries[-1]
    cancel = next(
        delivery
        for delivery in reversed(lab.sandbox.webhooks.deliveries)
        if b'"body":"/cancel"' in delivery.body
    )
    tell(lab, "grace", pull, "/run")
    assert lab.gate is not None
    lab.gate.receive({**cancel.headers, "X-GitHub-Delivery": "again"}, cancel.body)
    lab.look()
    finish(lab)
    assert [result["state"] for result in results(lab)] == ["cancelled", "done"]


@pytest.mark.parametrize("ending", ["cancelled", "failed"])
def test_after_an_execution_that_came_to_nothing_a_new_run_works(
    slow_lab: Lab, ending: str
) -> None:
    lab = slow_lab
    lab.trainer.saves_every = 16
    pull = begun(lab)
    if ending == "cancelled":
        tell(lab, "grace", pull, "/cancel")
    else:
        lab.trainer.die_after = {"t1": 1, "t2": 1, "t3": 1, "t4": 1}  # the first one got further
        lab.trainer.pace = 1
    lab.settle()
    assert results(lab)[0]["state"] == ending
    lab.trainer.die_after = {}
    lab.trainer.pace = None
    lab.say("grace", pull, "/run")
    assert [result["state"] for result in results(lab)] == [ending, "done"]
    assert lab.labels(1) == ["experiment: done"]
    assert bpb(lab) == pytest.approx(HONEST)


# ── Other commands ───────────────────────────────────────────────────────────────────────────


def test_a_stranger_cannot_cancel(slow_lab: Lab) -> None:
    lab = slow_lab
    pull = begun(lab)
    tell(lab, "sam", pull, "/cancel")
    assert lab.last(pull).startswith("**Not done:** `/cancel` by sam. Only people with the role")
    assert "sam has no role in this repository" in lab.last(pull)
    finish(lab)
    assert results(lab)[0]["state"] == "done"


def test_a_maintainer_cancels_what_runs_and_everybody_can_see_who(slow_lab: Lab) -> None:
    lab = slow_lab
    pull = begun(lab)
    (execution,) = executions(lab)
    assert lab.labels(1) == ["experiment: running"]
    tell(lab, "grace", pull, "/cancel")
    lab.settle()
    assert lab.last(pull).startswith("## 🛑 Cancelled")
    assert "Cancelled by grace" in lab.last(pull)
    assert reactions(lab, pull)[-1] == ("/cancel", ["eyes", "rocket"])
    assert checks(lab, pull)[-1] == (f"regatta / {execution}", "completed", "cancelled")
    assert lab.trainer.of("t1").status == "stopped"
    assert lab.labels(1) == ["experiment: planned"]
    assert not any(c.startswith("## ") for c in lab.comments(1)), "no verdict of a cancelled run"


def test_cancel_takes_the_id_of_an_execution(slow_lab: Lab) -> None:
    lab = slow_lab
    pull = begun(lab)
    (execution,) = executions(lab)
    tell(lab, "grace", pull, "/cancel x0123456789abcdef")
    assert "There is no execution `x0123456789abcdef` on this thread" in lab.last(pull)
    tell(lab, "grace", pull, f"/cancel {execution}")
    lab.settle()
    assert results(lab)[0]["state"] == "cancelled"
    tell(lab, "grace", pull, f"/cancel {execution}")
    assert f"`{execution}` has ended already, or is being stopped" in lab.last(pull)


def test_cancel_where_nothing_runs_says_so(lab: Lab) -> None:
    issue = lab.preregister()
    pull = lab.propose()
    for number in (issue, pull):
        lab.say("grace", number, "/cancel")
        assert "Nothing is running here" in lab.last(number)
        assert reactions(lab, number)[-1] == ("/cancel", ["eyes", "confused"])


def test_run_and_cancel_heard_at_once_are_taken_in_their_order(slow_lab: Lab) -> None:
    lab = slow_lab
    lab.preregister()
    pull = lab.propose()
    lab.clock.advance(1)
    lab.sandbox.comment("grace", pull, "/run")
    lab.sandbox.comment("grace", pull, "On second thought:\n\n/cancel")
    lab.settle()
    assert results(lab)[0]["state"] == "cancelled"
    assert lab.trainer.submissions == []


def test_a_run_that_is_heard_after_the_cancel_that_was_written_after_it_starts_nothing(
    tmp_path: Path,
) -> None:
    with a_lab(tmp_path) as lab:
        lab.preregister()
        pull = lab.propose()
        gate, lab.gate = lab.gate, None
        tell(lab, "grace", pull, "/run")
        late, lab.undelivered = lab.undelivered, []
        lab.gate = gate
        lab.say("grace", pull, "On second thought:\n\n/cancel")
        assert "Nothing is running here" in lab.last(pull)
        for headers, body in late:
            lab.deliver(headers, body)
        lab.settle()
        assert "Grace wrote `/cancel` after it; post the command again" in lab.last(pull)
        assert lab.trainer.submissions == []
        lab.say("grace", pull, "/run")
        assert [result["state"] for result in results(lab)] == ["done"]


def test_an_execution_cancelled_while_it_waits_for_devices_never_starts(slow_lab: Lab) -> None:
    lab = slow_lab
    lab.trainer.busy = True
    pull = begun(lab)
    assert "### 🕓 Waiting for devices" in lab.last(pull)
    tell(lab, "grace", pull, "/cancel")
    lab.settle()
    assert results(lab)[0]["state"] == "cancelled"
    lab.trainer.busy = False
    lab.trainer.finish()
    lab.settle()
    assert lab.records("runs") == {} or bpb(lab) == {}


def test_status_says_what_runs_and_what_ran(slow_lab: Lab) -> None:
    lab = slow_lab
    lab.preregister()
    pull = lab.propose()
    lab.say("sam", pull, "/status")
    assert "Nothing has run here yet. The newest plan is plan 1" in lab.last(pull)
    tell(lab, "grace", pull, "/run")
    lab.trainer.advance(1 + 24)  # the text is a step, too
    lab.look()
    tell(lab, "sam", pull, "/status")
    (execution,) = executions(lab)
    assert f"| `{execution}` | running | 25 % | grace |" in lab.last(pull)
    tell(lab, "sam", 1, "/status")
    assert f"| `{execution}` | running | 25 % | grace |" in lab.last(1)
    finish(lab)
    lab.say("sam", pull, "/status")
    assert f"| `{execution}` | done | 100 % | grace |" in lab.last(pull)


def test_help_lists_the_commands_of_the_thread(lab: Lab) -> None:
    issue = lab.preregister()
    pull = lab.propose()
    for number in (issue, pull):
        lab.say("sam", number, "/help")
        for command in ("/run", "/cancel", "/status", "/help"):
            assert f"`{command}" in lab.last(number)
    assert "belong on the pull request" in lab.last(issue)
    assert "belong on the pull request" not in lab.last(pull)


def test_a_near_miss_and_a_command_in_a_quote_are_answered_with_a_hint(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.say("grace", pull, "/cancle")
    assert "`/cancle` is not a command. Did you mean `/cancel`?" in lab.last(pull)
    lab.say("grace", pull, "/RUN")
    assert "`/RUN` is not a command. Did you mean `/run`?" in lab.last(pull)
    lab.say("grace", pull, "> Shall I?\n/run")
    assert "Leave an empty line before the command" in lab.last(pull)
    assert lab.trainer.submissions == []


@pytest.mark.parametrize(
    "body",
    [
        "\\/run",
        "&#47;run",
        "`/run`",
        "```\n/run\n```",
        "Please /run this",
        "<!--\n/run\n-->",
    ],
)
def test_talk_about_a_command_is_no_command(lab: Lab, body: str) -> None:
    lab.preregister()
    pull = lab.propose()
    before = lab.comments(pull)
    lab.say("grace", pull, body)
    assert lab.comments(pull) == before
    assert reactions(lab, pull) == [(body, [])]
    assert lab.trainer.submissions == []


def test_a_bots_comment_is_ignored(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.sandbox.set_role("regatta-lab[bot]", "admin")
    before = len(lab.comments(pull))
    lab.say("regatta-lab[bot]", pull, "/run")
    assert lab.comments(pull)[before:] == ["/run"]
    assert lab.trainer.submissions == []


def test_a_flood_of_commands_in_one_comment_has_few_answers(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    before = len(lab.comments(pull))
    lab.say("sam", pull, "/help\n" * 2000)
    assert len(lab.comments(pull)) == before + 2
    assert sum("what it does" in body for body in lab.comments(pull)) == 1
    assert "I follow only the first 5 commands of a comment" in lab.last(pull)


# ── Preregistrations ─────────────────────────────────────────────────────────────────────────


def test_two_executions_under_one_preregistration_each_have_a_verdict(lab: Lab) -> None:
    issue = lab.preregister()
    pull = lab.propose()
    lab.say("grace", pull, "/run")
    lab.sandbox.commit(
        "ada",
        "again",
        {
            "experiments/again/experiment.yaml": EXPERIMENT.replace("[0, 1, 2]", "[3, 4]").encode(),
            "experiments/again/text.txt": TEXT.encode(),
        },
        "Other seeds",
    )
    second = lab.sandbox.open_pull("ada", "Once more", "Tests #1.", "again").number
    lab.settle()
    lab.say("grace", second, "/run")
    assert [result["state"] for result in results(lab)] == ["done", "done"]
    verdicts = [c for c in lab.comments(issue) if c.startswith("## ")]
    assert len(verdicts) == 2
    assert f"#{pull} shows the scores" in verdicts[0]
    assert f"#{second} shows the scores" in verdicts[1]
    assert lab.labels(issue) == ["experiment: done"]


def test_a_cancelled_second_execution_gives_the_label_of_the_first_back(slow_lab: Lab) -> None:
    lab = slow_lab
    pull = begun(lab)
    finish(lab)
    assert lab.labels(1) == ["experiment: done"]
    push(lab, EXPERIMENT.replace("0.003,", "0.004,"))
    lab.trainer.pace = 0
    lab.clock.advance(READING)
    tell(lab, "grace", pull, "/run")
    lab.look()
    assert lab.labels(1) == ["experiment: running"]
    tell(lab, "grace", pull, "/cancel")
    lab.settle()
    assert lab.labels(1) == ["experiment: done"]


def test_edits_after_the_seal_are_said_and_the_seal_stands(lab: Lab) -> None:
    issue = lab.preregister()
    seal = lab.records("preregistrations")["700001/1/1.json"]
    for n, confidence in enumerate(("0.99", "0.5"), 1):
        lab.clock.advance(60)
        body = form_body().replace("0.6", confidence)
        lab.sandbox.edit_issue("ada", issue, body=body)
        lab.settle()
        assert "was edited after it was sealed" in lab.last(issue)
        assert len(lab.comments(issue)) == 1 + n
    facts = lab.records("preregistrations")
    assert facts["700001/1/1.json"] == seal
    assert facts["700001/1/2.json"]["text_sha256"] != facts["700001/1/3.json"]["text_sha256"]
    lab.propose()
    plan = lab.records("plans")["700001/2/1.json"]["plan"]
    assert [prediction["confidence"] for prediction in plan["predictions"]] == [0.8, 0.6]


def test_an_issue_that_is_no_preregistration_gets_no_word(lab: Lab) -> None:
    issue = lab.sandbox.open_issue("sam", "The page looks odd", "On my phone.").number
    lab.settle()
    assert lab.comments(issue) == []
    assert lab.labels(issue) == []


def test_without_a_preregistration_there_are_figures_and_no_verdict(lab: Lab) -> None:
    pull = lab.propose(EXPERIMENT.replace("preregistration: 1\n", ""))
    assert "no preregistration: it will get scores, but no verdict" in lab.last(pull)
    lab.say("grace", pull, "/run")
    assert lab.last(pull).startswith("## 🏁 `fast` beats `slow` by **0.8000 bits per byte**")
    assert results(lab)[0]["verdicts"] == []


def test_one_more_arm_is_all_that_is_trained_and_the_comments_say_what_was_made_before(
    slow_lab: Lab,
) -> None:
    lab = slow_lab
    pull = begun(lab)
    finish(lab)
    (first,) = executions(lab)
    push(lab, EXPERIMENT + "  hot: {train: {learning_rate: 0.01}}\n")
    assert "**9 runs** (3 arms × 3 seeds), 6 cached · 3 to train, 3,072 tokens" in lab.last(pull)
    lab.trainer.pace = 0
    lab.clock.advance(READING)
    tell(lab, "grace", pull, "/run")
    lab.trainer.advance(8)
    lab.look(20)
    assert "| `hot.s0` | 8 / 16 |" in lab.last(pull)
    assert "| `slow.s0` | 16 / 16 | 2.273 |" in lab.last(pull), "as it was trained before"
    finish(lab)
    assert lab.trainer.of("t1").steps == 3 * 16
    assert f"6 of 9 runs were cached (from `{first}`)." in lab.last(pull)
    assert "| `hot` | 3.210 ± 0.010 | 3.2000, 3.2100, 3.2200 |" in lab.last(pull)
    assert "| `slow` | 3.210 ± 0.010 | 3.2000, 3.2100, 3.2200 |" in lab.last(pull)
    assert "+ arms.hot\n```" in lab.last(pull), "what differs is said of arms, once"
    push(lab, EXPERIMENT)
    assert "**6 runs** (2 arms × 3 seeds) · all cached: nothing to run\n" in lab.last(pull)


# ── When things break ────────────────────────────────────────────────────────────────────────


def test_a_lost_attempt_is_told_and_the_next_one_goes_on(
    lab_with: Callable[[StubRay], Lab],
) -> None:
    lab = lab_with(StubRay(pace=16, die_after={"t1": 40}))
    lab.preregister()
    pull = lab.propose()
    lab.say("grace", pull, "/run")
    (status,) = [c for c in lab.comments(pull) if "<!-- regatta: status." in c]
    assert "Attempt `t1` was lost (its job crashed)" in status
    assert "continues from the last checkpoint" in status
    assert lab.trainer.of("t2").steps == 96 - 40
    assert results(lab)[0]["state"] == "done"
    assert bpb(lab) == pytest.approx(HONEST)


def test_three_lost_attempts_fail_the_execution(lab_with: Callable[[StubRay], Lab]) -> None:
    lab = lab_with(StubRay(pace=16, die_after={f"t{n}": 3 for n in range(1, 5)}, saves_every=16))
    lab.preregister()
    pull = lab.propose()
    lab.say("grace", pull, "/run")
    assert results(lab)[0]["state"] == "failed"
    assert "4 attempts were lost, the last 3 of them without progress" in lab.last(pull)
    assert len(lab.trainer.submissions) == 4, "the first one made the tokens"
    assert checks(lab, pull)[-1][1:] == ("completed", "failure")
    assert lab.labels(1) == ["experiment: failed"]
    assert lab.last(1).startswith("## ⚠️ Failed")


def test_five_lost_attempts_that_each_got_further_end_in_a_result(
    lab_with: Callable[[StubRay], Lab],
) -> None:
    lab = lab_with(StubRay(pace=16, die_after={f"t{n}": 17 for n in range(1, 6)}))
    lab.preregister()
    pull = lab.propose()
    lab.say("grace", pull, "/run")
    assert results(lab)[0]["state"] == "done"
    assert bpb(lab) == pytest.approx(HONEST)
    assert len(lab.trainer.submissions) == 6
    assert lab.labels(1) == ["experiment: done"]


def test_ray_unreachable_for_a_while_loses_nothing(slow_lab: Lab) -> None:
    lab = slow_lab
    pull = begun(lab)
    lab.trainer.reachable = False
    lab.look(60)
    assert lab.labels(1) == ["experiment: running"]
    lab.trainer.reachable = True
    finish(lab)
    assert len(lab.trainer.submissions) == 1
    assert results(lab)[0]["state"] == "done"
    assert "was lost" not in "".join(lab.comments(pull))


def test_a_run_that_diverges_is_named_with_its_step(lab_with: Callable[[StubRay], Lab]) -> None:
    lab = lab_with(StubRay(diverge={"fast.s1": 7}))
    lab.preregister()
    pull = lab.propose()
    lab.say("grace", pull, "/run")
    assert "⚠️ `fast.s1` failed: the loss was not finite (nan) at step 7" in lab.last(pull)
    assert "| `fast.s1` | 6 / 16 |" in lab.comments(pull)[-2], "the step that it came to"
    assert "100 %" in lab.comments(pull)[-2], "nothing is left to train"
    assert lab.last(pull).startswith("## ◻️ Incomplete, 2 of 3 seeds")
    assert "incomplete" in lab.last(pull)
    assert {v["outcome"] for v in results(lab)[0]["verdicts"]} == {"inconclusive"}
    figures = {run: value for run, value in HONEST.items() if run != "fast.s1"}
    assert bpb(lab) == pytest.approx(figures)
    failed = lab.records("runs")[f"{executions(lab)[0]}.fast.s1.json"]
    assert failed["state"] == "failed"
    assert lab.labels(1) == ["experiment: done"]


def test_when_every_run_diverges_the_execution_failed(
    lab_with: Callable[[StubRay], Lab],
) -> None:
    runs = [f"{arm}.s{seed}" for arm, seed in itertools.product(("fast", "slow"), range(3))]
    lab = lab_with(StubRay(diverge=dict.fromkeys(runs, 1)))
    lab.preregister()
    pull = lab.propose()
    lab.say("grace", pull, "/run")
    assert "**Failed:** no run finished training" in lab.last(pull)
    said = lab.last(pull).partition("\n\n<details><summary>For programs")[0]
    assert said.count("at step 1") == 6
    assert lab.labels(1) == ["experiment: failed"]
    assert bpb(lab) == {}


@pytest.mark.parametrize(
    ("tamper", "named"),
    [
        (stub_trainer.false_metrics, "does not fit the plan"),
        (stub_trainer.unknown_keys, "better Extra inputs are not permitted"),
        (stub_trainer.fewer_tokens, "scored 1 tokens instead of"),
        (stub_trainer.boast, "more than 16 lines"),
        (stub_trainer.swapped_models, "not those that were scored"),
        (stub_trainer.another_spec, "it is not the one that was claimed"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_hostile_job_claims_is_named_and_changes_no_figure(
    lab_with: Callable[[StubRay], Lab], tamper: Callable[[StubJob], None], named: str
) -> None:
    lab = lab_with(StubRay(tamper=tamper))
    lab.preregister()
    pull = lab.propose()
    lab.say("grace", pull, "/run")
    answer = lab.last(pull)
    assert "**Rejected reports:**" in answer
    assert named in answer.partition("**Rejected reports:**")[2].partition("<details>")[0]
    for run, value in bpb(lab).items():
        assert value == pytest.approx(HONEST[run])
    for fact in lab.records("runs").values():
        assert fact["steps"] <= 16
    assert "0.001" not in "".join(str(fact["evaluated"]) for fact in lab.records("runs").values())


def test_a_job_that_leaves_pipes_instead_of_words_fails_and_is_told_why(
    lab_with: Callable[[StubRay], Lab],
) -> None:
    lab = lab_with(StubRay(tamper=stub_trainer.pipes))
    lab.preregister()
    pull = lab.propose()
    lab.say("grace", pull, "/run")
    assert "**Failed:** its report was refused" in lab.last(pull)
    assert "not a regular file" in lab.last(pull)
    assert bpb(lab) == {}


@pytest.mark.parametrize("kind", ["status_before", "status_after", "drop_before", "drop_after"])
def test_a_broken_github_delays_an_answer_and_does_not_double_it(lab: Lab, kind: str) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.sandbox.faults.add(Fault(kind, "POST", r"/issues/\d+/comments"))
    lab.say("sam", pull, "/run")
    lab.clock.advance(120)
    lab.settle()
    assert sum("`/run` by sam" in c for c in lab.comments(pull)) == 1
