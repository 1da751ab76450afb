"""The static site, drawn from the records alone: equal records give equal pages.

Each page is one of `files`, drawn when what it is made from has changed. Links are relative and
nothing is asked of another host, so the site works from file:// and below any path.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import jinja2
from markupsafe import Markup

from bot.site import delphi, entered, forecasts, public, signed, tracks
from bot.site.board import Entry, Group, Lab, Row, read_lab
from bot.site.files import File, is_site, made_from, put
from runner import charts, figures, predictions, record, steps_view
from runner.analysis import verdicts
from runner.analysis.calibration import Bin
from runner.analysis.preregistered import Review
from runner.analysis.scored import scored_on
from runner.signing import Key
from runner.store import Store, to_json

HERE = Path(__file__).parent
MARKS = {"confirmed": "✓", "refuted": "✗", "inconclusive": "○"}


class SiteError(Exception):
    """The site cannot be built as asked; the message says what to change."""


@dataclass(frozen=True)
class SiteSummary:
    """What was built."""

    path: Path
    executions: int
    rows: int
    drawn: tuple[str, ...]  # paths; all others stood there as they are


def build(
    store: Store,
    out: Path,
    *,
    lab: str = "Regatta",
    repository_url: str | None = None,
    key: Key | None = None,
) -> SiteSummary:
    """Bring the folder `out` to hold the whole site, with signed files if there is a `key`.

    `repository_url` is the host's web address (https://github.com); without it the pages name
    issues and pull requests and do not link them. Raises SiteError where `out` holds something
    that is no site.
    """
    out = out.resolve()
    _check(out, repository_url)
    facts = read_lab(store)
    drawn = put(files(facts, store, lab, repository_url, key), out)
    rows = sum(len(group.rows) for group in facts.groups)
    return SiteSummary(out, len(facts.entries), rows, tuple(drawn))


def _check(out: Path, repository_url: str | None) -> None:
    if out.exists() and not out.is_dir():
        raise SiteError(f"{out} is a file; name a folder for the site.")
    if out.is_dir() and not is_site(out):
        raise SiteError(
            f"{out} holds something that is no site of this lab, and building would replace it; "
            "name a folder that is empty or does not exist."
        )
    if repository_url is not None and urlsplit(repository_url).scheme not in ("http", "https"):
        raise SiteError(f"{repository_url!r} is no web address; write https://….")


def files(
    facts: Lab, store: Store, lab: str, repository_url: str | None, key: Key | None
) -> Iterator[File]:
    """Every file of the site, what is linked to before what links to it."""
    pages = _environment(lab, repository_url, bool(key))
    told = made_from(lab, repository_url or "", str(bool(key)))  # on every page
    for path in sorted((HERE / "static").iterdir()):
        yield File(path.name, path.read_bytes, told)
    if key:
        yield from signed.files(store, facts, key)
    yield from public.files(pages, told)
    yield from delphi.files(pages, told)
    for entry in facts.entries:
        yield from _execution(entry, facts.review(entry), pages, told)
    yield from _forecasts(facts, pages)
    yield from tracks.files(facts, pages)
    yield from entered.files(store, facts.entries, pages)
    yield File("api/leaderboard.json", lambda: to_json(leaderboard(facts)))
    yield File("index.html", partial(pages.get_template("index.html").render, root="", facts=facts))


def _execution(
    entry: Entry, review: Review | None, pages: jinja2.Environment, told: str
) -> Iterator[File]:
    folder, chart = f"executions/{entry.execution.id}", None
    if any(run.curve for run in entry.runs):
        chart = "loss.svg"
        yield File(
            f"{folder}/{chart}",
            lambda: charts.svg(charts.loss_curves(entry.plan, entry.runs)),
            made_from(entry.plan, *entry.runs),
        )
    page = pages.get_template("execution.html")
    yield File(
        f"{folder}/index.html",
        partial(page.render, root="../../", entry=entry, review=review, chart=chart),
        made_from(told, entry.state, review.told if review else "", *entry.records),
    )


def _forecasts(facts: Lab, pages: jinja2.Environment) -> Iterator[File]:
    told, of_the_lab = forecasts.forecasts(facts.entries), forecasts.foretold(facts.entries)
    yield File("api/foretold.json", lambda: to_json(forecasts.twin(of_the_lab)))
    yield File("api/forecasts.json", lambda: to_json([_forecast(one) for one in told]))
    page = pages.get_template("forecasts.html")
    yield File(
        "forecasts.html",
        lambda: page.render(
            root="",
            told=told,
            people=forecasts.forecasters(told),
            all=forecasts.of_the_lab(told),
            foretold=of_the_lab,
            coverage=forecasts.coverage(of_the_lab),
            reliability=reliability,
        ),
    )


# ── The twin for machines ────────────────────────────────────────────────────────────────────


def leaderboard(facts: Lab) -> dict[str, Any]:
    """What the front page shows, as plain data."""
    return {
        "groups": [
            {
                "source": group.data.source,
                "tokenizer": group.data.tokenizer,
                "validation_sha256": group.data.validation_sha256,
                "eval_tokens": group.data.eval_tokens,
                "rows": [_row(row) for row in group.rows],
            }
            for group in facts.groups
        ],
        "running": [
            {"execution": e.execution.id, "title": e.plan.title, "state": e.state}
            for e in facts.running
        ],
        "wishlist": [
            {"repository": s.repository, "issue": s.issue, "title": s.title, "seal": s.seal}
            for s in facts.wishlist
        ],
    }


def _row(row: Row) -> dict[str, Any]:
    entry, origin = row.entry, row.entry.execution.origin
    return {
        "rank": row.rank,
        "rank_shared": row.shared,
        "execution": entry.execution.id,
        "page": f"executions/{entry.execution.id}/index.html",
        "title": entry.plan.title,
        "arm": row.arm,
        "eval/bpb": row.mean,
        "spread": row.summary.spread,
        "seeds": row.summary.n,
        "seeds_planned": row.summary.of,
        "figures": {str(seed): entry.figures.get((row.arm, seed)) for seed in entry.plan.seeds},
        "parameters": row.planned.parameters,
        "tokens": row.planned.tokens,
        "model_flops": row.planned.model_flops,
        "execution_seconds": entry.result.seconds if entry.result else None,
        "at": entry.execution.at.isoformat(),
        "repository": origin.repository_name if origin else None,
        "pull": origin.pull if origin else None,
        "commit": origin.commit if origin else None,
        "fingerprint": entry.plan.fingerprint,
        "verdicts": [
            {
                "prediction": verdict.prediction.sentence,
                "confidence": verdict.prediction.confidence,
                "outcome": verdict.outcome,
                "why": verdict.why,
            }
            for verdict in row.verdicts
        ],
    }


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


# ── What templates are given ─────────────────────────────────────────────────────────────────


def _environment(lab: str, repository_url: str | None, signs: bool) -> jinja2.Environment:
    """The templates, with figures as people read them. Strangers' words are escaped."""
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    host = repository_url.rstrip("/") if repository_url else None

    def thread(repository: str | None, kind: str, number: int) -> str | None:
        return f"{host}/{quote(repository)}/{kind}/{number}" if host and repository else None

    def commit(origin: record.Origin) -> str | None:
        return f"{host}/{quote(origin.repository_name)}/commit/{origin.commit}" if host else None

    pages.globals.update(
        lab=lab,
        signs=signs,
        foretold=delphi.read() is not None,
        marks=MARKS,
        thread=thread,
        commit=commit,
        whisker=whisker,
        strip=strip,
        parts=predictions.parts,
        knobs=knobs,
        scored_on=scored_on,
        ordered=steps_view.ordered,
        ended=steps_view.ended,
    )
    pages.filters.update(
        duration=figures.duration,
        flops=figures.flops,
        count=figures.count,
        flow=figures.flow,
        bpb=lambda value: verdicts.figure(value, 4),
        percent=figures.percent,
        spans=spans,
        expected=lambda expect: verdicts.parse_expect(expect).words,
        day=lambda at: at.strftime("%Y-%m-%d"),
        minute=lambda at: at.strftime("%Y-%m-%d %H:%M UTC"),
    )
    return pages


def whisker(row: Row, group: Group) -> str:
    """Where a row's mean and spread lie on its group's common scale, as CSS."""
    low, high = group.ends
    width = (high - low) or 1.0
    begin, end = ((end - low) / width * 100 for end in row.band)
    middle = (row.mean - low) / width * 100
    return f"--a:{begin:.1f}%;--b:{end - begin:.1f}%;--m:{middle:.1f}%"


def reliability(bin: Bin) -> str:
    """Where the interval of a share and the share itself lie between 0 and 1, as CSS."""
    low, high = bin.interval
    return f"--a:{100 * low:.1f}%;--b:{100 * (high - low):.1f}%;--m:{100 * bin.share:.1f}%"


def spans(words: str) -> Markup:
    """A sentence of the lab's, with what stands between backticks as code."""
    parts = words.split("`")
    return Markup().join(
        Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts)
    )


def strip(verdict: record.Verdict) -> dict[str, float] | None:
    """Interval and expected set on a common scale, in percent; None without an interval."""
    if verdict.interval is None or verdict.estimate is None:
        return None
    expected = verdicts.parse_expect(verdict.prediction.expect)
    bounds = [bound for bound in (expected.lower, expected.upper) if math.isfinite(bound)]
    marks = [*verdict.interval, *bounds]
    room = (max(marks) - min(marks)) * 0.25 or 1.0
    low, width = min(marks) - room, max(marks) - min(marks) + 2 * room

    def at(value: float) -> float:
        return round(min(max((value - low) / width, 0.0), 1.0) * 100, 2)

    return {
        "set_from": at(expected.lower),
        "set_to": at(expected.upper),
        "from": at(verdict.interval[0]),
        "to": at(verdict.interval[1]),
        "at": at(verdict.estimate),
    }


def knobs(plan: record.Plan) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Model and train keys: those all arms share, and by arm those that differ."""
    by_arm = {
        name: arm.model.model_dump() | arm.train.model_dump() for name, arm in plan.arms.items()
    }
    first = next(iter(by_arm.values()), {})
    keys = {key: None for arm in by_arm.values() for key in arm}  # not every arm has phases
    differ = [key for key in keys if any(arm.get(key) != first.get(key) for arm in by_arm.values())]
    shared = {key: value for key, value in first.items() if key not in differ}
    return shared, {name: {key: arm.get(key) for key in differ} for name, arm in by_arm.items()}
