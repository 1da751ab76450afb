"""Charts of validation curves: the scores of a run's snapshots, of a run and of an execution."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import altair as alt

from bot.site.base.chart import Chart, columns, rounded
from bot.site.base.drawn import Axis, Drawing, Mark
from bot.site.charts.curves import CHOICES, columns_of, layered, of_arms, page_of, sizes_at
from bot.site.facts.entries import Entry
from runner.analysis.score_table import around
from runner.publish import charts
from runner.schema import record
from runner.schema.record import run_name

TITLE = "Validation"
BPB = "Bits per byte on the validation text"


def script_of(run: record.Run) -> str:
    """The path of the figures of a run's chart, below the site's folder."""
    return page_of(run).removesuffix("html") + "validation.js"


def of_run(entry: Entry, run: record.Run) -> Chart:
    """The validation curve of one run, with an interval at each point."""
    arm, name = entry.plan.arms[run.arm], run_name(run.arm, run.seed)
    rows = [
        {
            "step": step,
            "bpb": round(bpb, 5),
            "error": rounded(error),
            "low": round(around(bpb, error or 0.0)[0], 5),
            "high": round(around(bpb, error or 0.0)[1], 5),
        }
        for step, bpb, error in run.validation
    ]
    sizes, derived = sizes_at(arm, [row["step"] for row in rows])
    tokens = [arm.tokens_until(row["step"]) for row in rows]
    points = [(seen, row["bpb"]) for seen, row in zip(tokens, rows, strict=True)]
    whiskers = [(seen, row["low"], row["high"]) for seen, row in zip(tokens, rows, strict=True)]
    (first, begin, _), (last, end, _) = run.validation[0], run.validation[-1]
    return Chart(
        name="validation",
        title=TITLE,
        words=f"{BPB} of {name} over tokens seen, from {begin:.4g} at step {first:,} to {end:.4g} "
        f"at step {last:,}.",
        spec=_of_run(),
        data={"curve": {**columns(rows), **sizes}},
        derived=derived,
        script=script_of(run),
        table="curve",
        columns={
            "step": "Step",
            "tokens": CHOICES["tokens"],
            "bpb": BPB,
            "error": "Standard error",
        },
        drawing=_drawing(
            Mark(points), Mark(points, "dots"), Mark(whiskers, "whiskers", faint=True)
        ),
        choices={"x": {x: CHOICES[x] for x in CHOICES if x != "flops" or arm.model_flops}},
        note="Scored by the lab, from snapshots of the parameters during training and at last from "
        "the trained model. A whisker is the interval of 95 % over the windows that were scored.",
    )


def of_execution(entry: Entry) -> Chart:
    """The validation curves of an execution: one per seed, and each arm's mean."""
    seeds, means = charts.validation_of(entry.plan, entry.runs)
    marks, ends = of_arms(seeds, means)
    return Chart(
        name="validation",
        title=TITLE,
        words=f"{BPB} of each arm over tokens seen: {ends}.",
        spec=_of_execution(),
        data={"seeds": columns_of(seeds, "bpb"), "means": columns_of(means, "bpb")},
        script=f"executions/{entry.execution.id}/validation.js",
        table="seeds",
        columns={"run": "Run", "tokens": CHOICES["tokens"], "bpb": BPB},
        drawing=_drawing(*marks),
        note="Scored by the lab, from snapshots of the parameters during training and at last from "
        "the trained model. Bold: the mean over the seeds of an arm. Thin: each seed.",
    )


def _drawing(*marks: Mark) -> Drawing:
    return Drawing(Axis(CHOICES["tokens"]), Axis(BPB), marks)


# ── In Vega-Lite ─────────────────────────────────────────────────────────────────────────────


def _axes() -> tuple[alt.X, alt.Y]:
    axis = alt.Axis(labelExpr=charts.TOKENS, tickCount=6)
    x = alt.X("tokens:Q").title(CHOICES["tokens"]).scale(nice=False).axis(axis)
    return x, alt.Y("bpb:Q").title(BPB).scale(zero=False)


@cache
def _of_run() -> Mapping[str, Any]:
    x, y = _axes()
    base = alt.Chart(alt.NamedData("curve"))
    tips = [
        alt.Tooltip("step:Q", format=","),
        alt.Tooltip("tokens:Q", format=","),
        alt.Tooltip("bpb:Q", format=".4f", title="bits per byte"),
        alt.Tooltip("error:Q", format=".4f", title="standard error"),
    ]
    first = alt.expr("first")
    return layered(
        base.mark_rule(opacity=0.5, color=first).encode(
            x=x, y=alt.Y("low:Q").scale(zero=False).title(BPB), y2="high:Q"
        ),
        base.mark_line(strokeWidth=1.75, color=first).encode(x=x, y=y),
        base.mark_point(filled=True, size=50, opacity=1, color=first).encode(
            x=x, y=y, tooltip=tips
        ),
    )


@cache
def _of_execution() -> Mapping[str, Any]:
    x, y = _axes()
    colour = alt.Color("arm:N").title(None)
    colour = colour.legend(
        orient="top", symbolType="stroke", symbolOpacity=1, offset=30, columns=4, labelLimit=240
    )
    tips = [
        "arm:N",
        alt.Tooltip("tokens:Q", format=","),
        alt.Tooltip("bpb:Q", format=".4f", title="mean bits per byte"),
    ]
    seeds, means = (alt.Chart(alt.NamedData(name)) for name in ("seeds", "means"))
    return layered(
        seeds.mark_line(strokeWidth=1, opacity=0.35).encode(x=x, y=y, color=colour, detail="run:N"),
        means.mark_line(strokeWidth=2.25).encode(x=x, y=y, color=colour),
        means.mark_point(filled=True, size=50, opacity=1).encode(
            x=x, y=y, color=colour, tooltip=tips
        ),
    )
