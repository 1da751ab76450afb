"""`regatta simulate`: experiments and a described cluster → waiting, cost and utilisation.

Runs nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from runner.cli import options
from runner.cli.ending import print_json, stop
from runner.cli.options import AsJson
from runner.cli.tables import Cell, add, table
from runner.lib.format import duration, many
from runner.lib.problems import BadExperiment, Problem
from runner.lib.untrusted_files import printable
from runner.planning import planner
from runner.scheduler import cluster, simulate
from runner.scheduler.simulate import Fate, Submission, Summary
from runner.schema import lab_config
from runner.schema.devices import listed
from runner.spec import declaration

MAX_ROWS = 10  # people in a table
MAX_TROUBLES = 4
PICTURES = (".svg", ".png")
UNCOUNTED = "its own models, whose FLOPs are unknown before they run"


def command(
    cluster_file: Annotated[
        Path, typer.Argument(metavar="CLUSTER.yaml", help="Such as examples/cluster.yaml.")
    ],
    experiments: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="EXPERIMENT",
            help="Experiments; all arrive at the start.",
            callback=options.experiments,
        ),
    ] = None,
    person: Annotated[str, typer.Option("--as", help="Whose experiments they are.")] = "you",
    chart: Annotated[
        Path | None, typer.Option(help="Draw utilisation and waiting: an .svg or .png file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the lab's queue on a cluster that you describe: waiting, cost, utilisation."""
    if chart is not None and chart.suffix not in PICTURES:
        stop(f"--chart: {chart} must be a picture; end its name in {' or '.join(PICTURES)}.")
    described = cluster.load(cluster_file, lab_config.find(Path()).devices)
    arriving, left_out = _planned(experiments or [], described, person)
    arriving += cluster.synthetic(described.synthetic, described.cluster, described.faults.seed)
    if not arriving:
        stop(f"{cluster_file} has no `synthetic:` load, so name an experiment to be played.")
    with Console(stderr=True).status("simulating"):
        fates = simulate.simulate(arriving, described.cluster, described.policy, described.faults)
    found = simulate.summarise(fates, described.cluster, described.prices)
    if chart is not None:
        _draw(chart, fates, described, title(found))
    if as_json:
        each = {name: _fate(fate) for name, fate in fates.items()}
        print_json(asdict(found) | {"each": each, "left_out": left_out})
        return
    named = [submission.name for submission in arriving[: len(experiments or [])]]
    Console().print(view(found, named, left_out, described))


def _planned(
    experiments: list[Path], described: cluster.Described, person: str
) -> tuple[list[Submission], dict[str, int]]:
    """The experiments as submissions, each under a name of its own, and {experiment: runs that are
    left out because their duration is unknown}. Raises BadExperiment."""
    found: list[Submission] = []
    left_out: dict[str, int] = {}
    kinds = {pool.kind for pool in described.cluster.pools}
    for path in experiments:
        plan = planner.plan_folder(path)
        folder = path if path.is_dir() else path.parent
        name = unique = folder.resolve().name
        taken, n = {submission.name for submission in found}, 1
        while unique in taken:
            unique, n = f"{name}-{n + 1}", n + 1
        submission = cluster.planned(plan, unique, person, 0, described.faults.seed)
        if plan.cost.uncounted:
            left_out[unique] = plan.cost.uncounted
        if not submission.jobs and left_out.get(unique):
            stop(f"{path}: it trains only {UNCOUNTED}; there is nothing to simulate.")
        if not submission.jobs:
            stop(f"{path}: none of its steps trains; the time of other steps is unknown.")
        for kind in sorted({job.request.kind for job in submission.jobs} - kinds):
            known = listed(sorted(kinds))
            words = f"{described.file} describes no devices of kind `{kind}`, only {known}"
            raise BadExperiment([_asking(path, kind, words)])
        found.append(submission)
    return found, left_out


def _asking(path: Path, kind: str, words: str) -> Problem:
    """A problem with devices of this kind, at the place that requests them."""
    graph = declaration.load(path)
    for name, node in graph.nodes.items():
        at = graph.place(name, ("resources", "kind"))
        if (node.do, node.resources.kind) == ("train", kind) and at in graph.document.lines:
            return graph.document.problem(at, words)
    return graph.document.problem(("resources", "kind"), words)


def _draw(file: Path, fates: dict[str, Fate], described: cluster.Described, words: str) -> None:
    from runner.cli import simulate_chart  # Altair takes a second to import
    from runner.publish import charts

    spec = simulate_chart.chart(fates, described.cluster, words)
    drawn = charts.svg(spec).encode() if file.suffix == ".svg" else charts.png(spec)
    try:
        file.write_bytes(drawn)
    except OSError as error:
        stop(f"--chart: {file} cannot be written: {error.strerror}.")


def _fate(fate: Fate) -> dict[str, Any]:
    """One run as JSON. Seconds, on the clock of the arrivals."""
    return {
        "experiment": fate.experiment,
        "person": fate.request.person,
        "priority": fate.request.priority,
        "pools": list(dict.fromkeys(spell.pool for spell in fate.spells)),
        "devices": fate.devices,
        "submitted": fate.request.submitted,
        "started": fate.started,
        "ended": fate.ended,
        "state": fate.state,
        "why": fate.why,
        "attempts": len(fate.spells),
        "device_hours": fate.device_seconds() / 3600,
        "lost_device_hours": fate.lost_device_seconds() / 3600,
    }


# ── Tables ───────────────────────────────────────────────────────────────────────────────────


def title(found: Summary) -> str:
    """`400 runs on 848 devices`."""
    devices = sum(pool.devices for pool in found.pools)
    return f"{many(found.all.runs, 'run')} on {many(devices, 'device')}"


def view(
    found: Summary,
    experiments: list[str],
    left_out: Mapping[str, int],
    described: cluster.Described,
) -> RenderableType:
    """The result of a simulation as text: pools, waiting, and what did not finish."""
    head = Text(title(found), style="bold").append(f": {_outcome(found)}", style="none")
    named = [group for group in found.experiments if group.name in experiments]
    lines = [Text(line, style="yellow") for line in (*_troubles(found), *_left_out(left_out))]
    parts: list[RenderableType] = [head, _pools(found), _waiting(found)]
    notes = [*_notes(found, described)]
    if named:
        parts.append(_experiments(named))
        pace = "50 % to 20 % of their devices' peak FLOP/s"
        notes = [f"experiments: training alone, at {pace}", *notes]
    return Group(*parts, *lines, *(Text(note, style="dim") for note in notes))


def _outcome(found: Summary) -> str:
    """`done after 3 h 10 min, for 12 US$; 2 runs did not finish`."""
    if found.all.done_after is None:
        return "none of them started"
    cost = "" if found.all.cost is None else f", for {_amount(found.all.cost)} US$"
    late = found.all.runs - found.all.finished
    rest = f"; {many(late, 'run')} did not finish" if late else ""
    return f"done after {duration(found.makespan)}{cost}{rest}"


def _left_out(left_out: Mapping[str, int]) -> Iterator[str]:
    for name, count in left_out.items():
        yield f"{printable(name)}: not simulated: {many(count, 'run')} that would train {UNCOUNTED}"


def _notes(found: Summary, described: cluster.Described) -> Iterator[str]:
    """What the columns mean."""
    yield "in use: share of the pool's device-hours until everything was done"
    if found.all.preemptions:
        yield "lost: share of the time in use that preemption wasted, back to the last checkpoint"
    if any(pool.cost is None for pool in found.pools):
        yield f"US$ –: price unknown; give the pool a `price` in {described.file}"
    yield "95 %: the wait that 95 % of the started runs did not exceed"
    yield f"seed {described.faults.seed}; waiting: time until a run first has its devices"


def _troubles(found: Summary) -> Iterator[str]:
    by_count = sorted(found.troubles.items(), key=lambda each: -each[1])
    for why, count in by_count[:MAX_TROUBLES]:
        yield f"{many(count, 'run')} did not finish: {why}"
    if more := sum(count for _, count in by_count[MAX_TROUBLES:]):
        yield f"{more:,} more did not finish; --json says why"


def _table(*columns: str, rows: Iterable[Sequence[Cell]]) -> Table:
    return table(columns, rows, lines=True, right=columns[1:])


def _time(seconds: float | None) -> str:
    """`under 1 s`, `38 s`, `12.5 min`, `3.1 h`, `14.0 d`: narrow, for a column."""
    if seconds is None:
        return "–"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return "under 1 s" if 0 < seconds < 1 else f"{seconds:.0f} s"


def _amount(value: float | None) -> str:
    """`76,790`, `12.34`, `under 0.01`: device-hours or US$."""
    if value is None:
        return "–"
    if 0 < value < 0.01:
        return "under 0.01"
    return f"{value:,.0f}" if value == 0 or value >= 100 else f"{value:.2f}"


def _pools(found: Summary) -> Table:
    rows = (
        (
            pool.name,
            pool.kind,
            f"{pool.devices:,}",
            f"{100 * pool.utilisation:.1f} %",
            f"{100 * pool.lost:.1f} %",
            _amount(pool.device_hours),
            _amount(pool.cost),
        )
        for pool in found.pools
    )
    columns = ("pool", "kind", "devices", "in use", "lost", "device-hours", "US$")
    return _table(*columns, rows=rows)


def _waiting(found: Summary) -> Table:
    columns = ("waiting", "runs", "mean", "median", "95 %", "longest", "preemptions")
    made = _table(*columns, rows=())
    people, more = found.people[:MAX_ROWS], len(found.people) - MAX_ROWS
    for groups in (found.priorities, people, (found.all,)):
        for group in groups:
            waits = (group.mean_wait, group.median_wait, group.p95_wait, group.longest_wait)
            add(made, group.name, f"{group.runs:,}", *map(_time, waits), f"{group.preemptions:,}")
        if groups is people and more > 0:
            made.add_row(f"and {more} more", style="dim")
        made.add_section()
    return made


def _experiments(groups: list[simulate.Group]) -> Table:
    rows = (
        (
            group.name,
            f"{group.runs:,}",
            f"{group.finished:,}",
            _time(group.longest_wait),
            _time(group.done_after),
            _amount(group.cost),
        )
        for group in groups
    )
    return _table("experiment", "runs", "finished", "longest wait", "done after", "US$", rows=rows)
