"""GitHub's API can be behind its webhooks, for seconds and sometimes for a minute: it does not know
the issue, the commit or the person yet, or shows the head of before. So an answer is held against
what the deliveries prove. One that is older is no answer: the deliveries stay, and are looked at
again.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from bot.controller.queries import Asked
from bot.github import Gone, Later
from bot.github.answers import Limited
from bot.inbox.deliveries import Unheard
from bot.messages.plan_comment import UNSEEN
from bot.model.questions import NotYet, Question
from bot.model.thread import Finding, Issue, Pull, Push, Thread, ThreadId

LAG = timedelta(minutes=10)  # after an event, until what GitHub does not show is taken for gone
SHORT_LAG = timedelta(seconds=30)  # the same, where no delivery proves that it is there
MAX_AGE = timedelta(seconds=30)  # of an answer, if the next one was not given
WAITS = timedelta(seconds=2), timedelta(seconds=60)
REMOVALS = ("deleted", "transferred")
# Questions whose answer can be that there is no such thing.
ABOUT_SUBJECTS = ("issue", "pull", "review", "role")


def is_recent(at: datetime | None, now: datetime) -> bool:
    """Whether GitHub may not show yet what happened at that time."""
    return at is not None and now - at < LAG


class Freshness:
    """Asks, and takes no answer that is older than the deliveries."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._updated: dict[ThreadId, datetime] = {}  # the newest known time of change
        self._missing: dict[tuple[ThreadId, Question], datetime] = {}  # since when
        # The answers until GitHub failed, each with its time, and the deliveries then.
        self._given: dict[ThreadId, tuple[list[Unheard], dict[Question, tuple[Any, datetime]]]] = {}

    def answer(self, thread: Thread, deliveries: list[Unheard], question: Question) -> Any:
        """The answer to a question: from now, or from a look seconds before that GitHub
        interrupted. A NotYet if it cannot be known now. Raises Limited."""
        heard, given = self._given.get(thread.id, ([], {}))
        if heard != deliveries:
            _, given = self._given[thread.id] = deliveries, {}
        answer, at = given.get(question, (None, None))
        if at is None or thread.now - at >= MAX_AGE:
            try:
                answer = self._fresh(thread, deliveries, question)
            except Limited:
                raise
            except Later as later:
                return NotYet(str(later), later.wait)
            given[question] = answer, thread.now
        return answer

    def decided(self, id: ThreadId) -> None:
        """A decision was made on these answers; the next one needs new ones."""
        self._given.pop(id, None)

    def _fresh(self, thread: Thread, deliveries: list[Unheard], question: Question) -> Any:
        try:
            answer = self._asked.answer(thread.id, question)
        except Gone as gone:
            self._check_missing(thread, question, str(gone))
            if question[0] != "finding":
                raise
            return Finding(None, problems=(f"{UNSEEN} this commit ({gone}).",))
        is_removed = any(one.said and one.said.action in REMOVALS for one in deliveries)
        if question[0] in ABOUT_SUBJECTS and not answer and not is_removed:
            self._check_missing(thread, question, "GitHub does not show it")
        else:
            self._missing.pop((thread.id, question), None)
        if isinstance(answer, Pull):
            answer = with_newest_head(answer, thread.pushes, thread.now)
        if isinstance(answer, Pull | Issue):
            self._check_time(thread, deliveries, answer)
        return answer

    def _check_missing(self, thread: Thread, question: Question, why: str) -> None:
        """Raises Later unless GitHub has had time to show the subject."""
        since = self._missing.setdefault((thread.id, question), thread.now)
        if is_recent(thread.heard, thread.now) or thread.now - since < SHORT_LAG:
            raise self._later(f"{' '.join(map(str, question))[:100]}: {why}", thread, since)
        del self._missing[thread.id, question]

    def _check_time(self, thread: Thread, deliveries: list[Unheard], answer: Pull | Issue) -> None:
        """Raises Later if the thread has changed since the answer."""
        said = [one.said for one in deliveries if one.said]
        times = [x.at for x in said if x.at and x.event in ("issues", "pull_request")]
        times += [at for at in (self._updated.get(thread.id), answer.updated) if at]
        newest = self._updated[thread.id] = max(times, default=thread.now)
        if answer.updated is None or answer.updated >= newest:
            return
        pushed = [push for push in thread.pushes if push.at == newest]
        shows_push = isinstance(answer, Pull) and answer.head in [push.after for push in pushed]
        if not shows_push and thread.now - newest < SHORT_LAG:
            raise self._later("GitHub shows the thread as it was before", thread, newest)

    @staticmethod
    def _later(why: str, thread: Thread, since: datetime) -> Later:
        return Later(why, min(max(thread.now - since, WAITS[0]), WAITS[1]))


def with_newest_head(pull: Pull, pushes: tuple[Push, ...], now: datetime) -> Pull:
    """The pull request with the head that the newest push names, if GitHub still shows an older
    one. Pure."""
    newest = max((push.at for push in pushes), default=None)
    if newest is None or not is_recent(newest, now):
        return pull
    last = [push for push in pushes if push.at == newest]  # several in one second
    followed = {push.before for push in last}
    after = next((push.after for push in last if push.after not in followed), last[-1].after)
    older = {sha for push in pushes for sha in (push.before, push.after)} - {after}
    return replace(pull, head=after) if pull.head in older else pull
