"""Because of whom something is due, who that is, and whose commands a turn takes up.

A person's rank decides about order and shares only. Every permission is asked of GitHub anew.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any

from bot.controller.write_budget import ANSWER, FIGURES, LAB, REQUESTS, Cause, Pace, Rank
from bot.inbox.deliveries import Unheard
from bot.model.actions import Check, Label, Picture, React, Say, Show
from bot.model.keys import Key
from bot.model.policy_file import Policy
from bot.model.questions import Question
from bot.model.thread import Pull, Thread, ThreadId
from runner.schema.record import Person, PlanRecord

EXECUTIONS = ("status", "check", "result", "picture", "verdict", "restored")  # kinds of keys
LABELS = ("wishlist", "planned")  # causes of labels without an execution
KNOWN_FOR = 3600.0  # seconds until a person's rank is asked again
POLICY_KNOWN_FOR = 60.0  # seconds, for that
MAX_KNOWN = 10_000  # people
# Messages that a turn takes up: more than there are people whose own share can be used up while
# strangers' common one is not, so that these hold up nobody.
MAX_MESSAGES = 10
UNKNOWN = Person(login="", id=0)

Write = React | Say | Check | Label | Picture | Show


def caused_by(thread: Thread, action: Write) -> Person | None:
    """The person because of whom a write is due; None: nobody, it is about an execution that was
    approved. Pure."""
    key = action.of if isinstance(action, Show) else action.key
    if key.kind in EXECUTIONS or (key.kind == "label" and not key.of.startswith(LABELS)):
        return None
    if key.kind in ("plan", "entry") and key.of.isdigit():
        return _proposer(thread, int(key.of))
    if key.kind in ("sealed", "edited", "label", "unread"):
        opened = thread.seal or thread.answers.get(("issue",))
        return opened.author if opened else UNKNOWN
    people = {command.message: answer.by for command, answer in thread.approvals.items()}
    people |= {command.message: answer.by for command, answer in thread.answered.items()}
    people |= {message.key(0).message: message.author for message in thread.messages}
    return people.get(_message(key), UNKNOWN)


def _proposer(thread: Thread, n: int) -> Person:
    """Who asked for the plan with this number, or else proposed it."""
    answers = (answer.by for answer in thread.answered.values() if answer.plan == n)
    posts = (approval.by for approval in thread.approvals.values() if approval.posts == n)
    proposed: PlanRecord | Pull | None = thread.answers.get(("pull",))
    proposed = next((plan for plan in thread.plans if plan.n == n), proposed)
    author = proposed.author if proposed else None
    return next(chain(answers, posts), author) or UNKNOWN


def _message(key: Key) -> str:
    """The message that a key is about: `50` of `50-0`, `50.eyes` and `50`."""
    return re.split("[.-]", key.of)[0]


def rank_of(policy: Policy, who: Person, role: str) -> Rank:
    """The rank of a person with this role. Pure."""
    if policy.agent(who.login, who.id):
        return Rank.MEMBER
    if policy.permits("run", who.login, role) or policy.permits("cancel", who.login, role):
        return Rank.APPROVER
    return Rank.STRANGER if role in ("none", "read", "") else Rank.MEMBER


def _author(heard: Unheard) -> int:
    """The account whose message it is; 0 if it has none."""
    return heard.said.message.author.id if heard.said and heard.said.message else 0


def waits_for(heard: Unheard, postponed: Collection[Key]) -> bool:
    """Whether a postponed write, or what comes after it, follows from this delivery and from no
    record. Pure."""
    if any(key.kind == "unread" or key == Key("plan", key.of) for key in postponed):
        return True
    message = heard.said.message if heard.said else None
    return message is not None and message.key(0).message in map(_message, postponed)


class Causes:
    """Who people are, as of the last hour, and what they may use of a budget."""

    def __init__(
        self,
        pace: Pace,
        answer: Callable[[ThreadId, Question], Any],
        monotonic: Callable[[], float],
    ) -> None:
        """`answer` looks something up on GitHub."""
        self._pace, self._answer, self._monotonic = pace, answer, monotonic
        self._requests = Pace(REQUESTS)
        self._ranks: dict[int, tuple[Rank, float]] = {}  # by account: until when it counts
        self._policy: tuple[Policy, float] | None = None  # and when it was read
        self._stuck: dict[ThreadId, Counter[str]] = {}  # how often a delivery got no further

    def wait(self, thread: Thread, action: Write, level: int, writes: int) -> tuple[Cause, float]:
        """The cause of a write, and the seconds that it has to wait. Somebody whom nobody knows
        is a stranger until that would have to wait; only then GitHub is asked."""
        who = caused_by(thread, action)
        rank = self._known(who.id) if who else None
        cause = self._cause(thread, action, rank or Rank.STRANGER, who)
        wait = self._wait(thread, action, level, writes, cause)
        if wait and who and who.id and rank is None:
            cause = self._cause(thread, action, self._ask(thread, who), who)
            wait = self._wait(thread, action, level, writes, cause)
        return cause, wait

    def _cause(self, thread: Thread, action: Write, rank: Rank, who: Person | None) -> Cause:
        if who is None:
            return LAB
        if action.key.kind in ("sealed", "edited"):
            rank = min(rank, Rank.MEMBER)
        return Cause(rank, who.id, thread.id.number)

    def _wait(self, thread: Thread, action: Write, level: int, writes: int, cause: Cause) -> float:
        if isinstance(action, React) and cause.rank > Rank.APPROVER:
            level = FIGURES
        now = self._monotonic()
        return self._pace.wait((thread.id, action.key), level, now, writes, cause)

    def _known(self, id: int) -> Rank | None:
        rank, until = self._ranks.get(id, (None, 0.0))
        return rank if self._monotonic() < until else None

    def _ask(self, thread: Thread, who: Person) -> Rank:
        """A person's rank now. Raises `bot.github.Later`."""
        now = self._monotonic()
        if self._policy is None or now - self._policy[1] > POLICY_KNOWN_FOR:
            self._policy = self._answer(thread.id, ("policy",)), now
        rank = rank_of(self._policy[0], who, self._answer(thread.id, ("role", who.login)))
        if len(self._ranks) >= MAX_KNOWN:
            self._ranks.clear()
        self._ranks[who.id] = rank, now + KNOWN_FOR
        return rank

    # ── Turns ────────────────────────────────────────────────────────────────────────────────

    def rank(self, heard: Unheard) -> Rank:
        """Of who sent a delivery, as far as it is known here. Until then GitHub's word counts that
        somebody belongs to the repository."""
        said = heard.said
        known = self._known(_author(heard))
        return known or (Rank.APPROVER if said and said.insider else Rank.STRANGER)

    def comes_first(self, id: ThreadId, heard: Unheard) -> bool:
        """Whether a delivery may be a command of somebody who may approve, and got further each
        time."""
        return self.rank(heard) <= Rank.APPROVER and not self._stuck.get(id, Counter())[heard.name]

    def taken_up(self, id: ThreadId, pending: Sequence[Unheard]) -> list[Unheard]:
        """The deliveries of this turn: all without a message, which are hints to look, and a few
        messages. Those of people who may approve come first and alone; then of each person the
        first one, of each the second, and so on."""
        stuck = self._stuck.get(id, Counter())
        nth, order = Counter[int](), dict[str, tuple[int, int]]()
        messages = [one for one in pending if _author(one)]
        for one in messages:
            order[one.name] = stuck[one.name], nth[_author(one)]
            nth[_author(one)] += 1
        # A sweep does not say who belongs here; somebody's own commands keep their order.
        approvers = {_author(one) for one in messages if self.comes_first(id, one)}
        first = [one for one in messages if _author(one) in approvers and not stuck[one.name]]
        chosen = first or sorted(messages, key=lambda one: order[one.name])
        names = {one.name for one in chosen[:MAX_MESSAGES]}
        return [one for one in pending if one.name in names or one.name not in order]

    def look(self, id: ThreadId, taken: Sequence[Unheard]) -> tuple[Cause, float]:
        """Because of whom a thread is looked at, and the seconds that these deliveries have to wait
        because of how much was asked of GitHub for that person."""
        if not taken:
            return LAB, 0.0
        cause = min(Cause(self.rank(one), _author(one), id.number) for one in taken)
        return cause, self._requests.wait((id, ""), ANSWER, self._monotonic(), cause=cause)

    def looked(self, cause: Cause, requests: int) -> None:
        """Count the requests of a look."""
        if requests:
            self._requests.wrote(self._monotonic(), cause, requests)

    def got_no_further(
        self, id: ThreadId, taken: Sequence[Unheard], left: Sequence[Unheard]
    ) -> None:
        """There is nothing to do now for those that are left of these: others have their turn
        first."""
        stuck = self._stuck.pop(id, Counter[str]())
        stuck.update(one.name for one in taken)
        if left:
            self._stuck[id] = Counter({one.name: stuck[one.name] for one in left})

    def are_untried(self, id: ThreadId, left: Sequence[Unheard]) -> bool:
        """Whether some of these had no turn yet."""
        stuck = self._stuck.get(id, Counter())
        return not all(stuck[one.name] for one in left)
