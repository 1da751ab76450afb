"""Live pages: an execution as it is now at `/live/<execution>`, and each of its runs at
`/live/<execution>/<run>`: the pages of the site, drawn from the records and from what jobs report
while they run.

Pages are cached for some seconds, so many viewers cost no more than one. It asks neither GitHub nor
Ray, so it needs no credentials; texts are searched for secrets all the same.
"""

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from bot.site.base.chart import Chart, taken
from bot.site.base.drawn import short
from bot.site.charts import curves, job_charts, provenance_drawn
from bot.site.facts.entries import Entry, read_entry
from bot.site.pages import executions, runs
from bot.site.pages.templating import Look
from runner.analysis.comparability import scored_on
from runner.execution.progress import RunProgress, together
from runner.history import provenance, step_runs
from runner.lib import format, redact
from runner.schema import record
from runner.schema.record import run_name
from runner.store.store import Store

SECONDS = 5  # for which a page is cached, and after which it reloads
MAX_KEPT = 64  # executions whose pages are cached
NAME = re.compile(r"x[0-9a-f]{16}")  # as `record.execution_id` makes them


@dataclass(frozen=True)
class Drawn:
    """A page, and the script with its figures, which it reloads."""

    page: str
    script: str


class Live:
    """Live pages of executions."""

    def __init__(
        self,
        store: Store,
        look: Look,
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store, self._look, self._clock, self._today = store, look, clock, today
        self._kept: dict[tuple[str, str | None], tuple[float, Drawn]] = {}
        self._lock = threading.Lock()  # one drawing at a time: the bot has other work

    def drawn(self, execution: str, run: str | None = None) -> Drawn | None:
        """The page of an execution, or of one of its runs, at most SECONDS old; None if it does not
        exist."""
        if not NAME.fullmatch(execution):
            return None
        key = execution, run
        with self._lock:
            at, known = self._kept.get(key, (float("-inf"), None))
            if known and self._clock() - at < SECONDS:
                return known
            entry = now(self._store, execution)
            if entry is None:
                return None
            named = {run_name(one.arm, one.seed): one for one in entry.runs}
            if run is not None and run not in named:
                return None
            one = named[run] if run else None
            found = draw(entry, one, self._look, self._store, self._today())
            self._kept.pop(key, None)
            self._kept[key] = (self._clock(), found)
            while len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            return found


def now(store: Store, execution: str) -> Entry | None:
    """The execution with its recorded runs or, before they are recorded, with what its jobs have
    reported. None: there is no such execution."""
    folder = f"executions/{execution}"
    if record.read(store, f"{folder}/execution", record.Execution) is None:
        return None
    entry = read_entry(store, execution)
    if entry.result:
        return entry
    ends = provenance.step_ends(store, entry.execution)
    found, _ = step_runs.runs(store, entry.execution, ends)
    return entry.model_copy(update={"runs": tuple(found.values())})


def draw(entry: Entry, run: record.Run | None, look: Look, store: Store, today: datetime) -> Drawn:
    """The page of an execution, or of one run with the end of its job's output; and the script."""
    job: dict[str, Chart] = {}
    id, over = entry.execution.id, entry.result is not None
    told: dict[str, Any] = {"state": entry.state, "ended": over}
    if run is None:
        path, parent, lasts = f"live/{id}", "execution.html", f"executions/{id}/index.html"
        drawn, shown = curves.of_execution, entry.runs
        facts: dict[str, Any] = {
            "review": None,
            "strip": executions.strip,
            "knobs": executions.knobs,
            "studies": list,  # they come with the result
            "study_chart": None,
            "scored_on": scored_on,
        }
    else:
        name = run_name(run.arm, run.seed)
        path, parent, lasts = f"live/{id}/{name}", "run.html", f"runs/{id}.{name}.html"
        drawn, shown = partial(curves.of_run, run=run), (run,)
        told["log"] = runs.log_of(store, entry, run)
        facts = {
            "run": run,
            "name": name,
            "config": runs.config(entry.plan, run),
            "nodes": partial(provenance_drawn.of_run, entry, run),
            "drawing": provenance_drawn.drawing,
            "log": lambda: told["log"],
            "samples": lambda: ([], 0, []),  # models are asked when they are trained
            "job": {},
            "taken_home": None,
        }
    told["rows"] = [_row(entry, one) for one in shown]
    told |= _progress(store, entry, shown, today)
    script = f"{path}.js"
    curved = any(one.curve for one in shown)
    chart = None
    if curved:
        ends = _ends(entry, shown)
        chart = replace(drawn(entry), script=script, ends={} if over else ends)
    if run is not None and chart is not None:
        job = job_charts.charts(job_charts.lines_of(store, entry.plan, run), run, script)
        facts["job"] = job
    page = look.render(
        path,
        "live.html",
        entry=entry,
        chart=(lambda: chart) if chart or run else None,
        script=script,
        every=SECONDS,
        told=told,
        parent=parent,
        lasts=lasts,
        runs_below="" if run else f"{id}/",
        **facts,
    )
    source = chart.source(job, live=told) if chart else taken(script, {"live": told})
    return Drawn(redact.clean(page), redact.clean(source))


def _progress(
    store: Store, entry: Entry, shown: Sequence[record.Run], today: datetime
) -> dict[str, Any]:
    """How much of the training is done, from 0 to 1, and facts about it as text, by name."""
    runs = [
        RunProgress(
            arm=one.arm,
            seed=one.seed,
            step=one.steps,
            steps=entry.plan.arms[one.arm].train.num_train_steps,
            loss=None,
            tokens_per_second=one.tokens_per_second,
            ended=one.state != "unfinished",
        )
        for one in shown
    ]
    found, over = together(entry.plan, runs), entry.result is not None
    until = entry.result.at if entry.result else today
    began = next((event for event in entry.events if event.endswith(".started")), None)
    path = f"executions/{entry.execution.id}/{began}"
    started = record.read(store, path, record.Started) if began else None
    left = None if over or started is None else found.seconds_left
    elapsed = (until - started.at).total_seconds() if started else None
    speed = found.tokens_per_second
    return {
        "share": round(found.fraction, 4),
        "facts": {
            "done": f"{found.fraction:.0%}",
            "tokens": f"{short(found.tokens)} of {short(found.of_tokens)}",
            "elapsed": format.duration(max(elapsed, 0.0)) if elapsed is not None else "–",
            "left": format.duration(left) if left is not None else "–",
            "speed": f"{speed:,.0f}" if speed and not over else "–",
        },
    }


def _ends(entry: Entry, shown: Sequence[record.Run]) -> dict[str, float]:
    """Where the training of these runs ends, by the name of an axis."""
    arms = [entry.plan.arms[one.arm] for one in shown]
    ends = {
        "tokens": max(arm.tokens for arm in arms),
        "step": max(arm.train.num_train_steps for arm in arms),
        "flops": max(arm.model_flops or 0 for arm in arms),
    }
    return {name: float(end) for name, end in ends.items() if end}


def _row(entry: Entry, run: record.Run) -> list[str | int | float | None]:
    """Its name, steps, planned steps, newest loss and tokens per second."""
    return [
        run_name(run.arm, run.seed),
        run.steps,
        entry.plan.arms[run.arm].train.num_train_steps,
        round(run.curve[-1][1], 3) if run.curve else None,
        round(run.tokens_per_second) if run.tokens_per_second else None,
    ]


def routes(live: Live) -> APIRouter:
    """`/live/<execution>` and its script."""
    router = APIRouter()
    kept = {"Cache-Control": f"max-age={SECONDS}"}

    @router.get("/live/{execution}.js")
    @router.get("/live/{execution}/{run}.js")
    def script(execution: str, run: str | None = None) -> Response:
        found = live.drawn(execution, run)
        if found is None:
            return Response("There is no such execution.", 404, media_type="text/plain")
        return Response(found.script, headers=kept, media_type="text/javascript")

    @router.get("/live/{execution}")
    @router.get("/live/{execution}/{run}")
    def page(execution: str, run: str | None = None) -> Response:
        found = live.drawn(execution, run)
        if found is None:
            return Response("There is no such execution.", 404, media_type="text/plain")
        return Response(found.page, headers=kept, media_type="text/html")

    return router
