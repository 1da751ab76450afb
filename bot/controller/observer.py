"""Builds a `Thread`: from the store, and from GitHub what a rule asks for."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bot.controller import store_recovery
from bot.controller.effects import unmarked
from bot.github import GitHub
from bot.inbox import deliveries as inbox_deliveries
from bot.inbox import quarantine
from bot.inbox.deliveries import Unheard
from bot.model.keys import CommandKey, Key
from bot.model.questions import Question
from bot.model.site import Site
from bot.model.thread import Ran, Said, Shown, Thread, ThreadId
from runner.execution import effects, lifecycle
from runner.execution.progress import progress
from runner.history import provenance
from runner.history.results_entries import EntryRecord
from runner.publish import wandb_live
from runner.scheduler.live_queue import Turns
from runner.scheduler.queue_order import Place
from runner.schema import record
from runner.schema.record import (
    Approval,
    Isolated,
    PlanRecord,
    StepEnd,
)
from runner.store.leases import LeaseWatch
from runner.store.store import Store

MAX_ENDED = 200  # executions that are kept in memory
MAX_SAID = 50_000  # writes that are done, as well


@dataclass(frozen=True)
class Observer:
    """Reads store, Ray and GitHub; changes nothing."""

    store: Store
    github: GitHub
    launcher: effects.Launcher
    leases: LeaseWatch
    turns: Turns | None = None
    site: Site | None = None
    isolation: Isolated = ""
    # Executions that have ended change no more; a thread is looked at much oftener than one ends.
    _ended: dict[str, Ran] = field(default_factory=dict)
    _done: dict[str, Said] = field(default_factory=dict)  # nor do writes that are done

    def thread(
        self,
        id: ThreadId,
        shown: Mapping[Key, Shown],
        answers: Mapping[Question, Any],
        only: Collection[str] | None = None,
    ) -> tuple[Thread, list[Unheard]]:
        """The thread as it is now, and its pending deliveries. With `only`, it contains the
        commands and pushes of just these deliveries, because another one may crash the
        rules, or its turn comes later."""
        store, repository, number = self.store, id.repository, id.number
        deliveries = inbox_deliveries.unhandled(store, id)
        seals = record.names(store, f"preregistrations/{id}")
        plans = record.numbered(store, f"plans/{id}", PlanRecord)
        entries = record.numbered(store, f"entries/{id}", EntryRecord)
        is_pull = bool(plans or entries) or any(it.said and it.said.pull for it in deliveries)
        if not is_pull:
            plans = self._plans_under(repository, number)
        approvals = {
            CommandKey.parse(name): record.require(store, f"{folder}/{name}", Approval)
            for pull in sorted({number} | {plan.pull for plan in plans})
            for folder in (f"approvals/{repository}/{pull}",)
            for name in record.names(store, folder)
        }
        executions = self._executions(approvals, None if is_pull else plans)
        said, restored = self._said(id), store_recovery.moment(store, id)
        ours = self.github.bot, plans[-1].commit if plans else ""
        looked_at = [it for it in deliveries if only is None or it.name in only]
        thread = Thread(
            id=id,
            repository=self.github.name,
            url=self.github.url,
            now=self.github.now(),
            site=self.site,
            is_pull=is_pull,
            isolation=self.isolation,
            news=inbox_deliveries.news(looked_at, restored),
            heard=max((it.said.at for it in looked_at if it.said and it.said.at), default=None),
            messages=inbox_deliveries.messages(looked_at, said, restored, ours),
            pushes=inbox_deliveries.pushes(store, id, looked_at),
            restored=restored,
            aside=quarantine.names(store, id),
            said=said,
            shown=shown,
            seal=record.read(store, f"preregistrations/{id}/1", record.Preregistration),
            edits=tuple(
                record.require(store, f"preregistrations/{id}/{n}", record.Edit)
                for n in range(2, len(seals) + 1)
            ),
            plans=tuple(plans),
            entries=tuple(entries),
            # In an issue's thread: only commands on the issue itself.
            approvals={key: it for key, it in approvals.items() if is_pull or it.pull == number},
            answered={
                CommandKey.parse(name): record.require(
                    store, f"answers/{id}/{name}", record.Answered
                )
                for name in record.names(store, f"answers/{id}")
            },
            executions=executions,
            answers=answers,
        )
        return thread, deliveries

    def threads(self) -> list[ThreadId]:
        """Every thread in the records."""
        repository = self.github.id
        numbers = {
            int(name)
            for kind in ("inbox", "said", "plans", "preregistrations")
            for name in record.names(self.store, f"{kind}/{repository}")
        }
        return [ThreadId(repository, number) for number in sorted(numbers)]

    # ── Records ──────────────────────────────────────────────────────────────────────────────

    def _said(self, id: ThreadId) -> dict[Key, Said]:
        keys = map(Key.parse, record.names(self.store, f"said/{id}"))
        return {key: said for key in keys if (said := self._one_said(id, key))}

    def _one_said(self, id: ThreadId, key: Key) -> Said | None:
        """The record of one key; None for a folder that a crash left without a claim."""
        path = f"said/{id}/{key}"
        if known := self._done.get(path):
            return known
        claim = self.store.read(f"records/{path}/claim.json")
        done = self.store.read(f"records/{path}/done.json")
        if claim is None and done is None:
            return None
        claimed, found = json.loads(claim or b'{"kind": "done"}'), json.loads(done or b"{}")
        body = unmarked(claimed, key)
        said = Said(
            kind=claimed["kind"],
            id=found.get("id"),
            at=datetime.fromisoformat(found["at"]) if found.get("at") else None,
            note=found.get("note", ""),
            unfinished=body if done and claimed.get("lacks") else "",
            body=body,
        )
        if done:
            self._done[path] = said
            if len(self._done) > MAX_SAID:
                del self._done[next(iter(self._done))]
        return said

    def _plans_under(self, repository: int, issue: int) -> list[PlanRecord]:
        """The plans, of all pull requests, that name this preregistration."""
        return [
            plan
            for pull in record.names(self.store, f"plans/{repository}")
            for plan in record.numbered(self.store, f"plans/{repository}/{pull}", PlanRecord)
            if plan.plan and plan.plan.preregistration == issue
        ]

    def _executions(
        self, approvals: Mapping[CommandKey, Approval], under: list[PlanRecord] | None
    ) -> tuple[Ran, ...]:
        named = {(plan.pull, plan.n) for plan in under} if under is not None else None
        return tuple(
            self._ran(approval.execution)
            for approval in sorted(approvals.values(), key=lambda approval: approval.at)
            if approval.approved and (named is None or (approval.pull, approval.plan) in named)
            if self.store.read(f"records/executions/{approval.execution}/execution.json")
        )

    def _ran(self, id: str) -> Ran:
        ran = self._ended.get(id) or self._seen(id)
        if ran.life.result and all(attempt.ended for attempt in ran.life.attempts):
            self._ended[id] = ran
            if len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]
        return ran

    def _seen(self, id: str) -> Ran:
        now = self.github.now()
        life = effects.observe(self.store, self.launcher.look, self.leases, id, now)
        runs = (
            record.read(self.store, f"runs/{id}.{record.run_name(arm, seed)}", record.Run)
            for arm, seed in (life.execution.plan.runs() if life.result else ())
        )
        ends, begun = self._step_ends(life), bool(life.attempts)
        return Ran(
            life=life,
            progress=progress(self.store, life, ends, provenance.failed(ends)) if begun else None,
            runs=tuple(filter(None, runs)),
            steps=ends,
            place=self._place(life),
            tracked=wandb_live.address(self.store, id) if begun else None,
        )

    def _step_ends(self, life: lifecycle.Facts) -> dict[str, StepEnd]:
        if not life.attempts:
            return {}
        if life.result and (ended := life.attempts[-1].ended):
            return ended.steps
        return provenance.step_ends(self.store, life.execution)

    def _place(self, life: lifecycle.Facts) -> Place | None:
        if self.turns is None or life.attempts or life.result or life.execution.origin is None:
            return None
        return self.turns.waiting(self.github.now()).get(life.execution.id)
