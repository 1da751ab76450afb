"""What a lab looks like from outside and in its records, in a form that two tellings can share.

Two tellings of a story differ in ids, times and nonces and in nothing else. Here these are renamed
by first appearance, so that the rest can be compared for equality.
"""

import re
from collections.abc import Iterable
from typing import Any

from bot.fake_github.world.state import CheckRun
from tests.scenarios.lab import Lab

_VOLATILE = [
    (re.compile(r"http://127\.0\.0\.1:\d+"), "HOST"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(Z| UTC)?"), "TIME"),
    (re.compile(r"\b\d+ (s|min)\b( \d+ s)?"), "DURATION"),
    (re.compile(r"\b[a-z2-7]{4}(-[a-z2-7]{4}){4}\b"), "CODE"),  # of a plan: random
]
_IDS = re.compile(
    r"\b(x[0-9a-f]{16}|[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{16}|[0-9a-f]{12}|\d{4}(?=-\d\b))\b"
)


def visible(lab: Lab) -> dict[str, Any]:
    """Comments, labels, reactions and checks of every thread, and the lab's facts."""
    rename = _Renamer()
    sandbox = lab.sandbox
    threads = {}
    for number in sorted(sandbox.world.issues):
        issue = sandbox.issue(number)
        threads[number] = {
            "labels": lab.labels(number),
            "comments": sorted(
                (comment.user.login, rename(comment.body)) for comment in issue.comments
            ),
            "reactions": [
                sorted((reaction.user.login, reaction.content) for reaction in comment.reactions)
                for comment in issue.comments
                if not sandbox.is_app(comment.user)
            ],
        }
    checks = sorted(
        (
            rename(run.name),
            rename(run.head_sha),
            run.status,
            run.conclusion or "",
            rename(run.summary or ""),
        )
        for run in _shown(sandbox.world.checks.values())
    )
    return {"threads": threads, "checks": checks, "facts": _facts(lab, rename)}


def _shown(checks: Iterable[CheckRun]) -> list[CheckRun]:
    """Of the check runs with one name on one commit, a pull request's page shows the newest."""
    return list({(run.name, run.head_sha): run for run in checks}.values())


def _facts(lab: Lab, rename: "_Renamer") -> list[tuple[str, str]]:
    """The records that are facts about research; what was said is compared on the threads."""
    kinds = ("preregistrations", "plans", "approvals", "executions", "runs")
    return sorted(
        (rename(f"{kind}/{path}"), rename(_flat(fact)))
        for kind in kinds
        for path, fact in lab.records(kind).items()
    )


def _flat(fact: Any) -> str:
    """A fact without what only its moment decides."""
    if isinstance(fact, dict):
        moment = (
            "at",
            "heard",
            "made_at",
            "seconds",
            "device_seconds",
            "nonce",
            "seal",
            "spec_sha256",
            "sha256",
            "checkpoint_sha256",
        )
        return str({k: _flat(v) for k, v in sorted(fact.items()) if k not in moment})
    if isinstance(fact, list):
        return str([_flat(value) for value in fact])
    return repr(fact)


class _Renamer:
    """Ids by first appearance; times and durations by their kind."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        for pattern, name in _VOLATILE:
            text = pattern.sub(name, text)
        return _IDS.sub(self._name, text)

    def _name(self, match: re.Match[str]) -> str:
        return self._names.setdefault(match[0], f"id{len(self._names)}")
