"""Answers questions of rules: about GitHub, and about the current lab."""

import base64
import secrets
from collections.abc import Iterable
from typing import Any

import yaml

from bot.controller.lab_files import LabFiles
from bot.controller.pull_request_source import Declared, drifted
from bot.github import GitHub
from bot.model.policy_file import FORM_PATH
from bot.model.questions import Question
from bot.model.thread import ThreadId
from runner.analysis.speedrun_ranking import Row
from runner.history import excerpts, provenance
from runner.history.excerpts import Excerpt
from runner.history.execution_index import Past
from runner.planning import subset
from runner.scheduler.budget_ledger import Ledger
from runner.scheduler.live_queue import Turns
from runner.schema import record
from runner.schema.lab_config import LabConfig
from runner.schema.record import Narrowing, Person, PlanRecord
from runner.store.store import Store


class Asked:
    """Looks up what a rule asks for; changes nothing."""

    def __init__(
        self,
        store: Store,
        github: GitHub,
        turns: Turns | None = None,
        entries: Iterable[Row] = (),
    ) -> None:
        self._store = store
        self._github = github
        self._turns = turns
        self._past = Past(store, entries)
        self._lab = LabFiles(github)
        self._declared = Declared(store, github, self._past, self._lab)
        self._ledger = turns.ledger if turns else Ledger(store)
        self._fingerprints: dict[tuple[int, str, str, int], str] = {}
        self._planned_by: LabConfig | None = None

    def answer(self, id: ThreadId, question: Question) -> Any:
        """Look up one answer. Raises `Later` if it cannot be known now."""
        match question:
            case ("issue",):
                return self._github.issue(id.number)
            case ("pull",):
                return self._github.pull(id.number)
            case ("role", login):
                return self._github.role(login)
            case ("form",):
                return self._form()
            case ("finding", base, head, rung):
                return self._declared.finding(id.repository, base, head, rung)
            case ("refusal", by, plan, left):
                return self._refusal(id, by, plan, left)
            case ("policy",):
                return self._lab.now().policy
            case ("review", review):
                return self._github.review(id.number, review)
            case ("forced",):
                return tuple(self._github.pushes(id.number))
            case ("proposals", author):
                return self._github.proposals(author)
            case ("contributions",):
                return self._github.contributions(id.number)
            case ("registration", issue):
                return self._past.registration(id.repository, issue)
            case ("positions", execution):
                return self._past.positions(execution)
            case ("replan", plan):
                return self._replan(id, plan)
            case ("excerpts", execution):
                return self._excerpts(execution)
            case ("code", _):
                return _code()
        raise AssertionError(f"nobody has asked {question} yet")

    def _refusal(self, id: ThreadId, by: Person, plan: int, left: Narrowing | None) -> str | None:
        proposed = record.require(self._store, f"plans/{id}/{plan}", PlanRecord)
        now = self._github.now()
        if proposed.plan is None:
            return None
        found, limit = subset.remaining(proposed, left)
        if meant := drifted(self._store, found):
            return meant[0]
        if self._turns and (full := self._turns.refusal(found, by.login, now)):
            return full
        policy = self._lab.now().policy
        if proposed.agent and (allowed := policy.allowance(proposed.agent)):
            most, agent = allowed.device_hours_per_month, proposed.agent.id
            if over := self._ledger.over_allowance(agent, found, limit, most, now):
                return over
        budgets = policy.device_hours_per_person_and_month
        return self._ledger.over_budget(by.id, found, limit, budgets, now)

    def _replan(self, id: ThreadId, n: int) -> str | None:
        """The fingerprint that the current lab would give a plan. The code of this process does not
        change, so it is computed once per commit and
        content of the lab's files."""
        planned = record.require(self._store, f"plans/{id}/{n}", PlanRecord)
        if planned.plan is None:
            return None
        rung = planned.plan.rung.n if planned.plan.rung else 1
        key = (id.repository, planned.plan.experiment, planned.commit, rung)
        if (config := self._lab.now().config) != self._planned_by:
            self._planned_by, self._fingerprints = config, {}
        if known := self._fingerprints.get(key):
            return known
        if found := self._declared.fingerprint(*key):  # a failed look-up may succeed later
            self._fingerprints[key] = found
        return found

    def _excerpts(self, id: str) -> tuple[Excerpt, ...]:
        execution = record.require(self._store, f"executions/{id}/execution", record.Execution)
        account = provenance.account(self._store, execution)
        found = excerpts.of_last_steps(self._store, account)
        return tuple(one for one in found if one.text)

    def _form(self) -> dict[str, str]:
        content = self._github.file(FORM_PATH)
        try:
            form = yaml.safe_load(content or b"")
            fields = form["body"] if isinstance(form, dict) else []
            return {field["id"]: field["attributes"]["label"] for field in fields if "id" in field}
        except (yaml.YAMLError, KeyError, TypeError):
            return {}


def _code() -> str:
    """100 random bits, easy to read aloud."""
    letters = base64.b32encode(secrets.token_bytes(15)).decode().lower()[:20]
    return "-".join(letters[n : n + 4] for n in range(0, 20, 4))
