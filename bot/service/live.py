"""An execution as it is now, at `/live/<execution>`, and each of its runs, at
`/live/<execution>/<run>`: the pages of the site, drawn from the records and from what its jobs
report while they run.

What is drawn is kept for some seconds, so that many who watch cost what one costs. It asks neither
GitHub nor Ray, so it needs no credential; what looks like one is taken out of it all the same.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from fastapi import APIRouter, Response

from bot.site.base.chart import taken
from bot.site.charts import curves, provenance_drawn
from bot.site.facts.entries import Entry, read_entry
from bot.site.pages import executions, runs
from bot.site.pages.templating import Look
from runner.analysis.comparability import scored_on
from runner.history import provenance, step_runs
from runner.lib import redact
from runner.schema import record
from runner.schema.record import run_name
from runner.store.store import Store

SECONDS = 5  # that a drawing is kept, and after which a page asks again
MOST = 64  # executions whose drawings are kept
NAME = re.compile(r"x[0-9a-f]{16}")  # as `record.execution_id` makes them


@dataclass(frozen=True)
class Drawn:
    """A page, and the script with its figures, which it loads again and again."""

    page: str
    script: str


class Live:
    """Pages of executions as they are now."""

    def __init__(
        self, store: Store, look: Look, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._look, self._clock = store, look, clock
        self._kept: dict[tuple[str, str], tuple[float, Drawn]] = {}
        self._lock = threading.Lock()  # one drawing at a time: the bot has other things to do

    def drawn(self, execution: str, run: str = "") -> Drawn | None:
        """The page of an execution, or of one of its runs, at most SECONDS old; None where there is
        no such one."""
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
            if run and run not in named:
                return None
            if run:
                found = draw_run(entry, named[run], self._look, self._store)
            else:
                found = draw(entry, self._look)
            self._kept.pop(key, None)
            self._kept[key] = (self._clock(), found)
            while len(self._kept) > MOST:
                del self._kept[next(iter(self._kept))]
            return found


def now(store: Store, execution: str) -> Entry | None:
    """The execution with the runs of its record, and before these are written with what its jobs
    have reported so far. None: there is no such execution."""
    folder = f"executions/{execution}"
    if record.read(store, f"{folder}/execution", record.Execution) is None:
        return None
    entry = read_entry(store, execution)
    if entry.result:
        return entry
    ends = provenance.step_ends(store, entry.execution)
    found, _ = step_runs.runs(store, entry.execution, ends)
    return entry.model_copy(update={"runs": tuple(found.values())})


def draw(entry: Entry, look: Look) -> Drawn:
    """The page and its script."""
    path = f"live/{entry.execution.id}"
    script = f"{path}.js"
    chart = None
    if any(run.curve for run in entry.runs):
        chart = replace(curves.of_execution(entry), script=script)
    told = {
        "state": entry.state,
        "ended": entry.result is not None,
        "rows": _rows(entry, entry.runs),
    }
    page = look.render(
        path,
        "live.html",
        entry=entry,
        review=None,
        chart=(lambda: chart) if chart else None,
        strip=executions.strip,
        knobs=executions.knobs,
        scored_on=scored_on,
        script=script,
        every=SECONDS,
        told=told,
        parent="execution.html",
        lasts=f"executions/{entry.execution.id}/index.html",
        runs_below=f"{entry.execution.id}/",
    )
    source = chart.source(live=told) if chart else taken(script, {"live": told})
    return Drawn(redact.clean(page), redact.clean(source))


def draw_run(entry: Entry, run: record.Run, look: Look, store: Store) -> Drawn:
    """The page of one run and its script, with the end of what its job has printed so far."""
    name = run_name(run.arm, run.seed)
    path = f"live/{entry.execution.id}/{name}"
    chart = replace(curves.of_run(entry, run), script=f"{path}.js") if run.curve else None
    rows = _rows(entry, [run])
    printed = runs.log_of(store, entry, run)
    over = entry.result is not None
    told = {"state": entry.state, "ended": over, "rows": rows, "log": printed}
    page = look.render(
        path,
        "live.html",
        entry=entry,
        run=run,
        name=name,
        chart=lambda: chart,
        config=runs.config(entry.plan, run.arm),
        nodes=partial(provenance_drawn.of_run, entry, run),
        drawing=provenance_drawn.drawing,
        log=lambda: printed,
        script=f"{path}.js",
        every=SECONDS,
        told=told,
        parent="run.html",
        lasts=f"runs/{entry.execution.id}.{name}.html",
        runs_below="",
    )
    source = chart.source(live=told) if chart else taken(f"{path}.js", {"live": told})
    return Drawn(redact.clean(page), redact.clean(source))


def _rows(entry: Entry, runs: Iterable[record.Run]) -> list[list[str | int | float | None]]:
    """Of each run its name, steps, steps planned, newest loss and tokens a second."""
    return [
        [
            run_name(run.arm, run.seed),
            run.steps,
            entry.plan.arms[run.arm].train.num_train_steps,
            run.curve[-1][1] if run.curve else None,
            round(run.tokens_per_second) if run.tokens_per_second else None,
        ]
        for run in runs
    ]


def routes(live: Live) -> APIRouter:
    """`/live/<execution>` and its script."""
    router = APIRouter()
    kept = {"Cache-Control": f"max-age={SECONDS}"}

    @router.get("/live/{execution}.js")
    @router.get("/live/{execution}/{run}.js")
    def script(execution: str, run: str = "") -> Response:
        found = live.drawn(execution, run)
        if found is None:
            return Response("There is no such execution.", 404, media_type="text/plain")
        return Response(found.script, headers=kept, media_type="text/javascript")

    @router.get("/live/{execution}")
    @router.get("/live/{execution}/{run}")
    def page(execution: str, run: str = "") -> Response:
        found = live.drawn(execution, run)
        if found is None:
            return Response("There is no such execution.", 404, media_type="text/plain")
        return Response(found.page, headers=kept, media_type="text/html")

    return router
