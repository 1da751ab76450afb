"""The chart of cost against quality, in Vega-Lite, and what counts as cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import altair as alt

from bot.site.board import Row
from bot.site.curves import plain

QUALITY = "Bits per byte, lower is better"


@dataclass(frozen=True)
class Cost:
    """Something that a run spends."""

    title: str
    of: Callable[[Row], float | None]


COSTS: Mapping[str, Cost] = {
    "flops": Cost("Model FLOPs", lambda row: row.planned.model_flops),
    "hardware_flops": Cost("Hardware FLOPs", lambda row: row.hardware_flops),
    "tokens": Cost("Tokens", lambda row: row.planned.tokens),
    "parameters": Cost("Parameters", lambda row: row.planned.parameters),
}


@cache
def frontier_spec() -> Mapping[str, Any]:
    """Rows with their spread, and the frontier as steps."""
    x = alt.X("flops:Q").title(COSTS["flops"].title).scale(type="log", nice=False, padding=12)
    x = x.axis(format=".0e", tickCount=6, labelOverlap=True)
    y = alt.Y("mean:Q").title(QUALITY).scale(zero=False, padding=10)
    rows = alt.Chart(alt.NamedData("rows"))
    spread = rows.mark_rule(opacity=0.5, color=alt.expr("quiet")).encode(
        x=x, y=alt.Y("low:Q").scale(zero=False), y2="high:Q"
    )
    certain = alt.datum.low != alt.datum.high
    dots = rows.mark_point(size=45, strokeWidth=1.5, filled=False).encode(
        x=x,
        y=y,
        color=alt.Color("tier:N").title(None).legend(orient="top", offset=30),
        fillOpacity=alt.when(certain).then(alt.value(0.85)).otherwise(alt.value(0)),
        fill=alt.Fill("tier:N").title(None).legend(orient="top", offset=30),
        tooltip=[
            "arm:N",
            "experiment:N",
            alt.Tooltip("mean:Q", format=".4f", title="bits per byte"),
            alt.Tooltip("low:Q", format=".4f", title="mean − spread"),
            alt.Tooltip("high:Q", format=".4f", title="mean + spread"),
            alt.Tooltip("flops:Q", format=".2e", title="model FLOPs"),
            "seeds:Q",
        ],
    )
    edge = (
        alt.Chart(alt.NamedData("frontier"))
        .mark_line(
            interpolate="step-after", strokeWidth=2, color=alt.expr("second"), invalid="filter"
        )
        .encode(x=x, y=y)
    )
    return plain(alt.layer(spread, edge, dots, height=340, width="container"))
