"""The pages of the lab's own sealed forecasts: a list, and for each a page with the forecast, its
basis and its outcome."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from bot.site.base.drawn import Axis, Drawing, Mark
from bot.site.base.files import File, made_from
from bot.site.facts import sealed
from bot.site.facts.sealed import Delphi
from bot.site.pages.templating import Look
from runner.analysis import sealed_forecast
from runner.analysis.forecast import Forecast
from runner.lib.canonical_json import to_json

GRID = 25  # points of the curve


def files(look: Look, folders: Sequence[Path] = sealed.FOLDERS) -> Iterator[File]:
    """A page and its JSON for each seal, and `delphi.html` with a list in this order if there are
    any."""
    all_made, found = [look.told], list(filter(None, map(sealed.read, folders)))
    for one in found:
        there = filter(None, [one.outcome, one.afterwards])
        made = made_from(look.told, one.name, one.words, one.seal, *there)
        all_made.append(made)
        yield File(f"api/delphi/{one.name}.json", partial(_json, one), made)
        yield File(f"delphi/{one.name}.html", partial(_page, one, look), made)
    if found:
        made, ended = made_from(*all_made), [one for one in found if one.outcome]
        twins = {one.name: _twin(one) for one in found}
        yield File("api/delphi.json", lambda: to_json(twins), made)
        yield look.page("delphi.html", "delphi.html", made, found=found, ended=ended)


def _page(delphi: Delphi, look: Look) -> str:
    found, outcome = sealed.others(delphi), delphi.outcome
    errors = [abs(other.error) for other in found if other.error is not None]
    return look.render(
        f"delphi/{delphi.name}.html",
        "foretold.html",
        delphi=delphi,
        others=found,
        nearer=sum(error < abs(outcome.error) for error in errors) if outcome else 0,
        drawing=drawing(delphi),
    )


def _json(delphi: Delphi) -> bytes:
    return to_json(_twin(delphi))


def _twin(delphi: Delphi) -> dict[str, object]:
    return {
        "seal": delphi.seal.model_dump(mode="json"),
        "seal_sha256": delphi.seal_sha256,
        "outcome": delphi.outcome.model_dump(mode="json") if delphi.outcome else None,
        "afterwards": delphi.afterwards.model_dump(mode="json") if delphi.afterwards else None,
        "made_again": delphi.trouble or True,
    }


def drawing(delphi: Delphi) -> Drawing:
    """The ladder, its law with the interval, and the forecast run."""
    seal, said, outcome = delphi.seal, delphi.seal.forecast, delphi.outcome
    grid = np.geomspace(delphi.rungs[0].points[0].model_flops, said.at, GRID).tolist()
    measured = [(said.at, outcome.point.loss)] if outcome else []
    return Drawing(
        Axis("Model FLOPs", log=True),
        Axis("Bits per byte", log=True),
        [
            Mark([(at, *_band(delphi, at)) for at in grid], "band"),
            Mark([(at, said.law.loss(at)) for at in grid]),
            Mark([(point.model_flops, point.loss) for point in seal.points], "dots"),
            Mark([(said.at, said.low, said.high)], "whiskers", 1),
            Mark([(said.at, said.loss)], "dots", 1),
            Mark(measured, "crosses", 2),
        ],
    )


def _band(delphi: Delphi, at: float) -> tuple[float, float]:
    """The interval of the law at this C."""
    said = sealed_forecast.forecast_again(delphi.seal, at)
    assert isinstance(said, Forecast)  # the seal has one
    return said.of_the_law
