"""Answers what rules ask: of GitHub, and of the lab as it is now."""

from typing import Any

import yaml

from bot.declared import Declared, drifted
from bot.facts import Form, Question, ThreadId
from bot.github import GitHub
from runner import record
from runner.record import PlanRecord
from runner.store import Store
from runner.turns import Turns

FORM_PATH = ".github/ISSUE_TEMPLATE/experiment.yml"


class Asked:
    """Looks up what a rule asked for, and changes nothing."""

    def __init__(self, store: Store, github: GitHub, turns: Turns | None = None) -> None:
        self._store = store
        self._github = github
        self._turns = turns
        self._declared = Declared(store, github)

    def answer(self, id: ThreadId, question: Question) -> Any:
        """Look one thing up. Raises `Later` where it cannot be known now."""
        match question.what:
            case "issue":
                return self._github.issue(id.number)
            case "pull":
                return self._github.pull(id.number)
            case "role":
                return self._github.role(*question.about)
            case "form":
                return self._form()
            case "finding":
                return self._declared.finding(id.repository, *question.about)
            case "refusal":
                return self._refusal(id, *question.about)
            case _:
                raise AssertionError(f"nobody has asked {question} yet")

    def _refusal(self, id: ThreadId, login: str, plan: str) -> str:
        path = f"plans/{id.repository}/{id.number}/{plan}"
        found = record.require(self._store, path, PlanRecord).plan
        if found is None:
            return ""
        if meant := drifted(self._store, found):
            return meant[0]
        if self._turns is None:
            return ""
        return self._turns.refusal(found, login, self._github.now())

    def _form(self) -> Form:
        content = self._github.file(FORM_PATH)
        try:
            form = yaml.safe_load(content or b"")
            fields = form["body"] if isinstance(form, dict) else []
            labels = {
                field["id"]: field["attributes"]["label"] for field in fields if "id" in field
            }
        except (yaml.YAMLError, KeyError, TypeError):
            labels = {}
        return Form(labels)
