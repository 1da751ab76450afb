"""The page of results that people have entered: their own figures, and what was found in them.

They have no rank, since nobody but their authors has seen them come about, and they are on other
text than the lab's. A row is reproduced once an execution of the experiment that came with it, at
the same commit, has an arm of as many parameters whose figure is the same within 1 %.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

from bot.site.board import Entry, Lab
from bot.site.files import File, made_from
from bot.site.memory import listed
from bot.site.templating import Look
from runner import entries
from runner.analysis import speedrun
from runner.analysis.speedrun import Finding
from runner.analysis.tracks import Tier
from runner.entries import Entered
from runner.store import Store, to_json


@dataclass(frozen=True)
class Ours:
    """What an arm of the lab's own execution came to."""

    execution: str
    arm: str
    parameters: int | None
    bpb: float  # mean over its seeds

    @property
    def page(self) -> str:
        """Where it is told."""
        return f"executions/{self.execution}/index.html"


@dataclass(frozen=True)
class Row:
    """An entered run, what was found in it, and what the lab made of it itself."""

    entered: Entered
    findings: tuple[Finding, ...]
    ours: tuple[Ours, ...]  # of the experiment that came with it, at the same commit

    @property
    def same(self) -> Ours | None:
        """The arm that is this run, as far as figures tell."""
        run = self.entered.run
        return next(
            (
                one
                for one in self.ours
                if one.parameters == run.model_size
                and abs(one.bpb - run.bpb) <= speedrun.CLOSE * abs(run.bpb)
            ),
            None,
        )

    @property
    def tier(self) -> Tier:
        """Who has seen it come about."""
        return "reproduced" if self.same else "self-reported"


def files(store: Store, facts: Lab, look: Look) -> Iterator[File]:
    """`entries.html` and its twin."""
    made = made_from(look.told, facts.told, *(seen for _, seen in listed(store, "entries")))

    @cache
    def found() -> list[Row]:
        return rows(entries.merged(store), facts.entries)

    def page() -> str:
        told = {"rows": found(), "plain": entries.plain, "rules": speedrun.RULES}
        return look.render("entries.html", "entries.html", **told)

    yield File("api/entries.json", lambda: to_json([_twin(row) for row in found()]), made)
    yield File("entries.html", page, made)


def rows(entered: Sequence[Entered], lab: Iterable[Entry]) -> list[Row]:
    """The rows, newest first. All are audited again, now that they stand beside each other."""
    findings = speedrun.audit({one.name: one.run for one in entered})
    ran: dict[tuple[int, int, str], list[Ours]] = {
        (one.repository, one.pull, one.commit): [] for one in entered
    }
    for entry in lab:
        if (origin := entry.execution.origin) and entry.state == "done":
            key = (origin.repository, origin.pull, origin.commit)
            if key in ran:
                ran[key].extend(_ours(entry))
    return [
        Row(
            one,
            tuple(finding for finding in findings if finding.entry == one.name),
            tuple(ran[one.repository, one.pull, one.commit]),
        )
        for one in reversed(entered)
    ]


def _ours(entry: Entry) -> Iterator[Ours]:
    """The lab's figures of an execution; what competed has its own, and a void one has none."""
    name = entry.execution.id
    competed = entry.result.entered if entry.result else ()
    for arm in dict.fromkeys(run.arm for run in competed):
        runs = [run for run in competed if run.arm == arm]
        figures = [run.evaluated.bpb for run in runs if run.evaluated and not run.void]
        if len(figures) == len(runs):
            yield Ours(name, arm, runs[0].parameters, fmean(figures))
    for arm, planned in entry.plan.arms.items() if not competed else ():
        mean = entry.summary(arm).mean
        if mean is not None:
            yield Ours(name, arm, planned.parameters, mean)


def _twin(row: Row) -> dict[str, Any]:
    one, run = row.entered, row.entered.run
    return {
        "path": one.path,
        "run": one.index + 1,
        "pull": one.pull,
        "commit": one.commit,
        "merged_at": one.at.isoformat(),
        "tier": row.tier,
        "author": {key: entries.plain(value) for key, value in run.author.model_dump().items()},
        "eval/paloma/c4_en/bpb": run.bpb,
        "model_size": run.model_size,
        "total_tokens": run.total_tokens,
        "model_flops": run.model_flops,
        "training_hardware_flops": run.training_hardware_flops,
        "training_time": run.training_time,
        "findings": [
            {"rule": one.rule, "kind": one.kind, "words": one.words} for one in row.findings
        ],
        "ours": [vars(ours) | {"page": ours.page} for ours in row.ours],
    }
