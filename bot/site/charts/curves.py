"""Charts of training: the curve of a run, those of an execution, and those of any runs together."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import altair as alt

from bot.site.base.chart import Chart, Smooth, rounded
from bot.site.base.drawn import Axis, Drawing, Mark
from bot.site.facts.board import Entry
from runner.lib.downsample import kept
from runner.publish import charts
from runner.schema import record
from runner.schema.record import run_name

MOST_POINTS = 2_000  # of a run’s curve in its file: two for each pixel of its width
MOST_OF_ALL = 12_000  # of all curves of an execution together
CHOICES = {"tokens": "Tokens seen", "step": "Step", "flops": "Model FLOPs"}
LOSS = "Training loss, nats a token"
HEIGHT = 300


def page_of(execution: str, arm: str, seed: int) -> str:
    """Where a run's page lies, below the site's folder; its figures are beside it, in a `.js`."""
    return f"runs/{execution}.{run_name(arm, seed)}.html"


def of_run(entry: Entry, run: record.Run) -> Chart:
    """The curve of one run, with its arm's other figures derived from the step."""
    columns, note = _thinned(run.curve, MOST_POINTS)
    arm = entry.plan.arms[run.arm]
    a_step = arm.tokens_per_step
    points = [(step * a_step, loss) for step, loss in zip(*columns.values(), strict=True)]
    return Chart(
        name="loss",
        title="Training loss",
        words=f"Training loss of {run_name(run.arm, run.seed)} over tokens seen, {_ends(run)}.",
        spec=_spec(lines="run", legend=False),
        data={"curve": columns},
        derived={
            "tokens": ("step", a_step),
            **({"flops": ("step", rounded(of_step, 12))} if (of_step := _flops_of(arm)) else {}),
        },
        script=page_of(run.execution, run.arm, run.seed).removesuffix("html") + "js",
        table="curve",
        columns={"step": "Step", "tokens": "Tokens seen", "loss": LOSS},
        drawing=Drawing(Axis("Tokens seen"), Axis(LOSS), [Mark(points)]),
        choices={"x": CHOICES},
        logs=("x", "y"),
        smooth=Smooth("curve", "step", "loss", "run"),
        note=note,
    )


def _flops_of(arm: record.PlannedArm) -> float | None:
    """Model FLOPs of a step."""
    return None if arm.model_flops is None else arm.tokens_per_step * arm.model_flops / arm.tokens


def of_execution(entry: Entry) -> Chart:
    """The curves of an execution: each seed's, and each arm's mean."""
    seeds, means = charts.curves_of(entry.plan, entry.runs)
    most = max(100, MOST_OF_ALL // (len(seeds) + len(means) or 1))
    arms = list(dict.fromkeys(curve.arm for curve in seeds))
    marks = [
        Mark(
            list(zip(curve.tokens, curve.loss, strict=True)),
            colour=arms.index(curve.arm),
            faint=faint,
            name="" if faint else curve.arm,
        )
        for curves, faint in ((seeds, True), (means, False))
        for curve in curves
    ]
    lines = [
        f"{curve.arm} ends at {curve.loss[-1]:.4g} after {curve.tokens[-1]:,.0f} tokens"
        for curve in means[:12]
    ]
    return Chart(
        name="loss",
        title="Training loss",
        words=f"Training loss of each arm over tokens seen: {'; '.join(lines)}.",
        spec=_of_arms(),
        data={"seeds": _columns(seeds, most), "means": _columns(means, most)},
        script=f"executions/{entry.execution.id}/loss.js",
        table="seeds",
        columns={"run": "Run", "tokens": "Tokens seen", "loss": LOSS},
        drawing=Drawing(Axis("Tokens seen"), Axis(LOSS), marks),
        logs=("x", "y"),
        smooth=Smooth("means", "tokens", "loss", "arm"),
        note="As the job reported it. Bold: the mean over an arm’s seeds; thin: each seed.",
    )


def of_many() -> Chart:
    """An empty chart that the script fills with the curves of the runs that a link names."""
    return Chart(
        name="loss",
        title="Training loss",
        words="Training loss of the runs that are compared.",
        spec=_spec(lines="run", legend=True),
        data={"curve": {"run": [], "step": [], "tokens": [], "flops": [], "loss": []}},
        script="compare.loss.js",
        table="curve",
        columns={"run": "Run", "step": "Step", "tokens": "Tokens seen", "loss": LOSS},
        drawing=Drawing(Axis("Tokens seen"), Axis(LOSS), []),
        choices={"x": CHOICES},
        logs=("x", "y"),
        smooth=Smooth("curve", "step", "loss", "run"),
    )


def _thinned(curve: Sequence[tuple[int, float]], most: int) -> tuple[dict[str, list[float]], str]:
    stay = kept([loss for _, loss in curve], most)
    points = [curve[at] for at in stay]
    note = "As the job reported it, in nats a token."
    if len(points) < len(curve):
        note += (
            f" {len(points):,} of {len(curve):,} points are drawn: the least and the greatest of"
            " each stretch, so that no spike is lost."
        )
    return {"step": [x for x, _ in points], "loss": [round(y, 5) for _, y in points]}, note


def _ends(run: record.Run) -> str:
    if not run.curve:
        return "of which nothing was reported"
    (first, begin), (last, end) = run.curve[0], run.curve[-1]
    return f"from {begin:.4g} at step {first:,} to {end:.4g} at step {last:,}"


def _columns(curves: Sequence[charts.Curve], most: int) -> Mapping[str, list[Any]]:
    columns: dict[str, list[Any]] = {"arm": [], "run": [], "tokens": [], "loss": []}
    for curve in curves:
        stay = kept(curve.loss, most)
        columns["arm"] += [curve.arm] * len(stay)
        columns["run"] += [run_name(curve.arm, curve.seed)] * len(stay)
        columns["tokens"] += [round(curve.tokens[at]) for at in stay]
        columns["loss"] += [round(curve.loss[at], 5) for at in stay]
    return columns


# ── In Vega-Lite ─────────────────────────────────────────────────────────────────────────────


@cache
def _spec(*, lines: str, legend: bool) -> Mapping[str, Any]:
    """A faint line for what was reported, a bold one for what is smoothed, and what lies under the
    pointer."""
    x = alt.X("tokens:Q").title(CHOICES["tokens"]).scale(nice=False).axis(_tokens())
    scale = alt.Scale(zero=False)
    colour = alt.Color(f"{lines}:N").title(None)
    colour = colour.legend(
        orient="top", symbolType="stroke", symbolOpacity=1, offset=30, columns=1, labelLimit=320
    )
    if not legend:
        colour = colour.legend(None)
    base = alt.Chart(alt.NamedData("curve"))
    faint = base.mark_line(strokeWidth=1, opacity=0.35, clip=True).encode(
        x=x, y=alt.Y("loss:Q").title(LOSS).scale(scale), color=colour, detail=f"{lines}:N"
    )
    bold = base.mark_line(strokeWidth=1.75, clip=True).encode(
        x=x, y=alt.Y("smooth:Q").scale(scale), color=colour
    )
    tips = [f"{lines}:N", alt.Tooltip("step:Q", format=","), alt.Tooltip("tokens:Q", format=",")]
    near = _near(base, x, alt.Y("smooth:Q").scale(scale), colour).encode(
        tooltip=[*tips, alt.Tooltip("loss:Q", format=".4f"), alt.Tooltip("smooth:Q", format=".4f")]
    )
    return plain(alt.layer(faint, bold, near, height=HEIGHT, width="container"))


@cache
def _of_arms() -> Mapping[str, Any]:
    x = alt.X("tokens:Q").title(CHOICES["tokens"]).scale(nice=False).axis(_tokens())
    colour = alt.Color("arm:N").title(None)
    colour = colour.legend(
        orient="top", symbolType="stroke", symbolOpacity=1, offset=30, columns=4, labelLimit=240
    )
    y = alt.Y("loss:Q").title(LOSS).scale(zero=False)
    thin = (
        alt.Chart(alt.NamedData("seeds"))
        .mark_line(strokeWidth=1, opacity=0.35, clip=True)
        .encode(x=x, y=y, color=colour, detail="run:N")
    )
    base = alt.Chart(alt.NamedData("means"))
    smooth = alt.Y("smooth:Q").scale(zero=False)
    bold = base.mark_line(strokeWidth=2.25, clip=True).encode(x=x, y=smooth, color=colour)
    near = _near(base, x, smooth, colour).encode(
        tooltip=[
            "arm:N",
            alt.Tooltip("tokens:Q", format=","),
            alt.Tooltip("loss:Q", format=".4f", title="mean loss"),
        ]
    )
    return plain(alt.layer(thin, bold, near, height=HEIGHT, width="container"))


def _tokens() -> alt.Axis:
    return alt.Axis(labelExpr="replace(format(datum.value, '~s'), 'G', 'B')", tickCount=6)


def _near(base: Any, x: Any, y: Any, colour: Any) -> Any:
    """The point nearest to the pointer."""
    near = alt.selection_point(
        name="near", nearest=True, on="pointerover", clear="pointerout", empty=False
    )
    seen = alt.when(near).then(alt.value(1)).otherwise(alt.value(0))
    points = base.mark_point(filled=True, size=50, clip=True).encode(x=x, y=y, color=colour)
    return points.encode(opacity=seen).add_params(near)


def plain(chart: Any) -> Mapping[str, Any]:
    """An Altair chart as Vega-Lite without a look of its own: the page says how charts look."""
    found = dict(chart.to_dict())
    found.pop("config", None)
    return found
