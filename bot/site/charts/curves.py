"""Charts of training curves: of a run, of an execution, and of any runs together."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import altair as alt

from bot.site.base.chart import Chart, Columns, Smooth, columns, rounded
from bot.site.base.drawn import Axis, Drawing, Mark
from bot.site.facts.entries import Entry, name_of
from runner.lib.downsample import kept
from runner.publish import charts
from runner.schema import record
from runner.schema.record import run_name

MAX_POINTS = 2_000  # of a run's curve in its file: two per pixel of its width
MAX_OF_ALL = 12_000  # of all curves of an execution together
CHOICES = {"tokens": "Tokens seen", "step": "Step", "flops": "Model FLOPs"}
LOSS = "Training loss, nats per token"
HEIGHT = 300


def page_of(run: record.Run) -> str:
    """The path of a run's page, below the site's folder; its figures are beside it, in a `.js`."""
    return f"runs/{name_of(run)}.html"


def of_run(entry: Entry, run: record.Run) -> Chart:
    """The curve of one run; its other x values are derived from the step."""
    arm = entry.plan.arms[run.arm]
    stay = kept([loss for _, loss in run.curve], MAX_POINTS)
    points = [run.curve[at] for at in stay]
    note = "As the job reported it, in nats per token."
    if len(points) < len(run.curve):
        note += (
            f" The chart shows {len(points):,} of {len(run.curve):,} points: the lowest and the"
            " highest of each part, so that no spike is lost."
        )
    curve = {"step": [step for step, _ in points], "loss": [round(loss, 5) for _, loss in points]}
    sizes, derived = sizes_at(arm, curve["step"])
    name = run_name(run.arm, run.seed)
    return replace(
        of_many(),
        words=f"Training loss of {name} over tokens seen, {_ends(run)}.",
        spec=_spec("curve", "curve", legend=None),
        data={"curve": {**curve, **sizes}},
        derived=derived,
        script=page_of(run).removesuffix("html") + "js",
        columns={"step": "Step", "tokens": "Tokens seen", "loss": LOSS},
        drawing=_drawing(Mark([(arm.tokens_until(step), round(loss, 5)) for step, loss in points])),
        note=note,
    )


def sizes_at(
    arm: record.PlannedArm, steps: Sequence[int]
) -> tuple[Columns, dict[str, tuple[str, float]]]:
    """Tokens and model FLOPs at these steps: columns, or, where all steps are alike, what they are
    derived from."""
    each = arm.model_flops / arm.tokens if arm.model_flops else None
    if len(set(arm.train.batch_sizes.sizes)) > 1:
        tokens = [arm.tokens_until(step) for step in steps]
        flops = {"flops": [rounded(each * seen, 12) for seen in tokens]} if each else {}
        return {"tokens": tokens, **flops}, {}
    a_step = arm.tokens_until(1)
    derived: dict[str, tuple[str, float]] = {"tokens": ("step", a_step)}
    if arm.model_flops:
        derived["flops"] = ("step", rounded(a_step * arm.model_flops / arm.tokens, 12))
    return {}, derived


def of_execution(entry: Entry) -> Chart:
    """The curves of an execution: one per seed, and each arm's mean."""
    seeds, means = charts.curves_of(entry.plan, entry.runs)
    most = max(100, MAX_OF_ALL // (len(seeds) + len(means) or 1))
    marks, ends = of_arms(seeds, means)
    return Chart(
        name="loss",
        title="Training loss",
        words=f"Training loss of each arm over tokens seen: {ends}.",
        spec=_spec("seeds", "means", legend=4),
        data={"seeds": columns_of(seeds, "loss", most), "means": columns_of(means, "loss", most)},
        script=f"executions/{entry.execution.id}/loss.js",
        table="seeds",
        columns={"run": "Run", "tokens": "Tokens seen", "loss": LOSS},
        drawing=_drawing(*marks),
        smooth=Smooth("means", "tokens", "loss", "arm"),
        note="As the job reported it. Bold: the mean over the seeds of an arm. Thin: each seed.",
    )


def of_arms(seeds: Sequence[charts.Curve], means: Sequence[charts.Curve]) -> tuple[list[Mark], str]:
    """Faint lines of seeds with bold means, a colour for each arm; and where the first means end,
    in words."""
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
    ends = [
        f"{curve.arm} ends at {curve.loss[-1]:.4g} after {curve.tokens[-1]:,.0f} tokens"
        for curve in means[:12]
    ]
    return marks, "; ".join(ends)


def of_many() -> Chart:
    """An empty chart that the script fills with the curves of the runs in a link."""
    return Chart(
        name="loss",
        title="Training loss",
        words="Training loss of the chosen runs.",
        spec=_spec("curve", "curve", legend=1),
        data={"curve": {"run": [], "step": [], "tokens": [], "flops": [], "loss": []}},
        script="compare.loss.js",
        table="curve",
        columns={"run": "Run", "step": "Step", "tokens": "Tokens seen", "loss": LOSS},
        drawing=_drawing(),
        choices={"x": CHOICES},
        smooth=Smooth("curve", "step", "loss", "run"),
    )


def _drawing(*marks: Mark) -> Drawing:
    return Drawing(Axis("Tokens seen"), Axis(LOSS), marks)


def _ends(run: record.Run) -> str:
    if not run.curve:
        return "no reports"
    (first, begin), (last, end) = run.curve[0], run.curve[-1]
    return f"from {begin:.4g} at step {first:,} to {end:.4g} at step {last:,}"


def columns_of(curves: Sequence[charts.Curve], score: str, most: int = sys.maxsize) -> Columns:
    """The points of curves, at most so many of each."""
    return columns(
        {
            "arm": curve.arm,
            "run": run_name(curve.arm, curve.seed),
            "tokens": round(curve.tokens[at]),
            score: round(curve.loss[at], 5),
        }
        for curve in curves
        for at in kept(curve.loss, most)
    )


# ── In Vega-Lite ─────────────────────────────────────────────────────────────────────────────


@cache
def _spec(thin: str, bold: str, *, legend: int | None) -> Mapping[str, Any]:
    """A faint line for reported values (the data `thin`), a bold one for smoothed or averaged
    values (`bold`), and the values under the pointer. `legend`: its number of columns."""
    of_arms = thin != bold
    line = "arm:N" if of_arms else "run:N"
    axis = alt.Axis(labelExpr=charts.TOKENS, tickCount=6)
    x = alt.X("tokens:Q").title(CHOICES["tokens"]).scale(nice=False).axis(axis)
    y = alt.Y("loss:Q").title(LOSS).scale(zero=False)
    smooth = alt.Y("smooth:Q").scale(zero=False)
    colour = alt.Color(line).title(None).legend(None)
    if legend:
        colour = colour.legend(
            orient="top",
            symbolType="stroke",
            symbolOpacity=1,
            offset=30,
            columns=legend,
            labelLimit=240 if of_arms else 320,
        )
    faint = alt.Chart(alt.NamedData(thin)).mark_line(strokeWidth=1, opacity=0.35, clip=True)
    base = alt.Chart(alt.NamedData(bold))
    strong = base.mark_line(strokeWidth=2.25 if of_arms else 1.75, clip=True)
    tokens = alt.Tooltip("tokens:Q", format=",")
    tips = [line, tokens, alt.Tooltip("loss:Q", format=".4f", title="mean loss")]
    if not of_arms:
        loss, smoothed = (alt.Tooltip(f"{name}:Q", format=".4f") for name in ("loss", "smooth"))
        tips = [line, alt.Tooltip("step:Q", format=","), tokens, loss, smoothed]
    near = alt.selection_point(
        name="near", nearest=True, on="pointerover", clear="pointerout", empty=False
    )
    points = base.mark_point(filled=True, size=50, clip=True).encode(
        x=x,
        y=smooth,
        color=colour,
        opacity=alt.when(near).then(alt.value(1)).otherwise(alt.value(0)),
        tooltip=tips,
    )
    return layered(
        faint.encode(x=x, y=y, color=colour, detail="run:N"),
        strong.encode(x=x, y=smooth, color=colour),
        points.add_params(near),
    )


# How names stand beside points; the page decides which have room, and which are `turned`.
NAMES: Mapping[str, Any] = {
    "align": alt.expr("datum.turned ? 'right' : 'left'"),
    "dx": alt.expr("datum.turned ? -4 : 4"),
    "fontSize": 11,
    "limit": 110,
    "color": alt.expr("ink"),
}


def layered(*layers: Any, height: Any = HEIGHT) -> Mapping[str, Any]:
    """Layers as one chart, as wide as its page has room."""
    return plain(alt.layer(*layers, height=height, width="container"))


def plain(chart: Any) -> Mapping[str, Any]:
    """An Altair chart as Vega-Lite without style, which the page sets."""
    found = dict(chart.to_dict())
    found.pop("config", None)
    return found
