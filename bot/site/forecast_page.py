"""The page of forecasts, and its twin for machines."""

from collections.abc import Iterator
from typing import Any

from bot.site import forecasts
from bot.site.board import Lab
from bot.site.files import File
from bot.site.templating import Look
from runner.analysis.calibration import Bin
from runner.store import to_json


def files(facts: Lab, look: Look) -> Iterator[File]:
    """`forecasts.html` and `api/forecasts.json`."""
    told = forecasts.forecasts(facts.entries)
    yield File("api/forecasts.json", lambda: to_json([_forecast(one) for one in told]))
    yield look.page(
        "forecasts.html",
        "forecasts.html",
        told=told,
        people=forecasts.forecasters(told),
        all=forecasts.of_the_lab(told),
        reliability=reliability,
    )


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
    """Where the interval of a share and the share itself lie between 0 and 1, as CSS."""
    low, high = bin.interval
    return f"--a:{100 * low:.1f}%;--b:{100 * (high - low):.1f}%;--m:{100 * bin.share:.1f}%"
