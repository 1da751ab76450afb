"""Who may do what. Pure: facts in, a decision that can be said aloud out."""

from dataclasses import dataclass
from datetime import datetime

from bot.facts import Pull
from runner.record import PlanRecord

MAY_RUN = ("maintain", "admin")


@dataclass(frozen=True)
class Decision:
    """Yes, or no and why; the reason is a whole sentence for the person who asked."""

    yes: bool
    why: str = ""

    def __bool__(self) -> bool:
        return self.yes


@dataclass(frozen=True)
class Proposed:
    """A plan with the moment its comment was created, by GitHub's clock."""

    record: PlanRecord
    at: datetime


def may_command(login: str, role: str, verb: str) -> Decision:
    """Whether somebody with this role may approve or cancel (`verb`) executions."""
    if role in MAY_RUN:
        return Decision(True)
    has = "has no role" if role in ("none", "read") else f"has the role `{role}`"
    return Decision(
        False,
        f"{login} {has} in this repository; only people with the role `maintain` or `admin` may "
        f"{verb}. A maintainer who has read the plan can comment `/run` here.",
    )


def approvable(proposed: list[Proposed], asked_at: datetime, pull: Pull | None) -> PlanRecord | str:
    """The plan that a `/run` created at `asked_at` approves, or why there is none.

    It is the newest one whose comment was there before the command (a tie is not before), and
    only if the branch still is at its commit.
    """
    if pull is None or not pull.open:
        return "This pull request is closed; reopen it, and `/run` means something again."
    before = [plan for plan in proposed if plan.at < asked_at]
    if not before:
        return (
            "There was no plan yet when this was written. Read the plan first; then comment "
            "`/run` again."
        )
    newest = before[-1].record
    if newest.commit != pull.head:
        return (
            f"The branch has moved on: the plan you could see is for `{newest.commit[:12]}`, the "
            f"branch is at `{pull.head[:12]}`. Read the plan for that commit; then comment `/run` "
            "again."
        )
    if newest.plan is None:
        return (
            "The newest plan names problems; there is nothing that could run until they are mended."
        )
    return newest


def may_launch(commit: str, pull: Pull | None, approver: str, role: str) -> Decision:
    """Whether an approved commit may start now: everything is looked at again."""
    if pull is None or not pull.open:
        return Decision(False, "the pull request was closed before the launch")
    if pull.head != commit:
        return Decision(
            False,
            f"the branch moved from `{commit[:12]}` to `{pull.head[:12]}` before the launch",
        )
    if role not in MAY_RUN:
        return Decision(False, f"{approver} may no longer approve (role `{role}`)")
    return Decision(True)
