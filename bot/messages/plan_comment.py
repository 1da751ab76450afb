"""The comment with a plan. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import yaml

from bot.messages import for_programs, templating
from bot.messages.templating import MAX_BODY, listed, say
from bot.model.escape import code, fenced
from runner.analysis import arm_settings, power
from runner.analysis.arm_settings import Settings
from runner.lib import format
from runner.planning import cost as planning_cost
from runner.publish import step_summary
from runner.schema.record import Isolated, Plan, PlannedStep, PlanRecord, Standing

UNSEEN = "GitHub does not show"  # begins the problem of what is not the author's mistake
MAX_DRAWN = 40  # steps of a flow chart
MAX_LINE = 600  # characters of one line of a step's configuration
MAX_OWN = 2_000  # likewise of what an arm says to code of its own
MAX_COLUMNS = 12  # keys in which arms differ, in one table
ISOLATED = {
    "bubblewrap": "in isolation (bubblewrap), without network. It can read its inputs, the "
    "experiment's Python files that it imports, and the installed Python. It can write only its "
    "output",
    "trusted": "without isolation: this lab's operator trusts approved code. Read it before you "
    "approve it",
}


def plan(record: PlanRecord, repository_url: str | None = None) -> str:
    """What would run at a commit, and how its own code would run; or the problems there."""
    if record.plan is None:
        data = lambda most: for_programs.problems(record, most)  # noqa: E731
        return say("plan-problems", data, record=record, unseen=is_unseen(record))
    plan, folder = record.plan, quote(record.plan.experiment)
    arms = arm_settings.settings(plan) if plan.data else {}
    flat = {name: arm_settings.flat(arm) for name, arm in arms.items()}
    refused = None if record.isolation else own_code(plan)
    cannot = bool(refused or record.drifted)
    return say(
        "plan" if plan.data else "plan-steps",
        lambda most: for_programs.plan(record, most, cannot),
        link=repository_url and f"{repository_url}/tree/{record.commit}/{folder}",
        record=record,
        plan=plan,
        steps=list(step_summary.ordered(plan.steps).items()),
        takes=_takes,
        flow_lines=_flow_lines,
        standings=Counter(sorted(_does(one) for one in record.standings.values())),
        states={
            record.standings[name].state if name in record.standings else "new"
            for name in plan.steps
        },
        reasons=any(one.why for one in record.standings.values()),
        cost=planning_cost.left(plan, record.standings),
        around=_around(record, plan),
        drawing=_drawing(plan),
        told=power.told(plan, plan.predictions, record.spread, record.spreads),
        own_code=refused,
        runs_in=runs_in(plan, record.isolation),
        differing=arm_settings.differing(flat.values()),
        columns=MAX_COLUMNS,
        value=lambda arm, name: flat[arm].get(name, format.UNKNOWN),
        lines=lambda arm: _arm_lines(arms[arm]),
        level=next((one.level for one in record.forecasts.values()), 0.0),
        not_forecast=_not_forecast(record),
    )


def is_unseen(record: PlanRecord) -> bool:
    """Whether there is no plan only because GitHub did not show something."""
    return record.plan is None and all(words.startswith(UNSEEN) for words in record.problems)


def _around(record: PlanRecord, plan: Plan) -> float | None:
    """The seconds that the steps that are to be made take besides training; None if unknown."""
    cached = sum(one.state == "cached" for one in record.standings.values())
    return record.per_step and record.per_step * (len(plan.steps) - cached)


def _not_forecast(record: PlanRecord) -> list[tuple[str, str | None]]:
    """Why there are arms without a forecast, each time with these arms; None where it is all."""
    by_reason: dict[str, list[str]] = {}
    for arm, why in record.no_forecast.items():
        by_reason.setdefault(why, []).append(arm)
    all_alike = not record.forecasts and len(by_reason) == 1
    return [(why, None if all_alike else listed(arms)) for why, arms in by_reason.items()]


def folded(record: PlanRecord, by: int, repository_url: str | None = None) -> str:
    """The comment of a plan after which plan `by` came."""
    summary = f"Plan {record.n}, for {record.commit[:12]}: replaced by plan {by}"
    return templating.folded(summary, plan(record, repository_url))


def title(record: PlanRecord) -> str:
    """The plan in one line, for a check."""
    if record.plan is None:
        return format.many(len(record.problems), "problem")
    plan, cost = record.plan, planning_cost.left(record.plan, record.standings)
    what = format.many(cost.runs, "run") if plan.data else format.many(len(plan.steps), "step")
    return what + (f", {format.flops(cost.model_flops)} model FLOPs" if cost.model_flops else "")


# ── Code of its own ──────────────────────────────────────────────────────────────────────────


def runs_in(plan: Plan, isolation: Isolated) -> str | None:
    """What the plan's own code would run in; None where it has none, or cannot run."""
    names = _own_names(plan)
    if not isolation or names is None:
        return None
    return f"The experiment's own Python code ({names}) would run {ISOLATED[isolation]}."


def own_code(plan: Plan) -> str | None:
    """Why a lab that cannot isolate code does not run this plan; None if it does."""
    names = _own_names(plan)
    if names is None:
        return None
    return (
        f"The experiment has its own Python code ({names}). The lab runs own code only in "
        f"isolation, which does not work on its machine. You can run it on yours: "
        f"`regatta run {code(plan.experiment)}`."
    )


def _own_names(plan: Plan) -> str | None:
    """The arms, or else the steps, that have code of the experiment's own, or else its declaration,
    if that is such code."""
    arms = [name for name, arm in plan.arms.items() if arm.own] if plan.data else []
    if names := arms or plan.own_code():
        return listed(names, 5)
    return "`experiment.py`, its declaration" if plan.compiled else None


# ── Steps and settings ───────────────────────────────────────────────────────────────────────


def _does(standing: Standing) -> str:
    """What a plan does with a step: nothing if it is cached or runs elsewhere."""
    return standing.state if standing.state in ("cached", "being made") else "to run"


def _takes(step: PlannedStep) -> str:
    """From which steps a step takes something."""
    counts = Counter(other.partition("/")[0] for other in step.needs)
    return ", ".join(f"{name} × {n}" if n > 1 else name for name, n in counts.items())


def _drawing(plan: Plan) -> str | None:
    """A flow chart of the steps; None where it would be too large to be read."""
    if len(plan.steps) > MAX_DRAWN:
        return None
    drawn = "\n".join(step_summary.mermaid(plan.steps))
    return drawn if len(drawn) <= MAX_BODY // 6 else None


def _flow_lines(config: Mapping[str, Any], most: int = MAX_LINE) -> list[str]:
    """Configuration as YAML, a line a section; nothing in it can end a fence."""
    lines = []
    for key, value in config.items():
        if value in (None, {}):
            continue
        if isinstance(value, Mapping):
            value = {name: inner for name, inner in value.items() if inner is not None}
        flow = yaml.safe_dump(
            value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False
        )
        flow = flow.removesuffix("\n").removesuffix("\n...")
        lines.append(fenced(f"{key}: {flow}", most))
    return lines


def _arm_lines(arm: Settings) -> list[str]:
    """An arm's settings, whole but for what code of its own is told: there is no end to that."""
    labs = ("train",) if "model" in arm["own"] else ("model", "train")
    return [
        line
        for section, values in arm.items()
        for line in _flow_lines({section: values}, MAX_BODY if section in labs else MAX_OWN)
    ]
