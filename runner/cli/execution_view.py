"""Shows an execution in a terminal: who ran what, from which files and on what, the results, and
for each step what it was made from; and the differences between two executions."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from runner.analysis import answer, findings, score_table, study_results
from runner.analysis.estimates import figure
from runner.cli import steps_view
from runner.cli.tables import table
from runner.execution.aliases import Alias
from runner.history import excerpts, lost_work, step_runs
from runner.history.provenance import Account, Differences
from runner.lib import bounds
from runner.lib.format import between, duration, many
from runner.publish.step_summary import ended, ordered, status
from runner.schema import data_report, step_graph
from runner.schema.data_report import REPORT, DataReport
from runner.schema.record import (
    Cost,
    Evaluated,
    Execution,
    Lab,
    Plan,
    PlannedStep,
    Result,
    Run,
    Source,
    StepEnd,
    Validated,
    run_name,
)
from runner.store.store import Store

DIGITS = 16  # of a digest; `--json` has all
SHORT = 7  # of a commit in a list, as in Git
NAMED = 14  # minimum width of a step's column of labels
MAX_FILES = 6  # listed per output
MAX_POINTS = 3  # of a validation curve, the last ones


def view(store: Store, account: Account, meanings: Mapping[str, Alias]) -> Group:
    """The whole execution. `meanings`: what its aliases mean now."""
    plan = steps_view.in_turn(account.execution.plan)
    parts: list[RenderableType] = [_head(account)]
    if results := list(_results(store, account)):
        parts += [Text("\nResults", style="bold"), *results]
    shown: dict[str, str] = {}  # {step: the first point of its sweep, which is shown in full}
    for name, step in ordered(plan.steps).items():
        first = shown.setdefault(name.partition("/")[0], name)
        title = Text(f"\n{name}", style="bold").append(f"  {step.do}", style="dim")
        if step.alias:
            meant = meanings.get(step.alias)
            other = meant and meant.fingerprint != step.fingerprint
            title.append(f"  as {step.alias}", style="cyan")
            title.append(" (means something else now)" if other else "", style="yellow")
        like = (first, plan.steps[first]) if first != name else None
        end = account.ends.get(name)
        rows = (*_made_of(step, like), *_became(account, name, end), *_report(store, account, name))
        rows += tuple(_measured(account, name))
        place = store.url(end.folder) if end and end.output_sha256 else None
        parts += [title, _pairs(rows, place)]
    return Group(*parts)


# ── All of them ──────────────────────────────────────────────────────────────────────────────


class Line(NamedTuple):
    """An execution in a list."""

    execution: str
    begun: str  # ISO 8601, UTC
    state: str
    commit: str  # of the checkout that had its folder; "" if there was none
    changed: bool  # the folder differed from that commit
    experiment: str  # the folder


def line(execution: Execution) -> Line:
    """Its line without its state, which is in another record."""
    origin, source = execution.origin, execution.source
    return Line(
        execution=execution.id,
        begun=execution.at.astimezone(UTC).isoformat(timespec="microseconds"),
        state="unfinished",
        commit=origin.commit if origin else source.commit if source else "",
        changed=bool(source and source.changed),
        experiment=execution.plan.experiment,
    )


def listing(lines: Iterable[Line]) -> Table:
    """A table of lines, with the folder's name instead of its path."""
    rows = (
        (
            one.execution,
            one.begun[:16].replace("T", " "),
            one.state,
            one.commit[:SHORT] + "+" * one.changed,
            Path(one.experiment).name,
        )
        for one in lines
    )
    made = table(("execution", "started (UTC)", "state", "commit", "experiment"), rows, gap=2)
    for column in made.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    return made


# ── Head ─────────────────────────────────────────────────────────────────────────────────────


def _head(account: Account) -> Group:
    execution, result = account.execution, account.result
    origin = execution.origin
    who = f"approved by {origin.approved_by.login}" if origin else "unsigned, no approval"
    state = result.state if result else "unfinished"
    took = f", took {duration(result.seconds)}" if result and result.seconds is not None else ""
    line = f"{execution.id} {state}, started {execution.at:%Y-%m-%d %H:%M:%S} UTC{took}, {who}"
    why = [Text(result.why, style="red")] if result and result.why else []
    return Group(
        Text(execution.plan.title, style="bold"), Text(line), *why, _pairs(_facts(account))
    )


def _facts(account: Account) -> Iterator[tuple[str, str]]:
    execution, cost = account.execution, account.execution.plan.cost
    if origin := execution.origin:
        yield "pull request", f"{origin.repository_name}#{origin.pull} at commit {origin.commit}"
    yield "experiment", f"{execution.plan.experiment}{_source(execution.source)}"
    yield "lab", _lab(execution.lab)
    for words in _devices(account.receipts.values()):
        yield "ran on", words
    for words in dict.fromkeys(map(_software, account.receipts.values())):
        yield "with", words
    if result := account.result:
        yield "cost", "; ".join(_used(result, account.ends)) or "unknown"
        yield from (("lost", words.replace("`", "")) for words in lost_work.told(result.lost))
    yield "planned", _planned(cost)


def _planned(cost: Cost) -> str:
    """How long training should take."""
    if not cost.runs:
        return f"no training, on {cost.device}"
    if cost.uncounted == cost.runs:
        return f"not known (own models), on {cost.device}"
    rest = f", and {many(cost.uncounted, 'run')} of own models" if cost.uncounted else ""
    return f"{between(*cost.seconds)} of training on {cost.device}{rest}"


def _used(result: Result, ends: Mapping[str, StepEnd]) -> Iterator[str]:
    for used in result.used:
        price = "no price" if used.price is None else f"{used.price:.2f} US$"
        yield f"{used.device_seconds:,.1f} device-seconds of {used.kind} ({price})"
    if cached := sum(end.state == "cached" for end in ends.values()):
        yield f"nothing for {cached} cached steps"


def _checkout(of: Source | Lab) -> str:
    words = f"commit {of.commit}" if of.commit else "not in a git checkout"
    return f"{words} with uncommitted changes" if of.changed else words


def _source(source: Source | None) -> str:
    return f", {_checkout(source)}, tree {source.tree[:DIGITS]}" if source else ""


def _lab(lab: Lab | None) -> str:
    if lab is None:
        return "unknown"
    lock = f", requirements.lock {lab.lock_sha256[:DIGITS]}" if lab.lock_sha256 else ""
    return f"{_checkout(lab)}, code {lab.code_sha256[:DIGITS]}{lock}"


def _devices(receipts: Iterable[Mapping[str, str]]) -> list[str]:
    """The devices of all steps. A processor that another entry names with its device is listed
    once."""
    found = dict.fromkeys(map(_device, receipts))
    return [words for words in found if not any(other.endswith(f", {words}") for other in found)]


def _device(receipt: Mapping[str, str]) -> str:
    cores = len(receipt.get("affinity", "").split(","))
    words = [receipt.get("device", ""), receipt.get("cpu", "")]  # no device: JAX was not asked
    words.append(f"{cores} cores" if receipt.get("affinity") else "")
    return ", ".join(filter(None, words)) or "unknown"


def _software(receipt: Mapping[str, str]) -> str:
    names = ("python", "jax", "jaxlib", "numpy")
    return ", ".join(f"{name} {receipt[name]}" for name in names if name in receipt)


# ── Results ──────────────────────────────────────────────────────────────────────────────────


def scores_view(found: Mapping[str, Mapping[str, Evaluated]]) -> Iterator[RenderableType]:
    """The scores of the models, the best first."""
    for name, scores in found.items():
        targets = next((f"{score.targets:,}" for score in scores.values()), "no")
        words = f"{name}: bits per byte on {targets} validation tokens, lower is better"
        ordered = sorted(scores.items(), key=lambda item: item[1].bpb)
        yield Group(Text(words), _bare((model, f"{score.bpb:.4f}") for model, score in ordered))


def finding(plan: Plan, runs: Sequence[Run], result: Result | None) -> str:
    """What an execution found, in a sentence; empty before it has ended."""
    return _shown(findings.plain(answer.of(plan, runs, result))) if result else ""


def all_scores(plan: Plan, runs: Sequence[Run]) -> Iterator[RenderableType]:
    """The result of a study; every score by metric and arm, where there is more than `eval/bpb`;
    and the last points of validation curves."""
    for study in study_results.of(plan, runs):
        yield Text(study.title, style="bold")
        yield from (table(one.head, one.rows, lines=True) for one in study.tables)
        yield from (Text(words.replace("`", "")) for words in study.sentences)
    if rows := score_table.worth_showing(plan, runs):
        yield table(score_table.SHORT, [row.short for row in rows], lines=True)
    if scored := [run for run in runs if run.validation]:
        curves = (
            (run_name(run.arm, run.seed), ", ".join(map(_point, run.validation[-MAX_POINTS:])))
            for run in scored
        )
        yield table(("validation curve", "bits per byte ± standard error"), curves, gap=2)


def _point(point: Validated) -> str:
    step, bpb, error = point
    return f"{bpb:.4f}{'' if error is None else f' ± {error:.4f}'} at step {step:,}"


def _results(store: Store, account: Account) -> Iterator[RenderableType]:
    """The scores, and the outputs of the last steps."""
    plan, result = steps_view.in_turn(account.execution.plan), account.result
    if result and result.state in ("done", "failed"):
        yield Text(f"{finding(account.execution.plan, account.runs, result)}.", style="bold")
    yield from scores_view(account.scores)
    yield from all_scores(plan, account.runs)
    if not plan.steps:
        rows = (
            (
                f"{run.arm}, seed {run.seed}",
                f"{run.evaluated.bpb:.4f}" if run.evaluated else "no score",
                f"{run.state}, {run.why}" if run.why else run.state,
            )
            for run in account.runs
        )
        yield Group(Text("bits per byte, lower is better"), _bare(rows))
    yield from last_outputs(store, account)


def last_outputs(store: Store, account: Account) -> Iterator[RenderableType]:
    """What the last steps wrote, as far as it is short text. Print it without cropping."""
    for name, words in account.unread.items():
        yield Text(f"{name}: {words}", style="red")
    for one in excerpts.of_last_steps(store, account):
        yield _whole(
            Text(f"{one.step}: {store.url(f'{account.ends[one.step].folder}/{one.file}')}")
        )
        if one.why:
            yield Padding(Text(one.why, style="red"), (0, 0, 0, 2))
        elif one.text is not None:
            yield Padding(Text(_shown(one.text)), (0, 0, 0, 2))


# ── Two of them ──────────────────────────────────────────────────────────────────────────────


def difference_view(found: Differences, before: str, after: str) -> Group:
    """The differences between two executions or folders, causes first."""
    parts: list[RenderableType] = []
    if found.figures:
        rows = ((name, *_moved(*both)) for name, both in found.figures.items())
        parts += [table(("score of", before, after, ""), rows, gap=1), Text()]
    if found.steps:
        parts.append(table(("step", "what differs"), found.steps.items()))
    else:
        parts.append(Text("The same steps, with the same fingerprints."))
    if found.besides:
        parts += [
            Text("\nAlso different, but not part of a fingerprint:"),
            *map(Text, found.besides),
        ]
    return Group(*parts)


def _moved(before: float | None, after: float | None) -> tuple[str, str, str]:
    """Two figures, and their difference."""
    one, other = ("–" if bpb is None else f"{bpb:.4f}" for bpb in (before, after))
    return one, other, "" if before is None or after is None else f"{after - before:+.4f}"


# ── Steps ────────────────────────────────────────────────────────────────────────────────────


def _made_of(step: PlannedStep, like: tuple[str, PlannedStep] | None) -> Iterator[tuple[str, str]]:
    """What its fingerprint covers; for a further point of a sweep, the differences from the
    first."""
    for key, these in step.inputs.items():
        yield f"input {key}", ", ".join(these)
    leaves = step_graph.leaves(step.config)
    if like:
        first = step_graph.leaves(like[1].config)
        leaves = {key: value for key, value in leaves.items() if first.get(key, like) != value}
        yield "config", f"that of {like[0]}" + (", except" if leaves else "")
    for key, value in leaves.items():
        if like or value not in (None, {}):
            yield key, json.dumps(value, ensure_ascii=False)
    code = ", ".join(step_graph.code_in_words(name) for name in step.code)
    yield "code", f"{step_graph.code_sha256(step.code)[:DIGITS]} ({code})"
    yield "fingerprint", f"{step.fingerprint[:DIGITS]}, of inputs, config and code"


def _became(account: Account, name: str, end: StepEnd | None) -> Iterator[tuple[str, str]]:
    if end is None:
        yield status("not made"), ""
        return
    made_at = f", {end.made_at:%Y-%m-%d %H:%M:%S} UTC" if end.made_at else ""
    yield status(end.state), ended(end) + (made_at if end.state == "made" else "")
    if end.output_sha256:
        yield "output", f"{end.output_sha256[:DIGITS]}, the digest of all its files"
        yield "files", _files(account, name)


def _report(store: Store, account: Account, name: str) -> Iterator[tuple[str, str]]:
    """What a step that changes a text kept, and its alarms."""
    if REPORT not in (account.files.get(name) or ()):
        return
    step = account.execution.plan.steps[name]
    try:
        data = step_runs.file_of(store, step, REPORT, data_report.MAX_BYTES)
        report = bounds.parse(DataReport, data or b"", data_report.MAX_BYTES)
    except step_runs.UNBELIEVED:  # own code may call any file so
        return
    yield "kept", _shown(data_report.kept(report.total))
    for reason, documents in report.left_out.items():
        yield "left out", _shown(f"{many(documents, 'document')}: {reason}")
    for alarm in report.alarms:
        yield "alarm", _shown(alarm)


def _measured(account: Account, name: str) -> Iterator[tuple[str, str]]:
    """What a classifier measured of itself. Scores of models are in tables."""
    for metric, score in account.measured.get(name, {}).get(name, {}).items():
        low, high = score_table.around(score.value, score.standard_error or 0.0)
        words = f"{figure(score.value, 4)} (95 % {figure(low, 4)} to {figure(high, 4)}"
        yield metric, f"{words}, {many(score.items or 0, 'document')})"


def _shown(text: str) -> str:
    return "".join(c for c in text if c.isprintable() or c == "\n")


def _files(account: Account, name: str) -> str:
    files = account.files.get(name)
    if files is None:
        return "changed since" if name in account.unread else "deleted"
    more = f" and {len(files) - MAX_FILES} more" if len(files) > MAX_FILES else ""
    return ", ".join(list(files)[:MAX_FILES]) + more or "none"


def _bare(rows: Iterable[tuple[str, ...]]) -> Table:
    return table((), rows, header=False, gap=2, indent=2)


def _pairs(rows: Iterable[tuple[str, str]], place: str | None = None) -> Group:
    """A table of pairs; below it, on a line of any length, the path of the output."""
    known = list(rows)
    made = table(("", ""), known, header=False, gap=2, indent=2)
    width = max(NAMED, *(len(what) for what, _ in known))
    named = made.columns[0]
    named.style, named.no_wrap, named.min_width = "dim", True, NAMED
    lines = [_whole(Text.assemble(("in".ljust(width + 4), "dim"), place))] if place else []
    return Group(made, *lines)


def _whole(line: Text) -> Text:
    """A line with a path, which must not be broken at the end of the terminal, so that it can be
    copied. Print it without cropping."""
    line.no_wrap, line.overflow = True, "ignore"
    return line
