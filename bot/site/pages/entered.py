"""The page of results that their authors report, with the problems that the lab found in them.

They have no rank: only their authors measured them, on another text than the lab's. A row is
reproduced once the lab ran its experiment at the same commit, and an arm has the same number of
parameters, and tokens and bits per byte within 1 %. Time and FLOPs stay as reported.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bot.site.base.files import File, made_from
from bot.site.base.rows import Rows
from bot.site.facts.entries import Entry
from bot.site.facts.lab import Lab
from bot.site.facts.memory import listed
from bot.site.pages.templating import Look
from runner.analysis import speedrun_checks, speedrun_file, verdicts
from runner.analysis.speedrun_file import Finding
from runner.analysis.speedrun_ranking import Tier
from runner.analysis.verdicts import ArmSummary
from runner.history import results_entries
from runner.history.results_entries import Entered, plain
from runner.lib.canonical_json import to_json
from runner.schema.record import EnteredRun
from runner.store.store import Store

TOLD = {  # fields of an entered run to show, besides its author
    *("bpb", "model_size", "total_tokens", "model_flops", "training_hardware_flops"),
    "training_time",
}


@dataclass(frozen=True)
class Ours:
    """The result of an arm in the lab's own execution."""

    execution: str
    arm: str
    parameters: int | None
    tokens: int  # per run
    summary: ArmSummary  # bits per byte

    @property
    def page(self) -> str:
        """Its page."""
        return f"executions/{self.execution}/index.html"


@dataclass(frozen=True)
class Row:
    """An entered run, its findings, and the lab's own results for it."""

    entered: Entered
    findings: tuple[Finding, ...]
    ours: tuple[Ours, ...]  # of the experiment that came with it, at the same commit

    @property
    def same(self) -> Ours | None:
        """The arm that reproduces this run, judged by its figures."""
        run = self.entered.run
        return next(
            (
                one
                for one in self.ours
                if one.parameters == run.model_size
                and _same(one.tokens, run.total_tokens)
                and _same(one.summary.middle, run.bpb)
            ),
            None,
        )

    @property
    def tier(self) -> Tier:
        """How it was verified."""
        return "reproduced" if self.same else "self-reported"


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= speedrun_file.CLOSE * abs(other)


def files(store: Store, facts: Lab, look: Look) -> Iterator[File]:
    """`entries.html` and its JSON."""
    found, names = rows(results_entries.merged(store), facts.entries), {"plain": plain}
    seen = (version for _, version in listed(store, "entries"))
    made = made_from(look.told, *map(repr, found), *seen)
    table = Rows("entries", "entries", found, keys, "entry_row.html", names)
    rules, checked = speedrun_file.RULES, results_entries.checked(store)
    yield File("api/entries.json", lambda: to_json([_twin(row) for row in found]), made)
    yield from table.files(look.pages, made)
    yield look.page(
        "entries.html", "entries.html", made, rows=table, rules=rules, checked=checked, **names
    )


def keys(row: Row) -> dict[str, Any]:
    """A row's keys for sorting and filtering."""
    one, run = row.entered, row.entered.run
    kinds = {finding.kind for finding in row.findings}
    ours = row.same or next(iter(row.ours), None)
    author, words = run.author, (one.path, f"#{one.pull}", run.description)
    counted = {
        "bpb": run.bpb,
        "ours": ours.summary.mean if ours else None,
        "parameters": run.model_size,
        "tokens": run.total_tokens,
        "flops": run.model_flops,
        "hardware_flops": run.training_hardware_flops,
        "seconds": run.training_time,
    }
    return {
        "newest": -one.at.timestamp(),
        **{name: value or None for name, value in counted.items()},
        "tier": row.tier,
        "author": plain(author.name),
        "found": "impossible" if "impossible" in kinds else "unusual" if kinds else "none",
        "text": plain(" ".join((*words, author.name, author.affiliation)).lower()),
    }


def rows(entered: Sequence[Entered], lab: Iterable[Entry]) -> list[Row]:
    """The rows, newest first. All are audited again, now together."""
    findings = speedrun_file.audit({one.name: one.run for one in entered})
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
    """The lab's figures of an execution: for competing runs those of the speedrun, without void
    ones."""
    name = entry.execution.id
    competed: dict[str, list[EnteredRun]] = defaultdict(list)
    for run in entry.result.entered if entry.result else ():
        competed[run.arm].append(run)
    for arm, runs in competed.items():
        good = [run.evaluated for run in runs if not speedrun_checks.of_run(run)]
        figures = [evaluated.bpb for evaluated in good if evaluated]
        if len(figures) == len(runs):
            yield Ours(
                name,
                arm,
                runs[0].parameters,
                runs[0].tokens,
                verdicts.summary(figures, len(figures)),
            )
    for arm, own in entry.summaries.items() if not competed else ():
        if own.mean is not None:
            planned = entry.plan.arms[arm]
            yield Ours(name, arm, planned.parameters, planned.tokens, own)


def _twin(row: Row) -> dict[str, Any]:
    one, run = row.entered, row.entered.run
    return {
        "path": one.path,
        "run": one.index + 1,
        "pull": one.pull,
        "commit": one.commit,
        "merged_at": one.at.isoformat(),
        "tier": row.tier,
        "author": {key: plain(value) for key, value in run.author.model_dump().items()},
        **run.model_dump(by_alias=True, include=TOLD),
        "findings": [
            {"rule": one.rule, "kind": one.kind, "words": one.words} for one in row.findings
        ],
        "ours": [
            vars(ours)
            | {"bpb": ours.summary.mean, "summary": vars(ours.summary), "page": ours.page}
            for ours in row.ours
        ],
    }
