"""Charts of an execution, as Vega-Lite descriptions.

A chart is plain data that is drawn as PNG for a comment or as SVG for a page; equal input gives
equal bytes. The card is white on any background, the colours suit colour-blind readers, and every
line has its name at its end.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import vl_convert
from scipy.optimize import isotonic_regression

from runner.schema import record

WIDTH, HEIGHT = 560, 300
# Okabe and Ito's colours; the first two are the easiest to distinguish.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666")
DASHES = ([1, 0], [6, 3], [2, 2])
INK, QUIET, HAIRLINE = "#1f2328", "#656d76", "#e5e8eb"
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
TOKENS = "replace(format(datum.value, '~s'), 'G', 'B')"  # how an axis shows numbers of tokens
NAME_HEIGHT = 14  # minimum distance in pixels between the names of two lines
MOST_NAMES = 12


@dataclass(frozen=True)
class Curve:
    """One line: tokens seen, and training loss in nats per token or, for validation, bits per
    byte."""

    arm: str
    seed: int
    finished: bool
    tokens: tuple[float, ...]
    loss: tuple[float, ...]


def loss_curves(plan: record.Plan, runs: Sequence[record.Run]) -> dict[str, Any]:
    """Training loss over tokens: a thin line per seed, a bold one for each arm's mean; and below it
    the validation curves, if there are any."""
    curves, means = curves_of(plan, runs)
    arms = [arm for arm in plan.arms if any(curve.arm == arm for curve in curves)]
    if not curves:
        return _empty(plan)
    # A diverged loss must not flatten all others; a note counts what is cut off.
    first = max(curve.loss[0] for curve in curves)
    ceiling = first + abs(first) / 2
    shown = [loss for curve in curves for loss in curve.loss if loss <= ceiling]
    cut = sum(loss > ceiling for curve in curves for loss in curve.loss)
    room = 0.04 * (max(shown) - min(shown)) or 0.1
    low, high = min(shown) - room, max(shown) + room

    colour = alt.Color("arm:N", legend=None).scale(
        domain=arms, range=[COLOURS[i % len(COLOURS)] for i in range(len(arms))]
    )
    dash = alt.StrokeDash("arm:N", legend=None).scale(
        domain=arms, range=[DASHES[i // len(COLOURS) % len(DASHES)] for i in range(len(arms))]
    )
    x = alt.X("tokens:Q").title("tokens seen").scale(nice=False, domainMin=0)
    x = x.axis(
        labelExpr=TOKENS,
        grid=False,
        tickCount=6,
        tickColor=HAIRLINE,
        domainColor="#afb8c1",
    )
    y = alt.Y("loss:Q").title(None).scale(domain=[low, high], nice=False, zero=False)
    y = y.axis(tickCount=6, gridColor=HAIRLINE, domain=False, ticks=False, labelPadding=6)
    crowded = len(arms) > 4
    line = {"x": x, "y": y, "color": colour, "strokeDash": dash}
    thin = (
        alt.Chart(alt.NamedData("seeds"))
        .mark_line(strokeWidth=1, opacity=0.25 if crowded else 0.45, clip=True)
        .encode(**line, detail="seed:N")
    )
    bold = (
        alt.Chart(alt.NamedData("means"))
        .mark_line(strokeWidth=1.75 if crowded else 2.5, clip=True)
        .encode(**line)
    )
    marks = (
        alt.Chart(alt.NamedData("marks"))
        .mark_point(size=70, filled=True, opacity=1, angle=45)
        .encode(x=x, y=y, color=colour, shape=alt.Shape("mark:N", scale=None))
    )
    names = (
        alt.Chart(alt.NamedData("names"))
        .mark_text(align="left", baseline="middle", dx=7, fontSize=12, fontWeight="bold")
        .encode(x=x, y=y, color=colour, text="arm:N")
    )
    drawn: Any = alt.layer(thin, bold, marks, names, height=HEIGHT, width=WIDTH)
    scored, scored_means = validation_of(plan, runs)
    below = dict[str, list[dict[str, Any]]]()
    if scored:
        panel = _validation(line | {"y": y.scale(nice=True, zero=False)}, crowded=crowded)
        drawn = alt.vconcat(drawn, panel, spacing=24)
        below["scored"] = [row for curve in scored for row in _rows(curve)]
        below["scored_means"] = [row for mean in scored_means for row in _rows(mean)]
    return _finished(
        drawn,
        plan,
        notes=_notes(plan, curves, cut),
        seeds=[row for curve in curves for row in _rows(curve)],
        means=[row for mean in means for row in _rows(mean)],
        marks=[_last(c, high) | {"mark": "cross"} for c in curves if not c.finished]
        + [_last(m, high) | {"mark": "circle"} for m in means if len(m.tokens) == 1],
        names=_names(means, low, high),
        **below,
    )


def _validation(line: dict[str, Any], *, crowded: bool) -> Any:
    """The panel of validation curves: each point is a score."""
    seeds = alt.Chart(alt.NamedData("scored")).encode(**line, detail="seed:N")
    means = alt.Chart(alt.NamedData("scored_means")).encode(**line)
    title = alt.TitleParams(
        text="validation: bits per byte · scored by the lab",
        anchor="start",
        frame="group",
        fontSize=11.5,
        fontWeight="normal",
        color=QUIET,
    )
    return alt.layer(
        seeds.mark_line(strokeWidth=1, opacity=0.25 if crowded else 0.45),
        means.mark_line(
            strokeWidth=1.75 if crowded else 2.5, point=alt.OverlayMarkDef(filled=True, size=30)
        ),
        height=HEIGHT * 2 // 3,
        width=WIDTH,
        title=title,
    )


def curves_of(plan: record.Plan, runs: Sequence[record.Run]) -> tuple[list[Curve], list[Curve]]:
    """The curve of each run that has one, and each arm's mean, in the plan's order."""
    return _with_means(plan, [_curve(plan, run, run.curve) for run in runs if run.curve])


def validation_of(plan: record.Plan, runs: Sequence[record.Run]) -> tuple[list[Curve], list[Curve]]:
    """The same of validation curves."""
    points = [(run, [(step, bpb) for step, bpb, _ in run.validation]) for run in runs]
    return _with_means(plan, [_curve(plan, run, of) for run, of in points if of])


def _with_means(plan: record.Plan, curves: list[Curve]) -> tuple[list[Curve], list[Curve]]:
    by_arm = {arm: [curve for curve in curves if curve.arm == arm] for arm in plan.arms}
    return curves, [_mean(these) for these in by_arm.values() if these]


def png(spec: dict[str, Any], scale: float = 2) -> bytes:
    """The chart as PNG, with `scale` pixels per pixel of the description."""
    return vl_convert.vegalite_to_png(spec, scale=scale, ppi=72)


def svg(spec: dict[str, Any]) -> str:
    """The chart as an SVG document."""
    drawing = vl_convert.vegalite_to_svg(spec)
    # Clip paths get new numbers in every drawing; equal charts must have equal bytes.
    numbers: dict[str, int] = {}
    return re.sub(
        r'(id="clip|url\(#clip)(\d+)',
        lambda found: found[1] + str(numbers.setdefault(found[2], len(numbers))),
        drawing,
    )


def _curve(plan: record.Plan, run: record.Run, points: Sequence[tuple[int, float]]) -> Curve:
    arm = plan.arms[run.arm]
    return Curve(
        arm=run.arm,
        seed=run.seed,
        finished=run.state == "finished",
        tokens=tuple(arm.tokens_until(step) for step, _ in points),
        loss=tuple(loss for _, loss in points),
    )


def _mean(curves: list[Curve]) -> Curve:
    """The mean over an arm's finished curves (over all, if none is finished), where all of them
    have values."""
    whole = [curve for curve in curves if curve.finished] or curves
    begin, end = max(c.tokens[0] for c in whole), min(c.tokens[-1] for c in whole)
    at = sorted({tokens for c in whole for tokens in c.tokens if begin <= tokens <= end})
    if not at:  # curves without a common range
        return whole[0]
    loss = np.mean([np.interp(at, curve.tokens, curve.loss) for curve in whole], axis=0)
    return Curve(whole[0].arm, -1, True, tuple(at), tuple(map(float, loss)))


def _rows(curve: Curve) -> list[dict[str, Any]]:
    return [
        {"arm": curve.arm, "seed": curve.seed, "tokens": tokens, "loss": round(loss, 5)}
        for tokens, loss in zip(curve.tokens, curve.loss, strict=True)
    ]


def _last(curve: Curve, high: float) -> dict[str, Any]:
    return {"arm": curve.arm, "tokens": curve.tokens[-1], "loss": min(curve.loss[-1], high)}


def _names(means: list[Curve], low: float, high: float) -> list[dict[str, Any]]:
    """A name at the end of each bold line, moved apart where lines end close together."""
    ends = sorted((mean.loss[-1], mean.arm) for mean in means[:MOST_NAMES])
    steps = NAME_HEIGHT * (high - low) / HEIGHT * np.arange(len(ends))
    # The nearest positions in the same order with at least a name's height between them.
    heights = isotonic_regression([end for end, _ in ends] - steps).x
    heights = np.clip(heights, low, max(low, high - steps[-1])) + steps
    right = max(mean.tokens[-1] for mean in means)
    return [
        {"arm": arm, "tokens": right, "loss": round(float(height), 5)}
        for (_, arm), height in zip(ends, heights, strict=True)
    ]


def _notes(plan: record.Plan, curves: list[Curve], cut: int) -> list[str]:
    seeds = len({curve.seed for curve in curves})
    lines = f"bold: mean over {seeds} seeds, thin: each seed · " if seeds > 1 else ""
    remarks = []
    if not all(curve.finished for curve in curves):
        remarks.append("× a run that did not finish, left out of its arm’s mean")
    if cut:
        remarks.append(f"{cut} {'points lie' if cut > 1 else 'point lies'} above the frame")
    if len(plan.arms) > MOST_NAMES:
        remarks.append(f"the first {MOST_NAMES} of {len(plan.arms)} arms are named")
    return [
        f"training loss in nats per token · {lines}as reported by the job",
        *textwrap.wrap(" · ".join(remarks), 100),
    ]


def _empty(plan: record.Plan) -> dict[str, Any]:
    words = alt.Chart(alt.NamedData("words")).mark_text(color=QUIET, fontSize=13)
    layers = alt.layer(words.encode(text="words:N"), height=60, width=WIDTH)
    return _finished(layers, plan, notes=[], words=[{"words": "No curve was reported."}])


def _finished(
    chart: Any, plan: record.Plan, notes: list[str], **datasets: list[dict[str, Any]]
) -> dict[str, Any]:
    """The card around a chart, and its data. (Altair would check each row, which takes a
    second.)"""
    printable = "".join(c if c.isprintable() else " " for c in plan.title)
    title = textwrap.wrap(printable, 76, max_lines=2, placeholder=" …") or [plan.experiment]
    chart = card(chart, title, notes, frame="group")
    return chart.to_dict() | {"datasets": datasets}


def card(
    chart: Any, title: str | list[str], subtitle: str | list[str], frame: Any = alt.Undefined
) -> Any:
    """A chart in the lab's style: title above it, quiet axes, no frame."""
    words = alt.TitleParams(
        text=title,
        subtitle=subtitle,
        anchor="start",
        frame=frame,
        offset=14,
        fontSize=15,
        fontWeight="bold",
        color=INK,
        subtitleColor=QUIET,
        subtitleFontSize=11.5,
        subtitlePadding=5,
    )
    return (
        chart.properties(
            background="white",
            padding={"left": 16, "right": 16, "top": 14, "bottom": 12},
            title=words,
        )
        .configure(font=FONT)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=QUIET,
            titleColor=QUIET,
            labelFontSize=11,
            titleFontSize=11.5,
            titleFontWeight="normal",
            titlePadding=8,
        )
    )
