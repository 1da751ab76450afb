"""The pages about other labs' public figures: forecasts of them, and their audit. The audit's page
also has entries to this lab; otherwise these pages do not depend on the lab's records."""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from bot.site.base.chart import Chart
from bot.site.base.files import File, made_from
from bot.site.charts import scaling_charts
from bot.site.facts.memory import listed
from bot.site.pages.templating import Look
from runner.analysis import public_boards, scaling, speedrun_file
from runner.analysis.public_boards import Axis
from runner.history import results_entries
from runner.lib.canonical_json import to_json
from runner.store.store import Store

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
REACH = 0.04  # relative error at the ends of a bar


def files(look: Look, store: Store) -> Iterator[File]:
    """`scaling.html`, `audit.html` and their JSON below `api/`."""
    told = look.told
    entered = made_from(told, *(seen for _, seen in listed(store, "entries")))
    for axis in AXES:
        yield File(f"scaling.{axis}.js", partial(_chart_source, axis), told)
    yield File("api/scaling.json", lambda: to_json({axis: _twin(axis) for axis in AXES}), told)
    yield File("scaling.html", lambda: _scaling(look), told)
    yield File("api/audit.json", lambda: to_json([vars(finding) for finding in _findings()]), told)
    yield File("audit.html", lambda: _audit(look, store), entered)


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


def _audit(look: Look, store: Store) -> str:
    findings = _findings()
    return look.render(
        "audit.html",
        "audit.html",
        source=public_boards.source(),
        rows=len(public_boards.rows()),
        impossible=[finding for finding in findings if finding.kind == "impossible"],
        odd=[finding for finding in findings if finding.kind == "odd"],
        rules=speedrun_file.RULES,
        checked=results_entries.checked(store),
        plain=results_entries.plain,
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
