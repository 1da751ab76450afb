"""The step that compares scores of models: `compare.json`, a table (`table.md`) and a chart
(`chart.svg`) with intervals of 95 %. *By seeds* is of the mean over an arm's seeds, *by items* over
what was scored (windows, questions); `runner.analysis.score_table` says what each means."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from runner.analysis.estimates import interval_of
from runner.analysis.score_table import around
from runner.lib import bounds, untrusted_files
from runner.schema import metrics
from runner.worker.selection import paired_auc
from runner.worker.selection.paired_auc import HeldOut

MAX_CHARTED = 24  # metrics
NONE = "–"
DIFFERENCE = "labels/auc_difference"  # of two classifiers, paired by document
COLOURS = {"by seeds": "#0072b2", "by items": "#d55e00", "none": "#666666"}

Interval = tuple[float, float]


class Row(NamedTuple):
    """One arm, or one model, by one metric."""

    metric: str
    model: str
    mean: float
    runs: int
    by_seeds: Interval | None
    by_items: Interval | None
    chance: float | None
    better: str | None


class NothingToCompare(ValueError):
    """The inputs have no scores that were asked for; the message says what they have."""


def compare(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Compare the scores in all inputs. Raises NothingToCompare, Refused and ValueError."""
    found = rows({name: measured(folder) for name, folder in inputs.items()})
    found += paired({name: paired_auc.tested(folder) for name, folder in inputs.items()})
    wanted = config["metrics"]
    kept = [row for row in found if not wanted or row.metric in wanted]
    missing = [one for one in wanted if one not in {row.metric for row in found}]
    if missing or not kept:
        known = ", ".join(dict.fromkeys(row.metric for row in found)) or "none"
        raise NothingToCompare(
            f"no input has the metric {missing[0] if missing else 'that is asked for'}; they have "
            f"{known}; change `metrics`"
        )
    (out / "compare.json").write_text(json.dumps([row._asdict() for row in kept], indent=1) + "\n")
    (out / "table.md").write_text(table(kept), encoding="utf-8")
    import vl_convert  # slow to import

    (out / "chart.svg").write_text(vl_convert.vegalite_to_svg(chart(kept)), encoding="utf-8")


def measured(folder: Path) -> dict[str, dict[str, Any]]:
    """{label: {metric: score}} of a step that measured models."""
    data = untrusted_files.read(folder.resolve() / metrics.MEASURED, bounds.MOST_KEPT)
    return dict(bounds.plain(data)) if data is not None else {}


def rows(inputs: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[Row]:
    """A row for each metric and arm, metric by metric. The name of the input is in front of an arm
    where several inputs have the same metric of an arm with this name. Pure."""
    values: dict[str, dict[tuple[str, str], list[Mapping[str, Any]]]] = {}
    for name, labels in inputs.items():
        for label, of in labels.items():
            for metric, score in of.items():
                values.setdefault(metric, {}).setdefault((name, _arm(label)), []).append(score)
    found = []
    for metric, arms in values.items():
        known = [arm for _, arm in arms]
        for (name, arm), scores in arms.items():
            model = arm if arm and known.count(arm) == 1 else f"{name} {arm}".strip()
            found.append(_row(metric, model, scores))
    return found


def paired(tests: Mapping[str, HeldOut | None]) -> list[Row]:
    """A row for each two classifiers that were tested on the same documents. Pure."""
    tested = {name: test for name, test in tests.items() if test}
    return [
        Row(
            metric=DIFFERENCE,
            model=" minus ".join(one.names),
            mean=one.value,
            runs=1,
            by_seeds=None,
            by_items=one.interval,
            chance=0.0,
            better="higher",
        )
        for one in paired_auc.differences(tested)
    ]


def _row(metric: str, model: str, scores: list[Mapping[str, Any]]) -> Row:
    every = [float(score["value"]) for score in scores]
    errors = [score["standard_error"] for score in scores if score["standard_error"] is not None]
    return Row(
        metric=metric,
        model=model,
        mean=fmean(every),
        runs=len(every),
        by_seeds=interval_of(every) if len({*every}) > 1 else None,
        by_items=around(fmean(every), fmean(errors)) if len(errors) == len(every) else None,
        chance=scores[0].get("chance"),
        better=metrics.better(metric),
    )


def _arm(label: str) -> str:
    return ",".join(part for part in label.split(",") if not part.startswith("seed="))


def table(rows: Iterable[Row]) -> str:
    """Markdown. Pure."""
    lines = [
        "| metric | model | mean | runs | 95 % by seeds | 95 % by items | chance | better |",
        "| --- | --- | ---: | ---: | --- | --- | ---: | --- |",
    ]
    for row in rows:
        chance = NONE if row.chance is None else f"{row.chance:.4g}"
        intervals = " | ".join(_words(one) for one in (row.by_seeds, row.by_items))
        lines.append(
            f"| `{row.metric}` | `{row.model}` | {row.mean:.4f} | {row.runs} | {intervals} | "
            f"{chance} | {row.better or NONE} |"
        )
    return "\n".join(lines) + "\n"


def _words(interval: Interval | None) -> str:
    return NONE if interval is None else f"{interval[0]:.4f} to {interval[1]:.4f}"


def chart(rows: Iterable[Row]) -> dict[str, Any]:
    """Vega-Lite: a panel for each of the first metrics, a point for each model, with its interval
    by seeds or, for a single run, by items. Pure."""
    panels: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        interval = row.by_seeds or row.by_items
        kind = "by seeds" if row.by_seeds else "by items" if row.by_items else "none"
        low, high = interval or (row.mean, row.mean)
        point = {"model": row.model, "mean": row.mean, "low": low, "high": high, "interval": kind}
        panels.setdefault(row.metric, []).append(point)
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "vconcat": [_panel(*one) for one in list(panels.items())[:MAX_CHARTED]],
    }


def _panel(metric: str, points: list[dict[str, Any]]) -> dict[str, Any]:
    y = {"field": "model", "type": "nominal", "title": None, "sort": None}
    axis = {"type": "quantitative", "scale": {"zero": False}}
    scale = {"domain": list(COLOURS), "range": list(COLOURS.values())}
    colour = {"field": "interval", "type": "nominal", "scale": scale, "title": "95 % interval"}
    better = metrics.better(metric)
    title = metric + (f" ({better} is better)" if better else "")
    return {
        "title": {"text": title, "anchor": "start"},
        "width": 420,
        "height": {"step": 22},
        "data": {"values": points},
        "encoding": {"y": y, "color": colour},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": {"field": "low", **axis, "title": None}, "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60},
                "encoding": {"x": {"field": "mean", **axis, "title": None}},
            },
        ],
    }
