"""Charts of what a job reported beside the loss: gradient norm, learning rate, speed."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import altair as alt

from bot.site.base.chart import Chart, rounded
from bot.site.base.drawn import Axis, Drawing, Mark
from bot.site.charts.curves import page_of, plain
from runner.history import run_metrics, step_runs
from runner.lib.downsample import kept
from runner.schema import record
from runner.schema.job_reports import StepMetrics
from runner.store.store import Store

MAX_POINTS = 400  # of each: it is a small chart
HEIGHT = 150
SHOWN = {
    "grad_norm": "Gradient norm, before clipping",
    "learning_rate": "Learning rate",
    "tokens_per_second": "Tokens per second",
}

Lines = Sequence[StepMetrics | step_runs.Point]


def lines_of(store: Store, plan: record.Plan, run: record.Run) -> Lines:
    """What the job of a run reported, step by step: while it trains and, as long as the store has
    it, afterwards; otherwise what the trained model's output says, without speeds."""
    step = plan.trained().get((run.arm, run.seed))
    if step is None:
        return ()
    planned = plan.steps[step]
    try:
        return run_metrics.of_step(store, planned).lines or step_runs.points_of(store, planned)
    except step_runs.UNBELIEVED:  # the run's record says so
        return ()


def charts(lines: Lines, run: record.Run, script: str = "") -> dict[str, Chart]:
    """{name: chart} of what is known, each a part of the run's script."""
    found = {}
    for name, title in SHOWN.items():
        points = [
            (line.step, value) for line in lines if (value := getattr(line, name, None)) is not None
        ]
        if len(points) > 1:
            points = [points[at] for at in kept([value for _, value in points], MAX_POINTS)]
            found[name] = _chart(name, title, points, script or page_of(run)[: -len("html")] + "js")
    return found


def _chart(name: str, title: str, points: Sequence[tuple[int, float]], script: str) -> Chart:
    (first, begin), (last, end) = points[0], points[-1]
    return Chart(
        name=name.replace("_", "-"),
        title=title,
        words=f"{title}, over steps, from {begin:.3g} at step {first:,} to {end:.3g} at step "
        f"{last:,}.",
        spec=_spec(title),
        data={"points": {"step": [x for x, _ in points], "value": [rounded(y) for _, y in points]}},
        script=script,
        part=name,
        table="points",
        columns={"step": "Step", "value": title},
        drawing=Drawing(Axis("Step"), Axis(""), [Mark(points)], height=200),
        logs=(),
    )


@cache
def _spec(title: str) -> Mapping[str, Any]:
    x = alt.X("step:Q").title("Step").scale(nice=False).axis(tickCount=4)
    y = alt.Y("value:Q").title(None).scale(zero=False).axis(tickCount=4, format=".4~g")
    tips = [alt.Tooltip("step:Q", format=","), alt.Tooltip("value:Q", format=".4", title=title)]
    line = alt.Chart(alt.NamedData("points")).mark_line(strokeWidth=1.5, color=alt.expr("first"))
    encoded = line.encode(x=x, y=y, tooltip=tips)
    return plain(encoded.properties(height=HEIGHT, width="container"))
