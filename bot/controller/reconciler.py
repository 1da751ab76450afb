"""The loop: look at a thread, decide, act, until nothing is due. Webhooks are only hints to look.

One thread at a time, one process at a time (a lease says who leads). A new leader looks at every
thread in the records; then a delivery wakes its thread, whichever process took it, and a thread
with something due wakes itself.

A turn is one round: facts, decision, a few actions. `bot.controller.thread_queue` has the order.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from bot.controller import catch_up
from bot.controller.causes import Causes, waits_for
from bot.controller.condition import ConditionWatch
from bot.controller.effects import Actor
from bot.controller.freshness import Freshness
from bot.controller.observer import Observer
from bot.controller.paced_actions import PacedActions
from bot.controller.queries import Asked
from bot.controller.records_branch import Witness
from bot.controller.thread_queue import ThreadQueue
from bot.controller.write_budget import LONGEST_RETRY, Pace
from bot.github import GitHub, Later, Refused
from bot.inbox import deliveries as inbox_deliveries
from bot.inbox.deliveries import Unheard
from bot.inbox.quarantine import NOT_THEIRS, Quarantine, SetAside
from bot.model.actions import Drive
from bot.model.keys import Key
from bot.model.questions import Question
from bot.model.site import Site
from bot.model.thread import Thread, ThreadId
from bot.rules import execution as rules_execution
from bot.rules import notices
from bot.rules.decide import COMMANDS, POLL_EVERY, Due, decide
from bot.telemetry import logs, metrics
from runner.analysis.speedrun_ranking import Row
from runner.execution import lifecycle
from runner.execution.ray_jobs import RayJobs
from runner.publish import signing
from runner.scheduler.cluster import Described
from runner.scheduler.live_queue import Turns
from runner.schema.record import Isolated
from runner.store.leases import Leadership, LeaseWatch
from runner.store.store import Store

LIST_EVERY = 5.0  # seconds between two looks for deliveries that another process took
ONE_ROUND = 5.0  # seconds of looking at threads before the loop comes around
MAX_ROUNDS = 100  # without rest for the same deliveries; more means that two rules contradict
RETRY = timedelta(seconds=10)
ASKED_OF_RAY = lifecycle.Submit | lifecycle.Stop

log = logging.getLogger("regatta.reconcile")


class Reconciler:
    """Makes GitHub and the records agree."""

    def __init__(
        self,
        store: Store,
        github: GitHub,
        ray: RayJobs,
        *,
        cluster: Described | None = None,
        site: Site | None = None,
        isolation: Isolated = "",
        on_records: Callable[[], None] = lambda: None,
        sweep_every: timedelta | None = None,
        records_branch: bool = False,
        key: signing.Key | None = None,
        entries: Sequence[Row] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """With a `cluster`, executions start in the order of `runner.scheduler.queue_order`;
        without one, all start when they are approved, and Ray queues them. `isolation` is the
        isolation of own code; without one, own code is refused. Comments link to `site`.
        `on_records` is called after facts were added, to redraw pages. With `sweep_every`, GitHub's
        lists are searched for missed events, and Ray's for unknown jobs. With `records_branch`, the
        records of finished executions are copied to a branch; with a `key`, signed files, too.
        `entries`: rows of speedruns that the store has not, to rank its own among."""
        self._store = store
        self._github = github
        turns = Turns(store, cluster) if cluster else None
        leases = LeaseWatch(store, monotonic)
        self._observer = Observer(store, github, ray, leases, turns, site, isolation)
        self._asked = Asked(store, github, turns, entries)
        self._freshness = Freshness(self._asked)
        self._outages = 0  # that were noticed to have ended
        self._actor = Actor(store, github, ray)
        pace = Pace()
        self._causes = Causes(pace, lambda *asked: self._asked.answer(*asked), monotonic)
        self._queue = ThreadQueue(monotonic, self._comes_first)
        self._actions = PacedActions(
            store,
            github,
            self._actor,
            pace,
            self._causes,
            is_outranked=self._queue.is_outranked,
            monotonic=monotonic,
            draw_site=self._draw_site,
        )
        self.condition = ConditionWatch(store, github, monotonic)
        self._witness = Witness(store, github, pace, key, on=records_branch)
        self._leadership = Leadership(store, "bot", monotonic)
        self.came_around = monotonic()  # the last time that the loop did without an error
        self._on_records = on_records
        self._monotonic = monotonic
        self._rounds: dict[ThreadId, tuple[set[str], int]] = defaultdict(lambda: (set(), 0))
        self._failures: dict[ThreadId, int] = {}
        self._recorded = _Recorded(store)
        self._quarantine = Quarantine(store, github.now)
        self._sweeper = catch_up.Sweeper(store, github, sweep_every, ray)
        self.holds = False  # whether this process has the lease, even while GitHub does not answer
        self._leads = self._stumbles = False
        self._inbox: set[tuple[ThreadId, str]] = set()  # as of the last listing
        self._listed_at = float("-inf")

    @property
    def leads(self) -> bool:
        """Whether this process leads, as of its last `work`; False after an error."""
        return self._leads and not self._stumbles

    def wake(self, id: ThreadId) -> None:
        """Look at a thread now: something may have happened to it."""
        self._queue.put(id)

    def work(self) -> float | None:
        """Look at the threads that are due. Returns the seconds until there are more, if any."""
        try:
            if not self._lead():
                return 1.0
        except (Later, Refused) as error:
            log.info("GitHub cannot be asked what was missed: %s", error)
            return error.wait.total_seconds() if isinstance(error, Later) else 60.0
        away = self._try_again()
        # Threads with running executions are due again and again: the round has to end.
        until = self._monotonic() + ONE_ROUND
        while self._monotonic() < until and (id := self._queue.take()) is not None:
            with logs.about(thread=id.number):
                self._look_safely(id)
            if not self._leadership.held():
                return 1.0
        self._draw_site()
        metrics.UNPOSTED.set(len(self._actor.unposted()))
        copies = self._witness.work(self._monotonic())
        waits = self._queue.waits()
        metrics.WAITING.set(len(waits))
        self._actions.tell_what_waits()
        waits += [] if copies is None else [copies]
        waits += [RETRY.total_seconds()] if away else []
        return max(0.0, min(waits)) if waits else None

    def _draw_site(self) -> None:  # with what was added, which is copied, too
        if self._actions.added:
            self._actions.added = False
            self._on_records()
            self._witness.look()

    def _try_again(self) -> bool:
        """After an outage of GitHub's, do at once what was put off. Returns whether it lasts."""
        away, ended = self._github.outages()
        if ended != self._outages:
            self._outages = ended
            self._actions.retry()
            self._queue.put_all()
        return away

    def _lead(self) -> bool:
        """Whether this process leads; a new leader first takes stock."""
        self.holds = self._leadership.held()
        if not self.holds:
            self._leads = False
            return False
        if not self._leads:
            self._take_stock()
            self._leads = True
        for id in self._sweeper.work():
            self.wake(id)
        now = self._monotonic()
        if now - self._listed_at >= LIST_EVERY:  # other processes' deliveries are only there
            self._listed_at = now
            waiting = set(inbox_deliveries.waiting(self._store, self._github.id))
            for id, _ in waiting - self._inbox:
                self.wake(id)
            self._inbox = waiting
        return True

    def _take_stock(self) -> None:
        """Before the first look: are the records as new as GitHub and Ray?"""
        inbox_deliveries.tidy(self._store, self._github.id)
        self._actions.load()
        catch_up.restored(self._store, self._github)
        for id in self._observer.threads():
            self.wake(id)
        self._witness.look()

    def look_around(self) -> None:
        """The repository or the installation changed: look at every thread again."""
        self._leads = False
        self._outages = -1  # what was not permitted may be now
        self._github.renew()

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set, then release the lease."""
        while not stop.is_set():
            wait = self.come_around()
            with self._queue.changed:
                self._queue.changed.wait(timeout=min(wait if wait is not None else 1.0, 1.0))
        self.release()

    def come_around(self) -> float | None:
        """`work`, with all errors caught. Returns the seconds until it has more to do."""
        try:
            wait = self.work()
            self.condition.look(self._actions.deferred if self._leads else None)
        except (Exception, SystemExit):  # such as a full disk: nothing is lost by looking again
            log.exception("the reconciler had an error; it continues")
            metrics.STUMBLES.inc()
            self._stumbles = True
            return 1.0
        self._stumbles = False
        self.came_around = self._monotonic()
        return wait

    def release(self) -> None:
        """Let the next leader take over at once."""
        self._leads = False
        self._leadership.release()

    def _comes_first(self, id: ThreadId) -> bool:
        pending = inbox_deliveries.unhandled(self._store, id)
        return any(self._causes.comes_first(id, one) for one in pending)

    def _look_safely(self, id: ThreadId) -> None:
        """Look at a thread, with all errors caught, and plan the next look."""
        try:
            with metrics.looking(Later):
                again = self._look(id)
        except Later as error:
            log.info("thread %s is looked at later: %s", id.number, error)
            self._rounds.pop(id, None)  # an outage may last for more looks than there are rounds
            self._queue.put(id, error.wait)
        except (Exception, SystemExit) as error:  # a thread's content must not end the loop
            self._rounds.pop(id, None)
            times = self._failures[id] = self._failures.get(id, 0) + 1
            log.exception("thread %s could not be handled (%s times in a row)", id.number, times)
            wait = min(RETRY * 2 ** min(times - 1, 5), LONGEST_RETRY)
            self._queue.put(id, timedelta(0) if isinstance(error, SetAside) else wait)
        else:
            self._failures.pop(id, None)
            if again is not None:
                self._queue.put(id, again)

    def _look(self, id: ThreadId) -> timedelta | None:
        again = self._carry_on(id)
        if not self._actor.finish(id):
            return _soonest(again, self._actor.again(id))
        waiting = self._quarantine.spared(id, inbox_deliveries.unhandled(self._store, id))
        turn = self._quarantine.turn(id, waiting)
        if len(turn) == len(waiting):
            turn = self._causes.taken_up(id, waiting)
        cause, wait = self._causes.look(id, turn)
        turn, before = () if wait else turn, self._github.requests
        first = any(self._causes.comes_first(id, one) for one in turn)
        self._queue.begin(id, live=again is not None, first=first)
        try:
            with self._quarantine.around(id, turn):
                again, rests = self._look_at(id, {one.name for one in turn})
        finally:
            self._causes.looked(cause, self._github.requests - before)
        if rests and waiting:
            left = inbox_deliveries.unhandled(self._store, id)
            self._causes.got_no_further(id, turn, left)
            # A write that waits for its turn is still pending.
            if not wait and self._causes.are_untried(id, left):
                return timedelta(0)
        again = _soonest(again, timedelta(seconds=wait)) if wait else again
        return _soonest(again, self._actor.again(id))

    def _look_at(self, id: ThreadId, only: set[str]) -> tuple[timedelta | None, bool]:
        """Look at a thread, for one round, and ignore the commands of other deliveries. Returns
        when to come again, and whether there is nothing to do now."""
        # Keys that may not be written yet: seconds to wait.
        postponed = self._actions.postponed(id)
        if only != self._rounds[id][0]:
            self._rounds[id] = only, 0
        self._rounds[id] = only, self._rounds[id][1] + 1
        if self._rounds[id][1] > MAX_ROUNDS:
            raise AssertionError(f"thread {id.number} does not come to rest")
        done, ends = 0, False
        while not (done or ends):  # once more without those that have to wait
            thread, deliveries, due = self._decide(id, only, postponed)
            if not due.actions:
                if COMMANDS in due.failures:
                    raise due.failures[COMMANDS]
                if due.waits_for:
                    raise Later(str(due.waits_for), due.waits_for.wait)
                break
            with logs.about(deliveries=[one.name for one in deliveries]):
                done, ends = self._actions.do(thread, due.actions, postponed)
        else:
            self._wake_named(thread)
            asked = (x for x in due.actions if isinstance(x, Drive))
            of_ray = sum(isinstance(drive.action, ASKED_OF_RAY) for drive in asked)
            if ends or of_ray < len(due.actions):
                return timedelta(0), False  # let the others have their turn
        if not done:
            self._rounds.pop(id, None)
            for delivery in deliveries:
                if delivery.name in only and not waits_for(delivery, postponed):
                    inbox_deliveries.handle(self._store, id, delivery)
                    with logs.about(delivery=delivery.name):
                        log.info("dealt with")
        waits = (*postponed.values(), *self._actions.waits(id))
        # Ray is slow; the next look sees the result of what it was asked.
        return _soonest(due.look_again, *(timedelta(seconds=one) for one in waits)), not done

    def _decide(
        self, id: ThreadId, only: set[str], postponed: dict[Key, float]
    ) -> tuple[Thread, list[Unheard], Due]:
        """Decide on facts that were all looked up for this one decision, or seconds before, when
        GitHub failed in between."""
        answers: dict[Question, Any] = {}
        while True:
            shown = self._actor.shown.get(id, {})
            thread, deliveries = self._observer.thread(id, shown, answers, only)
            unposted, is_late = self._actor.unposted(id), self._actions.is_late(id)
            thread = replace(thread, unposted=unposted, is_late=is_late)
            due = decide(thread, self._recorded, postponed)
            _tell_failures(thread, due)
            if not due.questions:
                if not due.waits_for:
                    self._freshness.decided(id)
                return thread, deliveries, due
            with logs.about(deliveries=[one.name for one in deliveries]):
                _, ends = self._actions.do(thread, due.actions, postponed)  # 👀
            if ends:
                raise Later("another thread goes first", timedelta(0))
            for question in due.questions:
                try:
                    answers[question] = self._freshness.answer(thread, deliveries, question)
                except (*NOT_THEIRS, Refused):
                    raise
                except Exception as error:  # only the rules that ask this fail by it
                    answers[question] = error

    def _carry_on(self, id: ThreadId) -> timedelta | None:
        """Advance the executions, whatever GitHub does. Returns when to come again; None if not
        needed.

        Ended training is recorded, lost attempts are followed by the next and cancelled ones are
        stopped, even while a comment's outcome is unknown or GitHub does not answer.
        """
        thread, _ = self._observer.thread(id, {}, {}, ())
        for write in (voids := list(notices.voids(thread))):
            self._actor.act(thread, write)
        if voids:
            thread, _ = self._observer.thread(id, {}, {}, ())
        for action in rules_execution.ongoing(thread):
            self._actor.act(thread, action)
            self._actions.added = True
        live = thread.is_pull and any(not ran.result for ran in thread.executions)
        return POLL_EVERY if live else None

    def _wake_named(self, thread: Thread) -> None:
        """A thread writes only to itself; wake the issues that its plans name."""
        if thread.is_pull:
            for issue in {plan.plan.preregistration for plan in thread.plans if plan.plan}:
                if issue is not None:
                    self._queue.put(ThreadId(thread.id.repository, issue), live=True)


def _soonest(*waits: timedelta | None) -> timedelta | None:
    """The shortest of the waits; None if there is none."""
    return min((wait for wait in waits if wait is not None), default=None)


def _tell_failures(thread: Thread, due: Due) -> None:
    """Log each feature that fails on a thread, until the thread is told."""
    for feature, error in due.failures.items():
        if Key("aside", feature) not in thread.said:
            log.error("%s fails on thread %s", feature, thread.id.number, exc_info=error)


class _Recorded(Container[str]):
    """The existing records, for `in`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __contains__(self, path: object) -> bool:
        return self._store.read(f"records/{path}.json") is not None
