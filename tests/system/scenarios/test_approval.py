"""Approval on the sandbox: who may, which plan a command means, and what voids it until launch."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pygit2
import pytest

from bot.controller import pull_request_source
from bot.fake_github.world.climate import MAX_LAG
from bot.inbox import webhook
from bot.model import policy_file
from runner.planning import limited_plan
from runner.publish import charts
from tests.scenarios.lab import EXPERIMENT, READING, TEXT, Lab, a_lab
from tests.system.scenarios.test_story import FILE, PIXEL, executions, push, results, tell

POLICY = policy_file.PATH


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab whose trainer is done at once, with a sealed preregistration."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path) as lab:
        lab.preregister()
        yield lab


def line(lab: Lab, pull: int, plan: int = 1) -> str:
    """The line to copy, as the plan's comment shows it."""
    (body,) = [c for c in lab.comments(pull) if f"### Plan {plan}:" in c]
    found = re.search(r"^```\n(/run [a-z2-7-]{24})\n```$", body, re.MULTILINE)
    assert found
    return found[1]


def from_a_fork(lab: Lab) -> int:
    """Ada opens a pull request from her own fork."""
    files = {FILE: EXPERIMENT.encode(), "experiments/warm/text.txt": TEXT.encode()}
    lab.sandbox.fork("ada").commit("ada", "warm", files, "Declare an experiment")
    pull = lab.sandbox.open_pull("ada", "Warmer learning rate", "Tests #1.", "ada:warm")
    lab.settle()
    lab.clock.advance(READING)
    return pull.number


def set_policy(lab: Lab, text: str | None) -> None:
    """The owner changes who may do what, on the default branch."""
    owner = lab.sandbox.world.owner.login
    lab.sandbox.commit(owner, "main", {POLICY: None if text is None else text.encode()}, "Policy")
    lab.sleep(MAX_LAG if lab.climate else 0)  # now all replicas have it


def approved_and_held(lab: Lab, command: str = "/run") -> int:
    """An approval whose launch has to wait, because Ray is away."""
    pull = lab.propose()
    lab.trainer.reachable = False
    tell(lab, "grace", pull, command)
    assert len(executions(lab)) == 1
    return pull


def voided(lab: Lab) -> str:
    """What is said of the held approval when Ray is back."""
    lab.trainer.reachable = True
    lab.settle()
    assert lab.trainer.submissions == []
    assert [result["state"] for result in results(lab)] == ["voided"]
    (told,) = [c for c in lab.comments(2) if c.startswith("## 🛑 Not started")]
    return told


# ── Which plan ───────────────────────────────────────────────────────────────────────────────


def test_a_plan_shows_the_line_that_approves_it_and_nobody_can_guess_the_code(lab: Lab) -> None:
    pull = lab.propose()
    push(lab, EXPERIMENT.replace("0.003,", "0.004,"))
    codes = {line(lab, pull, 1), line(lab, pull, 2)}
    assert len(codes) == 2
    lab.say("grace", pull, line(lab, pull, 2))
    assert results(lab)[0]["state"] == "done"


def test_a_fork_needs_the_code(lab: Lab) -> None:
    pull = from_a_fork(lab)
    lab.say("grace", pull, "/run")
    assert "needs the code of the plan" in lab.last(pull)
    assert f"comment `{line(lab, pull)}`" in lab.last(pull)
    assert lab.trainer.submissions == []
    lab.say("grace", pull, f"I have read it.\n\n{line(lab, pull)}")
    assert results(lab)[0]["state"] == "done"


def test_a_code_of_an_older_plan_does_not_approve_the_newer_head(lab: Lab) -> None:
    pull = from_a_fork(lab)
    first = line(lab, pull)
    lab.clock.advance(1)
    changed = {FILE: EXPERIMENT.replace("0.003,", "0.004,").encode()}
    lab.sandbox.fork("ada").commit("ada", "warm", changed, "Another thought")
    lab.say("grace", pull, first)
    assert any("The branch has moved from" in body for body in lab.comments(pull))
    assert lab.trainer.submissions == []


def test_a_code_of_another_pull_request_approves_nothing(lab: Lab) -> None:
    one = lab.propose()
    other = from_a_fork(lab)
    lab.say("grace", other, line(lab, one))
    assert "No plan of this pull request has this code" in lab.last(other)
    assert lab.trainer.submissions == []


def test_a_full_sha_approves_its_plan_and_a_short_one_is_refused_with_the_line_to_type(
    lab: Lab,
) -> None:
    pull = from_a_fork(lab)
    commit = lab.records("plans")[f"700001/{pull}/1.json"]["commit"]
    lab.say("grace", pull, f"/run {commit[:12]}")
    assert "is a shortened SHA" in lab.last(pull)
    assert f"comment `{line(lab, pull)}`" in lab.last(pull)
    lab.say("grace", pull, f"/run {commit}")
    assert results(lab)[0]["state"] == "done"


@pytest.mark.calm("in a climate, more seconds pass after the plan")
def test_a_bare_run_needs_time_to_have_read_the_plan(lab: Lab) -> None:
    pull = lab.propose(reading=READING - 3)
    tell(lab, "grace", pull, "/run")
    assert "less than 30 seconds earlier" in lab.last(pull)
    lab.say("grace", pull, "/run")
    assert results(lab)[0]["state"] == "done"


def test_a_head_that_went_and_came_back_is_seen_where_no_delivery_told_of_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = lab.propose()
    there = lab.records("plans")[f"700001/{pull}/1.json"]["commit"]
    known = lab.records("pushes")  # when it was opened
    receive = webhook.Gate.receive
    monkeypatch.setattr(
        webhook.Gate,
        "receive",
        lambda gate, headers, body: (
            (503, "")
            if headers["X-GitHub-Event"] == "pull_request"
            else receive(gate, headers, body)
        ),
    )
    push(lab, EXPERIMENT.replace("0.003,", "0.004,"), settle=False)
    lab.clock.advance(1)
    lab.sandbox.update_ref("ada", "refs/heads/warm", there, force=True)
    lab.say("grace", pull, "/run")
    assert lab.records("pushes") == known
    assert "The branch changed after plan" in lab.last(pull)
    assert results(lab) == []
    lab.say("grace", pull, line(lab, pull))
    assert [result["state"] for result in results(lab)] == ["done"]


def test_a_failed_look_up_is_repeated(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    pull = lab.propose()
    lab.die()  # and with it what it remembers
    with monkeypatch.context() as patch:
        patch.setattr(pull_request_source.Declared, "fingerprint", lambda *_: "")
        lab.say("grace", pull, line(lab, pull))
    assert "The lab's code has changed" in lab.last(pull)
    lab.say("grace", pull, line(lab, pull))
    assert [result["state"] for result in results(lab)] == ["done"]


def test_a_review_of_a_commit_that_was_planned_twice_approves_neither(lab: Lab) -> None:
    main = lab.sandbox.world.git.ref("refs/heads/main")
    assert main
    lab.sandbox.create_ref("grace", "refs/heads/release", main)
    pull = lab.propose()
    lab.sandbox.retarget("ada", pull, "release")
    lab.settle()
    lab.clock.advance(READING)
    review(lab, "APPROVE", "Good.\n\n/run")
    lab.settle()
    assert "has several plans" in lab.last(pull)
    assert lab.trainer.submissions == []


def test_an_invalid_subset_is_refused_and_posts_a_new_plan(lab: Lab) -> None:
    pull = lab.propose()
    lab.say("sam", pull, "/run learning_rate=1")
    assert len(lab.records("plans")) == 1  # nor is that for everybody
    lab.say("grace", pull, f"{line(lab, pull)} learning_rate=1")
    refusal, plan = lab.comments(pull)[-2:]
    if refusal.startswith("### Plan"):
        refusal, plan = plan, refusal
    assert "is neither `arms=` nor `seeds=`" in refusal
    assert "Plan 2 shows what would run now." in refusal
    assert plan.startswith("### Plan 2:")
    assert lab.trainer.submissions == []
    lab.say("grace", pull, line(lab, pull, 2))
    assert [result["state"] for result in results(lab)] == ["done"]
    assert len(lab.records("plans")) == 2


def test_a_plan_is_recorded_with_all_that_it_was_made_of(lab: Lab) -> None:
    pull = lab.propose()
    plan = lab.records("plans")[f"700001/{pull}/1.json"]
    main = lab.sandbox.world.git.ref("refs/heads/main")
    assert (plan["base_ref"], plan["head_repository"], plan["policy"]) == ("main", 700001, main)
    lab.say("grace", pull, "/run")
    (approval,) = lab.records("approvals").values()
    assert approval["policy"] == main
    (execution,) = (
        fact for path, fact in lab.records("executions").items() if "execution.json" in path
    )
    assert execution["limit_seconds"] == plan["limit_seconds"] == 3600
    assert execution["approvals"] == [f"700001/{approval['command']}"]


# ── Who ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "there is no .github/regatta/policy.yml on the default branch"),
        ("own: perhaps\n", ".github/regatta/policy.yml, line 1, `own`: must be true or false"),
    ],
)
def test_without_a_policy_that_can_be_read_nobody_may_run_and_the_bot_says_so(
    lab: Lab, text: str | None, why: str
) -> None:
    set_policy(lab, text)
    pull = lab.propose()
    assert "The bot could not read the lab's policy." in lab.last(pull)
    for who in ("grace", lab.sandbox.world.owner.login):
        lab.say(who, pull, line(lab, pull))
        assert "Nobody can command runs until this is fixed" in lab.last(pull)
        assert why in lab.last(pull)
    assert lab.trainer.submissions == []
    set_policy(lab, "own: true\n")
    lab.say("grace", pull, line(lab, pull))
    assert results(lab)[0]["state"] == "done"


def test_the_policy_of_a_pull_request_permits_nobody_anything(lab: Lab) -> None:
    pull = lab.propose()
    everybody = b"commands:\n  run: {people: [sam, ada]}\n"
    lab.sandbox.commit("ada", "warm", {POLICY: everybody}, "Let me")
    lab.settle()
    for who in ("sam", "ada"):
        lab.say(who, pull, "/run")
        assert "Only people with the role `maintain` or `admin` may use `/run`" in lab.last(pull)
    assert lab.trainer.submissions == []


def test_permission_follows_the_policy_at_the_time_of_the_command(lab: Lab) -> None:
    set_policy(lab, "commands:\n  run: {roles: [], people: [sam]}\n")
    pull = lab.propose()
    lab.say("grace", pull, "/run")
    assert "Only sam may use `/run` here, and grace has the role `maintain`" in lab.last(pull)
    lab.say("sam", pull, "/run")
    assert results(lab)[0]["state"] == "done"


def test_a_large_experiment_needs_a_second_person_who_has_no_part_in_it(lab: Lab) -> None:
    set_policy(lab, "two_approvers_from: 1\ncommands:\n  run: {people: [ada, sam]}\n")
    pull = lab.propose()
    lab.say("ada", pull, "/run")
    assert "needs two approvers" in lab.last(pull)
    lab.say("grace", pull, "/run")
    assert lab.last(pull).startswith("**Waiting:** `/run` by grace.")
    lab.say("grace", pull, "/run")
    assert lab.trainer.submissions == []
    assert executions(lab) == []
    lab.say("sam", pull, line(lab, pull))
    assert [result["state"] for result in results(lab)] == ["done"]
    (execution,) = (
        fact for path, fact in lab.records("executions").items() if "execution.json" in path
    )
    assert len(execution["approvals"]) == 2


@pytest.mark.parametrize(
    ("policy", "address"),
    [
        ("own: false\n", "grace@laptop.local"),
        ("two_approvers_from: 1\n", "grace@laptop.local"),
        ("own: false\n", "release-bot@example.invalid"),  # reddb-io/red-skills#3462
        # bdougie/contributor.info#517: a bot's address without its number
        ("own: false\n", "grace[bot]@users.noreply.github.com"),
        ("own: false\n", "service@localhost"),  # palantir/policy-bot#788
    ],
)
def test_who_pushed_a_commit_of_nobody_cannot_approve_it(
    lab: Lab, policy: str, address: str
) -> None:
    """palantir/policy-bot#1263: Grace pushes to Ada's branch with an address of no account."""
    set_policy(lab, policy)
    pull, git = lab.propose(), lab.sandbox.world.git
    head = git.resolve("warm")
    nobody = pygit2.Signature("Grace", address, 1_700_000_000, 0)
    sha = git.write_commit(git.write_tree(head, []), [head], "From my laptop", nobody, nobody)
    lab.sandbox.update_ref("grace", "refs/heads/warm", sha)
    lab.settle()
    lab.say("grace", pull, "/run")
    assert "grace contributed to this" in lab.last(pull)
    assert lab.trainer.submissions == []


def test_who_updates_a_branch_may_still_approve_it(lab: Lab) -> None:
    """palantir/policy-bot#39: *Update branch* merges main, and adds nothing."""
    set_policy(lab, "own: false\n")
    pull, git = lab.propose(), lab.sandbox.world.git
    main = lab.sandbox.commit("grace", "main", {"docs/page.md": b"A page\n"}, "Elsewhere")
    head = git.resolve("warm")
    by = lab.sandbox.signature(lab.sandbox.user("grace"))
    merge = git.write_commit(git.merged_tree(head, main), [head, main], "Merge main", by, by)
    lab.sandbox.update_ref("grace", "refs/heads/warm", merge)
    lab.settle()
    lab.say("grace", pull, "/run")
    assert [result["state"] for result in results(lab)] == ["done"], lab.last(pull)


def test_an_approval_reserves_from_its_approvers_month(lab: Lab) -> None:
    set_policy(lab, 'device_hours_per_person_and_month: {"*": 1}\n')
    lab.trainer.pace = 0
    pull, second = lab.propose(), from_a_fork(lab)
    tell(lab, "grace", pull, "/run")
    tell(lab, "grace", second, line(lab, second))
    refusal = lab.last(second)
    assert "This needs 0.5 device-hours, but the budget is 1 per person" in refusal
    assert "0.5 of these are used or reserved" in refusal
    assert len(executions(lab)) == 1
    lab.trainer.pace = None
    lab.settle()
    lab.say("grace", second, line(lab, second))
    assert [result["state"] for result in results(lab)] == ["done", "done"]


# ── Until launch ─────────────────────────────────────────────────────────────────────────────


def test_retargeting_voids_an_approval_and_there_is_a_new_plan(lab: Lab) -> None:
    main = lab.sandbox.world.git.ref("refs/heads/main")
    assert main
    lab.sandbox.create_ref("grace", "refs/heads/release", main)
    pull = approved_and_held(lab)
    lab.sandbox.retarget("ada", pull, "release")
    assert "to `release`" in voided(lab)
    assert lab.records("plans")[f"700001/{pull}/2.json"]["base_ref"] == "release"
    lab.say("grace", pull, line(lab, pull, 1))
    assert "The base branch changed from `main` (plan 1)" in lab.last(pull)
    lab.say("grace", pull, line(lab, pull, 2))
    assert [result["state"] for result in results(lab)] == ["voided", "done"]


def test_a_base_branch_that_moves_forward_voids_nothing(lab: Lab) -> None:
    approved_and_held(lab)
    set_policy(lab, "own: true\n")
    lab.trainer.reachable = True
    lab.settle()
    assert [result["state"] for result in results(lab)] == ["done"]
    assert list(lab.records("plans")) == ["700001/2/1.json"]


def test_an_upgrade_of_the_lab_that_changes_what_would_run_voids_an_approval(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runner.schema import plan_fingerprint

    pull = approved_and_held(lab)
    real, plans = plan_fingerprint.fingerprint, limited_plan.plan

    def upgraded(*asked: Any) -> Any:
        plan, contents = plans(*asked)
        return plan.model_copy(update={"fingerprint": plan.fingerprint[::-1]}), contents

    lab.die()  # and is upgraded
    monkeypatch.setattr(plan_fingerprint, "fingerprint", lambda plan: real(plan)[::-1])
    monkeypatch.setattr(limited_plan, "plan", upgraded)  # in another process
    assert "the lab's code has changed since plan 1" in voided(lab)
    lab.say("sam", pull, "Oh.")
    assert line(lab, pull, 2) != line(lab, pull, 1)
    lab.say("grace", pull, "/run")
    assert [result["state"] for result in results(lab)] == ["voided", "done"]


def test_a_draft_is_not_launched(lab: Lab) -> None:
    pull = approved_and_held(lab)
    lab.sandbox.set_draft("ada", pull, True)
    assert "is a draft" in voided(lab)
    lab.say("grace", pull, "/run")
    assert "is a draft" in lab.last(pull)


def test_a_policy_that_changes_before_the_launch_counts(lab: Lab) -> None:
    approved_and_held(lab)
    set_policy(lab, "commands:\n  run: {roles: [admin]}\n")
    assert "`grace` is no longer allowed to approve" in voided(lab)


def test_an_approval_that_was_not_used_for_a_day_is_void(lab: Lab) -> None:
    approved_and_held(lab)
    lab.clock.advance(timedelta(days=1).total_seconds())
    assert "is more than 24 hours old" in voided(lab)


# ── Reviews, and pushes that nobody looked at ────────────────────────────────────────────────


def commit_of(lab: Lab, pull: int) -> str:
    return str(lab.records("plans")[f"700001/{pull}/1.json"]["commit"])


def review(lab: Lab, event: str, body: str, commit: str | None = None) -> int:
    """Grace reviews the pull request, or an earlier commit of it."""
    made = lab.sandbox.submit_review("grace", 2, event, body, commit)
    return made.id


def test_an_approving_review_approves_the_plan_of_its_commit(lab: Lab) -> None:
    pull = from_a_fork(lab)
    lab.clock.advance(READING)
    review(lab, "APPROVE", "Good.\n\n/run")
    lab.settle()
    assert results(lab)[0]["state"] == "done"
    (approval,) = lab.records("approvals").values()
    assert approval["command"].startswith("r")
    assert approval["commit"] == commit_of(lab, pull)


def test_a_review_of_an_earlier_commit_does_not_approve_the_head(lab: Lab) -> None:
    pull = lab.propose()
    first = commit_of(lab, pull)
    push(lab, EXPERIMENT.replace("0.003,", "0.004,"))
    lab.clock.advance(READING)
    review(lab, "APPROVE", "/run", first)
    lab.settle()
    assert lab.trainer.submissions == []
    assert "The branch has moved from" in lab.last(pull)


def test_a_review_that_only_comments_approves_nothing(lab: Lab) -> None:
    pull = lab.propose()
    review(lab, "COMMENT", "/run")
    lab.settle()
    assert "does not approve the pull request" in lab.last(pull)
    assert lab.trainer.submissions == []


def test_a_review_that_is_dismissed_before_the_launch_voids_it(lab: Lab) -> None:
    lab.propose()
    lab.trainer.reachable = False
    made = review(lab, "APPROVE", "/run")
    for _ in range(5):
        assert lab.bot is not None
        lab.bot.work()
        lab.sleep(2)
    assert len(executions(lab)) == 1
    lab.sandbox.dismiss_review("grace", 2, made, "I have thought again.")
    assert "the review of grace was dismissed" in voided(lab)


def test_a_branch_that_left_and_came_back_unseen_is_a_change(lab: Lab) -> None:
    pull = lab.propose()
    there = commit_of(lab, pull)
    push(lab, EXPERIMENT.replace("0.003,", "0.004,"), settle=False)
    lab.clock.advance(1)
    lab.sandbox.update_ref("ada", "refs/heads/warm", there, force=True)
    lab.say("grace", pull, "/run")
    assert list(lab.records("plans")) == ["700001/2/1.json"]
    assert "The branch changed after plan" in lab.last(pull)
    assert lab.trainer.submissions == []
    lab.say("grace", pull, line(lab, pull))
    assert results(lab)[0]["state"] == "done"


def test_arms_and_seeds_can_be_left_out_and_the_thread_says_so(lab: Lab) -> None:
    pull = lab.propose()
    lab.say("grace", pull, f"{line(lab, pull)} arms=fast")
    assert "The preregistration has a prediction about the arm `slow`" in lab.comments(pull)[-2]
    lab.say("grace", pull, f"{line(lab, pull)} seeds=0,1")
    assert results(lab)[0]["state"] == "done"
    assert len(lab.records("runs")) == 4
    assert "Difference from what was sealed:** It leaves out 1 of 3 seeds: 2." in lab.last(pull)
