"""Puts a `Thread` together: from the store alone, and from GitHub what a rule asks for."""

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from bot.controller import store_recovery
from bot.controller.effects import unfinished
from bot.github import GitHub
from bot.inbox import deliveries as inbox_deliveries
from bot.inbox import quarantine
from bot.inbox.deliveries import Unheard
from bot.model.keys import CommandKey, Key
from bot.model.questions import Question
from bot.model.thread import Ran, Said, Shown, Thread, ThreadId
from runner.execution import effects, lifecycle
from runner.execution.progress import progress
from runner.history import provenance
from runner.history.results_entries import EntryRecord
from runner.scheduler.live_queue import Turns
from runner.scheduler.schedule import Place
from runner.schema import record
from runner.schema.record import (
    Answered,
    Approval,
    Edit,
    Isolated,
    PlanRecord,
    Preregistration,
    Run,
    StepEnd,
    run_name,
)
from runner.store.leases import LeaseWatch
from runner.store.store import Store


class Observer:
    """Looks at store, Ray and GitHub, and changes nothing."""

    def __init__(
        self,
        store: Store,
        github: GitHub,
        launcher: effects.Launcher,
        leases: LeaseWatch,
        turns: Turns | None = None,
        site: str = "",
        isolation: Isolated = "",
    ) -> None:
        self._isolation = isolation
        self._store = store
        self._github = github
        self._launcher = launcher
        self._leases = leases
        self._turns = turns
        self._site = site

    def thread(
        self,
        id: ThreadId,
        shown: Mapping[Key, Shown],
        answers: Mapping[Question, Any],
        only: Collection[str] | None = None,
    ) -> tuple[Thread, list[Unheard]]:
        """The thread as it is now, and the deliveries that are in it and not dealt with. With
        `only`, just the commands and pushes of these deliveries are in it, since one of the others
        may be what no rule can take; who has to know of every push asks GitHub."""
        store, repository, number = self._store, id.repository, id.number
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
        looked_at = [it for it in deliveries if only is None or it.name in only]
        thread = Thread(
            id=id,
            repository=self._github.name,
            url=self._github.url,
            now=self._github.now(),
            site=self._site,
            is_pull=is_pull,
            isolation=self._isolation,
            news=inbox_deliveries.news(deliveries, restored),
            messages=inbox_deliveries.messages(looked_at, said, restored),
            pushes=inbox_deliveries.pushes(store, id, looked_at),
            restored=restored,
            aside=quarantine.names(store, id),
            said=said,
            shown=shown,
            seal=record.read(store, f"preregistrations/{id}/1", Preregistration),
            edits=tuple(
                record.require(store, f"preregistrations/{id}/{n}", Edit)
                for n in range(2, len(seals) + 1)
            ),
            plans=tuple(plans),
            entries=tuple(entries),
            approvals=approvals if is_pull else self._refusals(approvals, number),
            answered={
                CommandKey.parse(name): record.require(store, f"answers/{id}/{name}", Answered)
                for name in record.names(store, f"answers/{id}")
            },
            executions=executions,
            answers=answers,
        )
        return thread, deliveries

    def threads(self) -> list[ThreadId]:
        """Every thread that the records know."""
        repository = self._github.id
        numbers = {
            int(name)
            for kind in ("inbox", "said", "plans", "preregistrations")
            for name in record.names(self._store, f"{kind}/{repository}")
        }
        return [ThreadId(repository, number) for number in sorted(numbers)]

    # ── Records ──────────────────────────────────────────────────────────────────────────────

    def _said(self, id: ThreadId) -> dict[Key, Said]:
        keys = map(Key.parse, record.names(self._store, f"said/{id}"))
        return {key: said for key in keys if (said := self._one_said(id, key))}

    def _one_said(self, id: ThreadId, key: Key) -> Said | None:
        """What became of one key; None for a folder in which a death left no claim."""
        path = f"said/{id}/{key}"
        claim = self._store.read(f"records/{path}/claim.json")
        done = self._store.read(f"records/{path}/done.json")
        if claim is None and done is None:
            return None
        claimed = json.loads(claim) if claim else {"kind": "done"}
        if done is None:
            return Said(kind=claimed["kind"], id=None, at=None)
        found = json.loads(done)
        return Said(
            kind=claimed["kind"],
            id=found.get("id"),
            at=datetime.fromisoformat(found["at"]) if found.get("at") else None,
            note=found.get("note", ""),
            unfinished=unfinished(claimed, key),
        )

    def _plans_under(self, repository: int, issue: int) -> list[PlanRecord]:
        """The plans, of any pull request, that name this preregistration."""
        return [
            plan
            for pull in record.names(self._store, f"plans/{repository}")
            for plan in record.numbered(self._store, f"plans/{repository}/{pull}", PlanRecord)
            if plan.plan and plan.plan.preregistration == issue
        ]

    def _executions(
        self, approvals: Mapping[CommandKey, Approval], under: list[PlanRecord] | None
    ) -> tuple[Ran, ...]:
        named = {(plan.pull, plan.n) for plan in under} if under is not None else None
        ids = [
            approval.execution
            for approval in sorted(approvals.values(), key=lambda approval: approval.at)
            if approval.approved and (named is None or (approval.pull, approval.plan) in named)
        ]
        return tuple(
            self._ran(id)
            for id in ids
            if self._store.read(f"records/executions/{id}/execution.json")
        )

    def _ran(self, id: str) -> Ran:
        now = self._github.now()
        life = effects.observe(self._store, self._launcher.look, self._leases, id, now)
        runs = [
            record.read(self._store, f"runs/{id}.{run_name(arm, seed)}", Run)
            for arm, seed in (life.execution.plan.runs() if life.result else ())
        ]
        ends = self._step_ends(life)
        return Ran(
            life=life,
            progress=progress(self._store, life, ends, provenance.failed(ends))
            if life.attempts
            else None,
            runs=tuple(filter(None, runs)),
            steps=ends,
            place=self._place(life),
        )

    def _step_ends(self, life: lifecycle.Facts) -> dict[str, StepEnd]:
        if not life.attempts:
            return {}
        if life.result and (ended := life.attempts[-1].ended):
            return ended.steps
        return provenance.step_ends(self._store, life.execution)

    def _place(self, life: lifecycle.Facts) -> Place | None:
        if self._turns is None or life.attempts or life.result or life.execution.origin is None:
            return None
        return self._turns.waiting(self._github.now()).get(life.execution.id)

    @staticmethod
    def _refusals(
        approvals: Mapping[CommandKey, Approval], issue: int
    ) -> dict[CommandKey, Approval]:
        """Of an issue's thread: only what was commanded on the issue itself."""
        return {key: approval for key, approval in approvals.items() if approval.pull == issue}
