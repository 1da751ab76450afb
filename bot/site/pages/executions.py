"""The page of an execution: verdicts, arms, curves, design, receipt."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

from bot.site.base.chart import Chart
from bot.site.base.files import File, made_from
from bot.site.charts import curves, study_charts, validation_curves
from bot.site.facts.entries import Entry
from bot.site.pages.templating import Look
from runner.analysis import estimates, study_results, verdicts
from runner.analysis.comparability import scored_on
from runner.analysis.which_runs_count import Review
from runner.lib.canonical_json import to_json
from runner.schema import record


def files(
    entry: Entry, whole: Callable[[], Entry], review: Review | None, look: Look
) -> Iterator[File]:
    """The page and the figures of its chart; `whole` returns the entry with its curves."""
    path = f"executions/{entry.execution.id}/index.html"

    def chart() -> Chart:  # drawn for each file, and never cached
        return curves.of_execution(whole())

    if entry.curved:
        script = f"executions/{entry.execution.id}/loss.js"
        yield File(script, lambda: chart().source(), made_from(entry.told))
    validated = any(run.validation for run in entry.runs)
    if validated:
        script = f"executions/{entry.execution.id}/validation.js"
        drawn = validation_curves.of_execution
        yield File(script, lambda: drawn(entry).source(), made_from(entry.told))
    drawn_study = entry.has_figures and (entry.plan.ablation or entry.plan.isoflop)
    if drawn_study:
        folder = f"executions/{entry.execution.id}"
        studied = study_charts.of_execution
        yield File(f"{folder}/study.js", lambda: studied(entry).source(), made_from(entry.told))
    if drawn_study or any(run.tuned for run in entry.runs):
        twin = f"api/studies/{entry.execution.id}.json"
        yield File(twin, lambda: _study(entry), made_from(entry.told))
    yield look.page(
        path,
        "execution.html",
        made_from(look.told, entry.state, review.told if review else "", entry.told),
        entry=entry,
        review=review,
        chart=chart if entry.curved else None,
        studies=partial(study_results.of, entry.plan, entry.runs),
        study_chart=partial(study_charts.of_execution, entry) if drawn_study else None,
        validation=partial(validation_curves.of_execution, entry) if validated else None,
        strip=strip,
        knobs=knobs,
        scored_on=scored_on,
    )


def _study(entry: Entry) -> bytes:
    return to_json({"studies": [one.data for one in study_results.of(entry.plan, entry.runs)]})


def strip(verdict: record.Verdict) -> dict[str, Any] | None:
    """Interval, expected set and, of a difference, 0 on a common scale, in percent, and the
    measured value as text; None without an interval."""
    if verdict.interval is None or verdict.estimate is None:
        return None
    expected = verdicts.parse_expect(verdict.prediction.expect)
    bounds = [bound for bound in (expected.lower, expected.upper) if math.isfinite(bound)]
    zero = verdict.prediction.versus is not None
    marks = [*verdict.interval, *bounds, *([0.0] if zero else [])]
    decimals = verdicts.telling_decimals(verdict.interval, expected)
    room = (max(marks) - min(marks)) * 0.25 or 1.0
    low, width = min(marks) - room, max(marks) - min(marks) + 2 * room

    def at(value: float) -> float:
        return round(min(max((value - low) / width, 0.0), 1.0) * 100, 2)

    return {
        "set_from": at(expected.lower),
        "set_to": at(expected.upper),
        "from": at(verdict.interval[0]),
        "to": at(verdict.interval[1]),
        "at": at(verdict.estimate),
        "set_at": (at(expected.lower) + at(expected.upper)) / 2,
        "zero": at(0.0) if zero else None,
        "said": estimates.figure(verdict.estimate, decimals),
    }


def knobs(plan: record.Plan) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Model and train keys: those that all arms share, and by arm those that differ. What the
    lab's model alone can have is compared, and shared, among the arms with that model."""
    by_arm = {name: knobs_of(arm) for name, arm in plan.arms.items()}
    keys = {key: None for arm in by_arm.values() for key in arm}  # not every arm has phases
    labs = {key for arm in plan.arms.values() if arm.labs for key in arm.labs.model_dump()}
    shared, differ = {}, []
    for key in keys:
        of = [
            x for name, x in by_arm.items() if key in x or key not in labs or plan.arms[name].labs
        ]
        if all(arm.get(key) == of[0].get(key) for arm in of):
            shared[key] = of[0].get(key)
        else:
            differ.append(key)
    return shared, {name: {key: arm.get(key) for key in differ} for name, arm in by_arm.items()}


def knobs_of(arm: record.PlannedArm, mode: Literal["json", "python"] = "python") -> dict[str, Any]:
    """The model and train keys of an arm, and its own functions."""
    own = {f"own.{part}": function for part, function in arm.own.items()}
    return arm.model.model_dump(mode=mode) | arm.train.model_dump(mode=mode) | own
