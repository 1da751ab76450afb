"""The page of forecasts, and its JSON."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import altair as alt

from bot.site.base.chart import Chart, columns, rounded
from bot.site.base.drawn import Axis, Drawing, Mark
from bot.site.base.files import File, made_from
from bot.site.base.rows import SHOWN, Rows
from bot.site.charts.curves import layered
from bot.site.facts import forecasts, people, sealed
from bot.site.facts.lab import Lab
from bot.site.pages.templating import Look
from runner.analysis.calibration import Bin, Calibration
from runner.lib.canonical_json import to_json


def files(every: Sequence[people.Member], facts: Lab, look: Look) -> Iterator[File]:
    """`forecasts.html` and `api/forecasts.json`."""
    told, of_the_lab = forecasts.forecasts(facts), forecasts.foretold(facts)
    made = made_from(look.told, facts.told)
    yield File("api/foretold.json", lambda: to_json(forecasts.twin(of_the_lab)), made)
    yield File("api/forecasts.json", lambda: to_json([_forecast(one) for one in told]), made)
    rows = Rows("forecasts", "predictions", told, keys, "forecast_row.html", {})
    yield from rows.files(look.pages, made)
    everybody = forecasts.of_the_lab(told)
    chart = partial(reliability_chart, everybody)
    if everybody.bins:
        yield File("forecasts.reliability.js", lambda: chart().source(), made)
    yield look.page(
        "forecasts.html",
        "forecasts.html",
        made,
        rows=rows,
        chart=chart,
        told=told,
        people=[one for one in every if one.forecasts][:SHOWN],
        sealed_ones=sealed.sealed_ones(),
        all=everybody,
        foretold=of_the_lab,
        coverage=forecasts.coverage(of_the_lab),
        reliability=reliability,
    )


def keys(forecast: forecasts.Forecast) -> dict[str, Any]:
    """A prediction's keys for sorting and filtering."""
    verdict = forecast.verdict
    words = (verdict.prediction.sentence, forecast.entry.plan.title, forecast.author)
    return {
        "confidence": verdict.prediction.confidence,
        "author": forecast.author,
        "outcome": verdict.outcome,
        "text": " ".join(words).lower(),
    }


def reliability_chart(calibration: Calibration) -> Chart:
    """Confidence against the fraction that came true, with its interval."""
    bins = [
        {
            "said": rounded(bin.confidence),
            "true": rounded(bin.share),
            "low": rounded(bin.interval[0]),
            "high": rounded(bin.interval[1]),
            "n": bin.n,
        }
        for bin in calibration.bins
    ]
    points = [(bin["said"], bin["true"]) for bin in bins]
    spread = [(bin["said"], bin["low"], bin["high"]) for bin in bins]
    perfect = [(0.0, 0.0), (1.0, 1.0)]
    told = [f"mean confidence {x:.0%}, {y:.0%} confirmed" for x, y in points]
    return Chart(
        name="reliability",
        title="Confidence and the share that was confirmed",
        words=f"Reliability diagram: {'; '.join(told)}.",
        spec=_reliability_spec(),
        data={"bins": columns(bins), "perfect": {"said": [0, 1], "true": [0, 1]}},
        script="forecasts.reliability.js",
        table="bins",
        columns={
            "said": "Mean confidence",
            "true": "Confirmed",
            "low": "95 % interval from",
            "high": "to",
            "n": "Predictions",
        },
        drawing=Drawing(
            Axis("Confidence"),
            Axis("Confirmed"),
            [Mark(perfect, colour=6, faint=True), Mark(spread, "whiskers"), Mark(points, "dots")],
        ),
        logs=(),
        note="On the diagonal, confidence and result agree. Below it, people were too confident. "
        "The vertical lines are 95 % intervals of the share.",
    )


@cache
def _reliability_spec() -> Mapping[str, Any]:
    scale = alt.Scale(domain=[0, 1])
    x = alt.X("said:Q").title("Confidence").scale(scale).axis(format="%")
    y = alt.Y("true:Q").title("Confirmed").scale(scale).axis(format="%")
    perfect = alt.Chart(alt.NamedData("perfect")).mark_line(
        strokeDash=[4, 3], strokeWidth=1, color=alt.expr("quiet")
    )
    bins = alt.Chart(alt.NamedData("bins"))
    spread = bins.mark_rule(color=alt.expr("first")).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    dots = bins.mark_point(filled=True, opacity=1, color=alt.expr("first")).encode(
        x=x,
        y=y,
        size=alt.Size("n:Q").legend(None).scale(range=[40, 220]),
        tooltip=[
            alt.Tooltip("said:Q", format=".0%", title="confidence"),
            alt.Tooltip("true:Q", format=".0%", title="confirmed"),
            alt.Tooltip("n:Q", title="predictions"),
        ],
    )
    return layered(perfect.encode(x=x, y=y), spread, dots, height=300)


def _forecast(forecast: forecasts.Forecast) -> dict[str, Any]:
    prediction = forecast.verdict.prediction
    return {
        "prediction": prediction.sentence,
        "confidence": prediction.confidence,
        "outcome": forecast.verdict.outcome,
        "author": forecast.author,
        "counts": not forecast.not_counted,
        "execution": forecast.entry.execution.id,
        "at": forecast.entry.execution.at.isoformat(),
    }


def reliability(bin: Bin) -> str:
    """A fraction and its interval as positions between 0 and 1, as CSS."""
    low, high = bin.interval
    return f"--a:{100 * low:.1f}%;--b:{100 * (high - low):.1f}%;--m:{100 * bin.share:.1f}%"
