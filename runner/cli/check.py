"""`check`: what the lab will say to an experiment, before there is a pull request.

It says whether it can be planned, and of a speedrun's entry whether it can have a rank, what it
changes of the record, and which score would beat it."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from runner.analysis import (
    arm_settings,
    speedrun_position,
    speedrun_ranking,
    speedrun_rows,
)
from runner.analysis.speedrun_ranking import Row
from runner.cli import options
from runner.cli.ending import DONE, FAILED, print_json, stopping
from runner.cli.options import AsJson, TheJobs, ThePath, TheStore
from runner.execution import git_source
from runner.history import own_modules
from runner.history.execution_index import Past
from runner.lib.format import between, first_of, flops, many, size
from runner.planning import planner
from runner.schema import record
from runner.schema.tracks import Track
from runner.store.store import NoStore, Store, StoreError

NEVER = datetime.min.replace(tzinfo=UTC)
AFTER = ("prefixes", "probabilities", "memory", "isolation")  # own code is needed to fail them


@dataclass(frozen=True)
class Line:
    """One answer. `good`: None for what is only said."""

    what: str
    words: str
    good: bool | None = None


def command(
    path: ThePath, store: TheStore = "store", jobs: TheJobs = None, as_json: AsJson = False
) -> None:
    """Say what the lab will say to an experiment, before a pull request. Runs nothing.

    An entry of a speedrun is compared with the records in the store and in `experiments/*/records`.
    Exits with 1 if it would have no rank.
    """
    folder = path if path.is_dir() else path.parent
    plan = planner.plan_folder(path)
    with ExitStack() as stack, stopping(OSError, words="{}"):
        git_source.tree_of(folder)  # unreadable files
        opened = _records(stack, store, jobs)
        code = planner.own_code(plan, folder)
        lines = [*_of_all(plan, code), *_of_entry(plan, opened, code)]
    failed = any(line.good is False for line in lines)
    if as_json:
        said = [asdict(line) for line in lines]
        print_json({"plan": plan.fingerprint, "good": not failed, "said": said})
    else:
        _show(plan, path, lines, failed)
    sys.exit(FAILED if failed else DONE)


def _records(stack: ExitStack, place: str, jobs: str | None) -> Store:
    """The store, if there is one, with the records that the checkout keeps."""
    kept = sorted(one.parent for one in options.EXPERIMENTS.glob("*/records/store.json"))
    with stopping(StoreError):
        try:
            return Store(place, jobs=jobs, also=kept, make=False)
        except NoStore:
            return Store(stack.enter_context(TemporaryDirectory()), also=kept)


def _of_all(plan: record.Plan, code: dict[str, bytes]) -> Iterator[Line]:
    """What holds of every experiment."""
    cost = plan.cost
    words = many(cost.runs, "run")
    if cost.model_flops:
        words += f", {flops(cost.model_flops)} model FLOPs, {between(*cost.seconds)} of training"
    yield Line("plan", f"{words} on {cost.device}", True)
    if plan.preregistration is None:
        yield Line("predictions", "none: `preregistration: N` names the issue that has them")
    if code:
        yield Line(
            "own code", f"{', '.join(sorted(code))}: it runs in isolation, after an approval"
        )


def _of_entry(plan: record.Plan, store: Store, code: dict[str, bytes]) -> Iterator[Line]:
    """What the track says, nothing for an experiment that enters none."""
    track = plan.enters
    if plan.speedrun is None or track is None:
        return
    yield Line("track", f"{track.name}: {track.sentence}", True)
    refused = speedrun_rows.refused(plan)
    good = {
        "data": f"trained and scored on {track.data.source} alone",
        "seeds": f"{len(plan.seeds)}; the track takes {track.seeds or 'any number'}",
        "device": f"{plan.resources.count} × {plan.resources.kind}",
    }
    for check, words in good.items():
        mine = [one.words for one in refused if one.check == check]
        yield Line(check, "; ".join(mine) or words, not mine)
    if track.kind == "budget":
        mine = [one.words for one in refused if not one.check]
        yield Line("budget", "; ".join(mine) or _budget(plan, track), not mine)
    if plan.own_code():
        later = ", ".join(AFTER)
        yield Line("later", f"the lab checks own code when it has run: {later}")
    yield Line("ships", _ships(plan, code))
    trials = plan.speedrun.trials
    words = "not said: `trials: N` below `speedrun` says how many you tried"
    yield Line("trials", words if trials is None else f"{trials:,} before this entry")
    yield from _of_record(plan, track, store, code)


def _budget(plan: record.Plan, track: Track) -> str:
    if track.seconds:
        return f"at most {track.seconds:g} s of a run, which the lab measures"
    counted = [arm.model_flops for arm in plan.arms.values() if arm.model_flops and not arm.own]
    if not counted or not track.budget:
        return "own code is counted in hardware FLOPs, which the lab measures"
    return f"{max(counted) / track.budget:.0%} of {flops(track.budget)} FLOPs"


def _ships(plan: record.Plan, code: dict[str, bytes]) -> str:
    weights = [4 * arm.parameters for arm in plan.arms.values() if arm.parameters]
    tables = sum(map(own_modules.tables, code.values()))
    words = f"{size(max(weights))} of weights" if weights else "weights that the lab counts later"
    words += f", {size(sum(map(len, code.values())))} of code"
    return words + (f", of which {size(tables)} are tables" if tables else "")


def _of_record(
    plan: record.Plan, track: Track, store: Store, code: dict[str, bytes]
) -> Iterator[Line]:
    ranked = speedrun_ranking.rank(track, Past(store).competing())
    standing = speedrun_position.standing(ranked)
    if standing is None:
        yield Line("record", "none yet: the first ranked entry is one")
        return
    row, beaten = standing.row, speedrun_ranking.to_beat(track, ranked, standing)
    value = speedrun_position.value(track, standing)
    words = f"{row.title} has {value}"
    if beaten is not None:
        mean, needs = beaten
        amount = flops(mean) if track.kind == "target" else f"{mean:.4f}"
        words += f"; with its spread, a mean below {amount} is a record (p below {needs:.2g})"
    yield Line("record", words)

    def lines(before: str, _: str) -> int:
        return own_modules.changed(own_modules.of(store, before) if before else {}, code)

    for arm, settings in arm_settings.settings(plan).items():
        mine = _row(plan, arm, tuple(arm_settings.flat(settings).items()), bool(code))
        diff = speedrun_position.diff(row, mine, lines)
        named = first_of([f"{x.name} {x.before or '–'} → {x.now or '–'}" for x in diff.settings], 8)
        yield Line("changes", f"`{arm}` changes {diff}{f': {named}' if named else ''}")


def _row(plan: record.Plan, arm: str, settings: tuple[tuple[str, str], ...], own: bool) -> Row:
    assert plan.speedrun
    return Row(
        id=f"/{arm}",
        title=f"{plan.title}: {arm}",
        author=plan.speedrun.author,
        track=plan.speedrun.track,
        tier="self-reported",
        at=NEVER,
        figures=(),
        settings=settings,
        code=plan.code_folder if own else "",
    )


def _show(plan: record.Plan, path: Path, lines: list[Line], failed: bool) -> None:
    out = Console(highlight=False)
    out.print(Text(f"{path}: {plan.title}", style="bold"))
    marks: dict[bool | None, Any] = {True: ("✓", "green"), False: ("✗", "red"), None: ("·", "dim")}
    width = max(len(line.what) for line in lines)
    for line in lines:
        mark, style = marks[line.good]
        shown = Text.assemble((f" {mark} ", style), (line.what.ljust(width + 2), "dim"), line.words)
        out.print(shown, soft_wrap=True)
    if failed:
        words = "it would run, and have no rank"
    else:
        words = f"next: regatta run {path}, then a pull request that adds it"
    typer.secho(words, dim=not failed, fg="red" if failed else None, err=True)
