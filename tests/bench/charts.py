"""The pictures of the benchmarks: losses of both sides together, since speed at another loss is no
speed. Drawn like the lab's own (`runner.publish.charts`), with its colours and its way to PNG and
SVG."""

from typing import Any

import altair as alt

from runner.publish.charts import COLOURS, HAIRLINE, INK, QUIET, card
from runner.publish.charts import png as png
from runner.publish.charts import svg as svg

WIDTH, HEIGHT = 380, 250


def losses(workload: str, found: dict[str, Any]) -> dict[str, Any]:
    """Training losses of the engine and of PyTorch over steps, and over seconds of training."""
    model, sides = found["model"], found["sides"]
    tokens = found["train"]["train_batch_size"] * model["seq_len"]
    names = [name for name in ("engine", "eager", "compile") if name in sides]
    rows = []
    for name in names:
        paces = sorted(sides[name]["tokens_per_second"])
        seconds = tokens / paces[len(paces) // 2]
        rows += [
            {"side": LABELS[name], "step": i, "seconds": i * seconds, "loss": loss}
            for i, loss in enumerate(sides[name]["losses"], start=1)
        ]
    return _card(
        _lines(rows, "step", "step", "training loss, nats per token")
        | _lines(rows, "seconds", "seconds at the median pace, without compilation", None),
        f"The same losses, sooner: {workload} parameters on two CPU cores",
        f"width {model['hidden_dim']}, {model['num_layers']} layers, vocabulary "
        f"{model['vocab_size']:,}, {tokens:,} tokens a step, float32, AdamW",
    )


LABELS = {
    "engine": "engine",
    "eager": "PyTorch, eager",
    "compile": "PyTorch, torch.compile",
    "eager, heap kept": "PyTorch, eager",
    "compile, heap kept": "PyTorch, torch.compile",
}


def _lines(rows: list[dict[str, Any]], x: str, title: str, y_title: str | None) -> alt.Chart:
    names = list(dict.fromkeys(row["side"] for row in rows))
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(clip=True)
        .encode(
            x=alt.X(f"{x}:Q").title(title).axis(grid=False, tickCount=6).scale(nice=False),
            y=alt.Y("loss:Q")
            .title(y_title)
            .scale(zero=False)
            .axis(tickCount=6, gridColor=HAIRLINE, domain=False, ticks=False, labelPadding=6),
            # The first line is wide and whole and the others narrow and dashed, so that lines
            # which lie on each other are all seen.
            color=alt.Color("side:N")
            .scale(domain=names, range=list(COLOURS[: len(names)]))
            .legend(orient="bottom", title=None, labelLimit=300),
            strokeWidth=alt.StrokeWidth("side:N", legend=None).scale(
                domain=names, range=[4, 2, 2][: len(names)]
            ),
            strokeDash=alt.StrokeDash("side:N", legend=None).scale(
                domain=names, range=[[1, 0], [7, 5], [2, 4]][: len(names)]
            ),
        )
        .properties(width=WIDTH, height=HEIGHT)
    )


def _card(chart: Any, title: str, subtitle: str) -> dict[str, Any]:
    whole = card(chart, title, subtitle)
    return whole.configure_legend(labelColor=INK, labelFontSize=12, symbolSize=300).to_dict()


def validation(sides: dict[str, Any], goal: float) -> dict[str, Any]:
    """Validation losses on Shakespeare over steps and over seconds of training."""
    rows = []
    for name, side in sides.items():
        pace = sorted(side["seconds"])[len(side["seconds"]) // 2] / side["seconds"][0]
        rows += [
            {"side": LABELS[name], "step": step, "seconds": seconds * pace, "loss": loss}
            for step, seconds, loss in side["curve"]
        ]
    rule = (
        alt.Chart(alt.Data(values=[{"loss": goal}]))
        .mark_rule(color=QUIET, strokeDash=[2, 3])
        .encode(y="loss:Q")
    )
    return _card(
        (_lines(rows, "step", "step", "validation loss, nats per character") + rule)
        | (_lines(rows, "seconds", "seconds of training", None) + rule),
        "Characters of Shakespeare on two CPU cores",
        "4 layers of width 128, context 64, batch 12, 2,000 steps of AdamW, float32; dotted: 1.88",
    )


KINDS = {"forward": 0, "backward": 1, "inputs": 4, "weights": 2}  # colours


def pipeline(found: dict[str, Any]) -> dict[str, Any]:
    """Bubbles of two stages over the parts of a batch, measured and simulated; and below what each
    of four stages does, as simulated."""
    rows = [
        {**{key: row[key] for key in ("schedule", "parts")}, "how": how, "bubble": row[how]}
        for row in found["two_stages"]
        for how in ("measured", "simulated")
    ]
    names = list(dict.fromkeys(row["schedule"] for row in rows))
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("parts:O").title("parts of a batch").axis(labelAngle=0, grid=False),
        y=alt.Y("bubble:Q")
        .title("bubble")
        .axis(format="%", tickCount=5, gridColor=HAIRLINE, domain=False, ticks=False),
        color=alt.Color("schedule:N")
        .scale(domain=names, range=list(COLOURS[: len(names)]))
        .legend(None),
    )
    points = base.transform_filter("datum.how == 'measured'").mark_point(filled=True, size=70)
    lines = base.transform_filter("datum.how == 'simulated'").mark_line(strokeDash=[4, 3])
    bubbles = (
        (lines + points)
        .properties(width=190, height=140)
        .facet(column=alt.Column("schedule:N", sort=names).title(None))
    )
    return _card(
        alt.vconcat(bubbles, _rows_of_stages(found)).resolve_scale(color="independent"),
        "Two stages on two pinned cores: measured (points) and simulated (dashed)",
        "below: four stages and eight parts, simulated with the times measured of two",
    )


def _rows_of_stages(found: dict[str, Any]) -> alt.Chart:
    from engine.config.schedules import SCHEDULES
    from tests.bench.pipeline import with_more

    spans = [
        {
            **{"schedule": schedule, "stage": number, "kind": span.action.kind},
            **{"from": span.start, "to": span.end},
        }
        for schedule in SCHEDULES
        for number, row in enumerate(with_more(found["two_stages"], schedule, 4, 8).spans)
        for span in row
    ]
    return (
        alt.Chart(alt.Data(values=spans))
        .mark_bar(stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X("from:Q").title("seconds").axis(grid=False),
            x2="to:Q",
            y=alt.Y("stage:O").title(None),
            color=alt.Color("kind:N")
            .scale(domain=list(KINDS), range=[COLOURS[at] for at in KINDS.values()])
            .legend(orient="bottom", title=None),
        )
        .properties(width=840, height=70)
        .facet(row=alt.Row("schedule:N", sort=list(SCHEDULES)).title(None))
    )
