"""The pages about other labs' public figures: the rows, forecasts of them, and their audit. They do
not depend on the lab's records."""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from bot.site.base.chart import Chart
from bot.site.base.files import File
from bot.site.charts import scaling_charts
from bot.site.pages.templating import Look
from runner.analysis import public_boards, scaling, speedrun_file
from runner.analysis.public_boards import Axis
from runner.lib.canonical_json import to_json

AXES: dict[Axis, tuple[str, str]] = {
    "model_flops": (
        "Model FLOPs",
        "C is the model FLOPs, by a formula from the model’s shape and the number of tokens.",
    ),
    "training_hardware_flops": (
        "Hardware FLOPs",
        "C is the hardware FLOPs: what the devices could have computed in the time. So a slow run "
        "counts as a large one.",
    ),
    "model_size": ("Parameters", "C is the number of parameters, whatever the training cost."),
}
COMPLAINTS = (  # (where, what, what this lab does about it)
    (
        "openai/parameter-golf, pull request 886",
        "scores of cached n-grams that do not sum to 1; records below 0.5 bits per byte were void",
        "check probabilities: the lab turns logits into probabilities itself",
    ),
    (
        "openai/parameter-golf",
        "gates that read ahead in the middle of a name, and targets inside the key of a hash table",
        "check prefixes: secret positions are asked again without what comes after",
    ),
    (
        "modded-nanogpt, pull request 358",
        "one seed was used again and again, so that p was too small",
        "check seeds: each seed has to give another model",
    ),
    (
        "nanochat, pull requests 733 and 807",
        "the best draw as a headline; over 20 seeds the score was 0.2288 to 0.2497",
        "check seeds: the track says how many, and the mean over all of them counts",
    ),
    (
        "modded-nanogpt, pull request 360",
        "a table of 84.6 million rows in a change of 194,000 lines",
        "the board shows the bytes of weights, code and tables, and the lines that changed",
    ),
    (
        "nanochat",
        "maintainers cannot run entries again",
        "the lab trains every entry itself, and anybody may ask for /reproduce",
    ),
    (
        "karpathy/autoresearch, pull request 560",
        "nobody measured the noise before they believed an improvement",
        "a record has to be better at p < 0.05, and the board says how much was tried before",
    ),
)
REACH = 0.04  # relative error at the ends of a bar


def files(look: Look) -> Iterator[File]:
    """`history.html`, `scaling.html`, `audit.html` and their JSON below `api/`."""
    told = look.told
    yield File("api/history.json", lambda: to_json(_rows()), told)
    yield look.page(
        "history.html",
        "history.html",
        told,
        source=public_boards.source(),
        rows=_rows(),
        complaints=COMPLAINTS,
    )
    for axis in AXES:
        yield File(f"scaling.{axis}.js", partial(_chart_source, axis), told)
    yield File("api/scaling.json", lambda: to_json({axis: _twin(axis) for axis in AXES}), told)
    yield File("scaling.html", lambda: _scaling(look), told)
    yield File("api/audit.json", lambda: to_json([vars(finding) for finding in _findings()]), told)
    yield File("audit.html", lambda: _audit(look), told)


def _rows() -> list[dict[str, Any]]:
    """Marin's rows, best first."""
    return sorted(map(dict, public_boards.rows()), key=lambda row: row[public_boards.QUALITY])


@cache
def _chart(axis: Axis) -> Chart:
    return scaling_charts.chart(scaling_charts.side(axis), AXES[axis][0])


def _chart_source(axis: Axis) -> str:
    return _chart(axis).source()


def _scaling(look: Look) -> str:
    sides = [scaling_charts.side(axis) for axis in AXES]
    return look.render(
        "scaling.html",
        "scaling.html",
        source=public_boards.source(),
        stated=scaling.FLOOR,
        boards=[(public_boards.tested(axis), *words) for axis, words in AXES.items()],
        axes=AXES,
        chart=_chart,
        sides=sides,
        changed=scaling_charts.changed(sides),
        error_bar=error_bar,
    )


def _findings() -> list[speedrun_file.Finding]:
    return speedrun_file.audit_rows(public_boards.rows())


def _audit(look: Look) -> str:
    findings = _findings()
    return look.render(
        "audit.html",
        "audit.html",
        source=public_boards.source(),
        rows=len(public_boards.rows()),
        impossible=[finding for finding in findings if finding.kind == "impossible"],
        odd=[finding for finding in findings if finding.kind == "odd"],
    )


def error_bar(error: float) -> str:
    """The position of a relative error on a scale from −REACH to REACH, as CSS."""
    end = 50 + 50 * max(-1.0, min(1.0, error / REACH))
    return f"--a:{min(end, 50):.1f}%;--b:{abs(end - 50):.1f}%"


def _twin(axis: Axis) -> dict[str, Any]:
    board = public_boards.tested(axis)
    return {
        "floor": board.floor,
        "median_error_pooled_floor": board.median_pooled,
        "median_error_stated_floor": board.median_pinned,
        "groups": [vars(group) for group in board.groups],
    }
