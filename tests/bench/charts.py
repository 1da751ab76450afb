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
