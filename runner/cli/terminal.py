"""Shows plans, running executions and results in the terminal."""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from engine.config import memory, stage_choice
from engine.config.flops import parameters
from engine.config.schema import ComputeConfig, ModelConfig, TrainConfig
from runner.analysis import arm_settings, findings, promotion, speedrun_rows
from runner.analysis.verdicts import arm_summary, figures_of
from runner.cli import execution_view, steps_view
from runner.cli.tables import add, table
from runner.execution.lifecycle import Facts
from runner.execution.progress import Progress as Advance
from runner.execution.progress import RunProgress
from runner.history import lost_work
from runner.history.overhead import Overhead
from runner.lib.format import UNKNOWN, between, count, duration, flops, flow, many, percent
from runner.planning import cost as planning_cost
from runner.planning import limits, mesh_words, study_words
from runner.planning.compile_check import Check
from runner.schema import record
from runner.schema.devices import Slice
from runner.spec import corpus_steps, measured, snapshots

MAX_LOSSES = 12  # runs whose loss is shown at the same time
MAX_DIFFERING = 3  # settings that a terminal of 80 characters has room for
MAX_ALIKE = 12  # arms with equal figures that are listed one by one
MAX_FOOTPRINTS = 4  # columns that fit in a terminal of 80 characters
FIGURES = ("parameters", "tokens/run", "FLOPs/run")
FITS = {True: "green", False: "red"}
LINE_EVERY = 10.0  # seconds between two lines of progress without a terminal
OUTCOMES = {"confirmed": "green", "refuted": "red", "inconclusive": "yellow"}
NO_OVERHEAD = Overhead()
QUEUED = "waiting for its devices"


# ── Plans ────────────────────────────────────────────────────────────────────────────────────


def plan_view(
    plan: record.Plan,
    held: RenderableType,
    stands: Mapping[str, record.Standing],
    besides: Overhead = NO_OVERHEAD,
) -> Group:
    """A plan: its arms, the memory per device (`memory_view`), its fingerprint, the status of its
    steps, and the cost of those that are not cached."""
    plan = steps_view.in_turn(plan)
    flat = {name: arm_settings.flat(arm) for name, arm in arm_settings.settings(plan).items()}
    differing = arm_settings.differing(flat.values())[:MAX_DIFFERING]
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, arm in plan.arms.items():
        alike.setdefault(_figures(arm), []).append(name)
    rows = [
        (name, *(flat[name].get(key, UNKNOWN) for key in differing), *_figures(arm))
        if len(names := alike[_figures(arm)]) <= MAX_ALIKE
        else (_called(names), *(UNKNOWN for _ in differing), *_figures(arm))
        for name, arm in plan.arms.items()
        if len(names := alike[_figures(arm)]) <= MAX_ALIKE or name == names[0]
    ]
    last = [key.rpartition(".")[2] for key in differing]
    short = (
        name if last.count(name) == 1 else key for name, key in zip(last, differing, strict=True)
    )
    columns = ("arm", *short, *FIGURES)
    arms = [table(columns, rows, lines=True, right=FIGURES)] if plan.arms else []
    phases = [
        f"{name}, from step {phase.at + 1}: {flow(phase.model_dump(exclude={'at'}))}"
        for name, arm in plan.arms.items()
        for phase in arm.train.phases
    ]
    title = Text(plan.title, style="bold")
    measures = measured.told(plan.steps)
    told = [f"measures of each model: {measures.replace('`', '')}"] if measures else []
    if kept := snapshots.told(plan.steps):
        told.append(f"scored on the way: {kept}")
    told += [f"corpus {line}" for line in corpus_steps.told(plan.steps)]
    told += [words.replace("`", "") for words in study_words.told(plan)]
    on_devices = [words.replace("`", "") for words in mesh_words.told(plan, in_table=True)]
    lines = map(Text, [*told, *_cost(plan, stands, besides), *on_devices])
    sealed = Text(f"fingerprint {plan.fingerprint}")
    return Group(title, *arms, *map(Text, phases), *lines, held, sealed)


def memory_view(
    arms: Mapping[str, record.PlannedArm], on: Slice, compute: ComputeConfig
) -> RenderableType:
    """The estimated memory per device of the slice, of a pipeline in the stage that needs most, and
    whether it fits. Arms with equal needs share a column; if there are too many, those with the
    largest needs have one."""
    kind = on.device
    alike: dict[memory.Footprint, list[str]] = {}
    for name, arm in arms.items():
        held = stage_choice.held(_labs(arm), arm.train, compute, kind.platform)
        alike.setdefault(held, []).append(name)
    shown = list(alike)
    if len(alike) > MAX_FOOTPRINTS:
        shown = sorted(alike, key=lambda held: -held.total)[:MAX_FOOTPRINTS]
    names = [_called(alike[held]) for held in shown]
    rows = (
        (part, *(memory.size(getattr(held, part)) for held in shown))
        for part in memory.Footprint._fields
    )
    made = table(("", *names), rows, lines=True, right=names)
    made.add_section()
    add(made, "all", *(memory.size(held.total) for held in shown))
    lines = (
        [Text(f"{len(alike) - len(shown)} more need less memory")]
        if len(alike) > len(shown)
        else []
    )
    wrong = []
    if kind.memory is None:  # a CPU has what its machine has
        here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        for held in shown:
            if held.total > here:
                said = _too_large(alike[held], held.total, here, "this machine")
                wrong.append(Text(f"{said}; make the model or the batch smaller", FITS[False]))
    else:
        room = memory.USABLE * kind.memory
        add(
            made,
            f"of {memory.size(kind.memory)}",
            *(Text(percent(x.total / kind.memory), FITS[x.total <= room]) for x in shown),
        )
        for held in shown:
            if held.total > room:
                arm = arms[alike[held][0]]
                fitting = stage_choice.choices(_labs(arm), arm.train, compute, kind.platform, room)
                remedy = fitting or "no batch fits; make fsdp larger"
                said = _too_large(alike[held], held.total, kind.memory, f"one {kind.description}")
                wrong.append(Text(said, FITS[False]).append(f"; {remedy}", style="none"))
    return Group(_memory_of(on, compute), *wrong, made, *lines)


def _too_large(arms: Sequence[str], needed: int, room: int, place: str) -> str:
    """That arms do not fit into a place, in words."""
    verb = "does" if len(arms) == 1 else "do"
    times = needed / room
    by = f" ({times:,.0f} times too much)" if times >= 2 else ""
    needs = f"one device needs {memory.size(needed)}"
    return f"{_called(arms)} {verb} not fit: {needs}, and {place} has {memory.size(room)}{by}"


def _figures(arm: record.PlannedArm) -> tuple[str, ...]:
    """An arm's cells in the table of arms."""
    counts = arm.parameters, arm.tokens
    known = ["own code" if one is None else count(one) for one in counts]
    if arm.labs and arm.labs.moe:
        known[0] += f", {count(parameters(arm.labs, active=True))} active"
    return *known, "own code" if arm.model_flops is None else flops(arm.model_flops)


def _labs(arm: record.PlannedArm) -> ModelConfig:
    """Its model, whose memory is known."""
    if arm.labs is None:
        raise AssertionError("the memory of an own model is unknown")
    return arm.labs


def _called(names: Sequence[str]) -> str:
    """The names of equal arms: `fast, slow`; if there are many, `a and 99 more`."""
    if len(names) <= MAX_ALIKE:
        return ", ".join(names)
    return f"{names[0]} and {len(names) - 1:,} more"


def _memory_of(on: Slice, compute: ComputeConfig) -> Text:
    sizes = ", ".join(f"{axis} {size}" for axis, size in compute.mesh if size > 1)
    title = f"memory of one device of {on}" + (f" ({sizes})" if sizes else "")
    return Text(title, style="bold")


def check_view(
    check: Check, model: ModelConfig, train: TrainConfig, on: Slice, compute: ComputeConfig
) -> RenderableType:
    """The result of compiling ahead of time, beside the estimate."""
    kind = on.device
    held = memory.footprint(model, train, compute, "cpu" if check.simulated else kind.platform)
    state, total = held.parameters + held.moments, check.arguments + check.temporaries
    found = (
        ("parameters and moments", check.arguments, state),
        ("all else in a step", check.temporaries, held.total - state),
        ("all", total, held.total),
    )
    rows = ((name, memory.size(by_xla), memory.size(formula)) for name, by_xla, formula in found)
    by = ("by XLA", "by formula")
    collectives = ", ".join(f"{n} {name}" for name, n in check.collectives.items()) or "none"
    lines = [
        f"{parameters(model):,} parameters, sequence {model.seq_len:,}, batch "
        f"{train.train_batch_size:,}: traced in {duration(check.trace_seconds)}, compiled in "
        f"{duration(check.compile_seconds)}",
        f"collectives in the program: {collectives}",
    ]
    if check.simulated:
        lines.append(
            f"simulated on {on.count} CPU devices: shardings and collectives are those of the "
            "mesh; other memory, such as attention probabilities, is that of a CPU"
        )
    elif kind.memory:
        lines.append(
            f"by XLA, it uses {percent(total / kind.memory)} of {memory.size(kind.memory)}"
        )
    made = table(("", *by), rows, lines=True, right=by)
    return Group(_memory_of(on, compute), made, *map(Text, lines))


def _cost(
    plan: record.Plan, stands: Mapping[str, record.Standing], besides: Overhead = NO_OVERHEAD
) -> list[str]:
    cost = plan.cost
    cached = [one for one in stands.values() if one.state == "cached"]
    runs, missing = many(len(plan.steps), "step"), len(plan.steps) - len(cached)
    if not missing:
        return [f"{runs}, all cached: nothing to run", *speedrun_rows.foreseen(plan)]
    if plan.data and not cached:  # declared as arms and seeds
        arms, seeds = many(len(plan.arms), "arm"), many(len(plan.seeds), "seed")
        runs = f"{arms} × {seeds} = {many(cost.runs, 'run')}"
    else:
        cost = planning_cost.left(plan, stands)
        runs += f", {len(cached):,} cached and {missing:,} to run" if cached else ""
        runs += f"; {cost.runs or 'none'} of them train{'s' * (cost.runs < 2)}"
    lines = [*_training(plan, cost, runs)]
    if cost.runs:
        lines.insert(1, _whole(cost, missing, besides))
    if (seconds := limits.ceiling_seconds(plan)) is not None:
        most = f"{plan.ceiling_hours:g} device-hours"
        lines.append(f"time limit {duration(seconds)} ({most}, as declared)")
    return [*lines, *speedrun_rows.foreseen(plan)]


def _whole(cost: record.Cost, missing: int, besides: Overhead) -> str:
    """How long all of it takes, one step after the other."""
    around = missing * besides.per_step
    low, high = (around + seconds for seconds in cost.seconds)
    by = f"measured in {many(besides.learned_from, 'execution')} of this store"
    by = by if besides.learned_from else "as measured on two cores"
    each = f"{duration(besides.per_step)} to start and end each step, {by}"
    if cost.uncounted:
        return f"expected time: about {between(low, high)} ({each}), and what own code takes"
    training = f"of which {between(*cost.seconds)} training"
    return f"expected time: about {between(low, high)}, {training} ({each})"


def _training(plan: record.Plan, cost: record.Cost, runs: str) -> Iterator[str]:
    own = "its own models, whose FLOPs are unknown before they run"
    if not cost.runs:
        yield f"{runs}; run time unknown"
        return
    if cost.uncounted == cost.runs:
        yield f"{runs} with {own}; {cost.tokens:,} tokens, on {cost.device}"
        return
    yield f"{runs}, {cost.tokens:,} tokens, {flops(cost.model_flops)} model FLOPs"
    hardware = " to ".join(flops(value) for value in cost.hardware_flops)
    times = between(*cost.seconds)
    if len(cost.device_seconds) > 1:
        of_kinds = sorted(cost.device_seconds.items())
        times += f" ({'; '.join(f'{kind} {between(*seconds)}' for kind, seconds in of_kinds)})"
    price = f", {cost.price[0]:.2f} to {cost.price[1]:.2f} US$" if cost.price else ""
    yield (
        f"training alone, at 50 % to 20 % of peak FLOP/s: {hardware} hardware FLOPs, {times} on "
        f"{cost.device}{price}"
    )
    if rung := plan.rung:
        yield f"rung {rung.n} of {rung.of} of a ladder: {rung.variant} against {rung.baseline}"
    if cost.uncounted:
        yield f"not included: {cost.uncounted} of {cost.runs} runs train {own}"


# ── Results ──────────────────────────────────────────────────────────────────────────────────


def result_view(facts: Facts, runs: Sequence[record.Run]) -> Group:
    """The result of an execution: verdicts, arms, rejected reports."""
    plan, result = steps_view.in_turn(facts.execution.plan), facts.result
    parts: list[RenderableType] = []
    for verdict in result.verdicts if result else ():
        words = Text(f"{verdict.outcome}: ", style=OUTCOMES[verdict.outcome])
        parts.append(words.append(findings.sentence(verdict), style="none"))
    rows = []
    for arm in plan.arms:
        mine = [run for run in runs if run.arm == arm]
        summary = arm_summary(plan, figures_of(mine), arm)
        speeds = [run.tokens_per_second for run in mine if run.tokens_per_second]
        speed = f"{sum(speeds) / len(speeds):,.0f}" if speeds else "–"
        rows.append((arm, str(summary), f"{summary.n} of {summary.of}", speed))
    parts.append(table(("arm", "eval/bpb", "seeds", "tokens/s"), rows, lines=True))
    parts += execution_view.all_scores(plan, runs)
    parts += [
        Text(f"{record.run_name(run.arm, run.seed)}: {run.state}, {run.why}", style="red")
        for run in runs
        if run.why
    ]
    if result and result.state == "done" and (found := promotion.gate(plan, runs)):
        parts.append(Text(f"{found.head} {found.sentence}"))
    lost = lost_work.told(result.lost if result else ())
    parts += [Text(words.replace("`", "")) for words in lost]
    refused = result.refused if result else ()
    parts += [Text(f"rejected: {line}", style="yellow") for line in refused]
    return Group(*parts)


# ── While it runs ────────────────────────────────────────────────────────────────────────────


class Watching:
    """Shows an execution while it runs: a bar on a terminal, otherwise a line from time to time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[words]}"),
            console=console,
        )
        self._task: TaskID = self._bar.add_task("", total=1.0, words="")
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._shown: str | None = None
        self._line_at = -math.inf

    def __enter__(self) -> "Watching":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, words: str) -> None:
        """Print a line that stays."""
        self._console.print(escape(words), highlight=False, soft_wrap=True)

    def show(self, facts: Facts, advance: Advance) -> None:
        """Show the present state."""
        last = facts.attempts[-1].name if facts.attempts else ""
        doing = QUEUED if facts.state == "queued" else facts.state
        if facts.state == "running":
            doing = "training" if facts.execution.plan.data else "running steps"
        state = doing + (f" ({last})" if last else "")
        words = _words(advance) if facts.state == "running" else ""
        if self._console.is_terminal:
            self._bar.update(self._task, completed=advance.fraction, description=state, words=words)
            self._live.update(Group(self._bar, _losses(advance.runs)))
            return
        if state != self._shown:
            self.say(state)
            self._shown, self._line_at = state, time.monotonic()
        elif words and time.monotonic() - self._line_at >= LINE_EVERY:
            self.say(f"{advance.fraction:4.0%}  {words}")
            self._line_at = time.monotonic()


def _words(advance: Advance) -> str:
    run = next((run for run in advance.runs if 0 < run.step < run.steps), None)
    if run is None:
        done = sum(run.step == run.steps for run in advance.runs)
        waiting = (run for run in advance.runs if not run.ended and run.step < run.steps)
        coming = next((f" · next: {run.name}" for run in waiting), "")
        return f"{done} of {len(advance.runs)} runs trained{coming}"
    words = [f"{run.name} step {run.step}/{run.steps}"]
    if run.loss is not None:
        words.append(f"loss {run.loss:.3f}")
    if advance.tokens_per_second:
        words.append(f"{advance.tokens_per_second:,.0f} tokens/s")
    if advance.seconds_left:
        words.append(f"{duration(advance.seconds_left)} left")
    return " · ".join(words)


def _losses(runs: Sequence[RunProgress]) -> Text:
    """The newest losses of the runs that started last."""
    words = [f"{run.name} {run.loss:.3f}" for run in runs if run.loss is not None]
    return Text("   ".join(words[-MAX_LOSSES:]), style="dim")
