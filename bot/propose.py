"""A pull request that declares an experiment gets its plan: a record, a comment, a check. Pure.

The bot reads the declaration at the head's commit and runs nothing. Each head that is looked at
has a plan of its own, also one that was there before (A → B → A is three plans), and so has a head
whose problems have changed since.
"""

from collections.abc import Iterator

from bot import words
from bot.facts import Action, Check, Say, Thread, Write
from runner.record import PlanRecord

CHECK_NAME = "regatta / plan"


def rules(thread: Thread) -> Iterator[Action]:
    """What should exist on a pull request before anybody approves anything."""
    if thread.news:
        yield from _plan(thread)
    for plan in thread.plans:
        yield Say(f"plan.{plan.n}", words.plan(plan))
        yield Check(
            key=f"check.plan.{plan.n}",
            name=CHECK_NAME,
            commit=plan.commit,
            conclusion="success" if plan.plan else "failure",
            title=words.plan_title(plan),
            summary=words.plan(plan),
        )


def _plan(thread: Thread) -> Iterator[Action]:
    pull = thread.pull()
    if pull is None or not pull.open:
        return
    newest = thread.plans[-1] if thread.plans else None
    if newest and newest.commit == pull.head and newest.plan:
        return
    found = thread.finding(pull.base, pull.head)
    if found.experiment is None and not found.problems:
        return
    if newest and newest.commit == pull.head and newest.problems == found.problems:
        return
    record = PlanRecord(
        repository=thread.id.repository,
        pull=thread.id.number,
        n=_next(thread),
        commit=pull.head,
        at=thread.now,
        plan=found.plan,
        problems=found.problems,
        standings=dict(found.standings),
        drifted=found.drifted,
        source=found.source,
    )
    yield Write(f"plans/{record.repository}/{record.pull}/{record.n}", record)


def _next(thread: Thread) -> int:
    """The next plan's ordinal. One that was shown is never used again, its record lost or not."""
    shown = [int(key[5:]) for key in thread.said if key[:5] == "plan." and key[5:].isdigit()]
    return max([plan.n for plan in thread.plans] + shown, default=0) + 1
