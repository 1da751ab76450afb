"""The pages of runs, and the page that compares any of them.

A run's figures are one script file beside its page. The comparison loads those of the runs that its
link names, so that nothing is written twice.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bot.site.base.chart import Chart, taken
from bot.site.base.files import File, made_from
from bot.site.charts import curves, provenance_drawn
from bot.site.facts.board import Entry, Lab
from bot.site.pages.templating import Look
from runner.analysis.comparability import scored_on
from runner.lib import redact
from runner.schema import record
from runner.schema.record import run_name
from runner.store import artifacts
from runner.store.scratch_paths import LOG, SCRATCH
from runner.store.store import Store, StoreError

MOST_LOG = 6_000  # bytes of a log's end
NAMES = "compare.names.js"


def files(entry: Entry, whole: Callable[[], Entry], look: Look, store: Store) -> Iterator[File]:
    """For each run its page and the script with its figures; `whole` is the entry with its
    curves."""
    made = made_from(look.told, entry.told)
    for at, name in enumerate(entry.names):
        yield File(f"runs/{name}.js", partial(_script, whole, at), made)
        yield File(f"runs/{name}.html", partial(_page, whole, at, look, store), made)


def _page(whole: Callable[[], Entry], at: int, look: Look, store: Store) -> str:
    entry = whole()
    run, name = entry.runs[at], entry.names[at]
    return look.render(
        f"runs/{name}.html",
        "run.html",
        entry=entry,
        run=run,
        name=name,
        chart=partial(curves.of_run, entry, run),
        config=config(entry.plan, run.arm),
        nodes=partial(provenance_drawn.of_run, entry, run),
        drawing=provenance_drawn.drawing,
        log=partial(log_of, store, entry, run),
    )


def comparison(facts: Lab, look: Look) -> Iterator[File]:
    """`compare.html`, its empty chart, and the names that can be asked for."""
    yield File("compare.loss.js", lambda: curves.of_many().source(), look.told)
    names = [
        [f"{run.execution}.{run_name(run.arm, run.seed)}", entry.plan.title]
        for entry in facts.entries
        for run in entry.runs
    ]
    yield File(NAMES, lambda: taken(NAMES, {"names": names}), facts.told)
    yield look.page("compare.html", "compare.html", look.told, chart=curves.of_many)


def _script(whole: Callable[[], Entry], at: int) -> str:
    entry = whole()
    run = entry.runs[at]
    chart: Chart = curves.of_run(entry, run)
    planned = entry.plan.arms[run.arm]
    told = {
        "name": f"{run.execution}.{run_name(run.arm, run.seed)}",
        "title": entry.plan.title,
        "arm": run.arm,
        "seed": run.seed,
        "state": run.state,
        "page": curves.page_of(run.execution, run.arm, run.seed),
        "scored": scored_in_words(entry),
        "figures": {
            "eval/bpb": run.evaluated.bpb if run.evaluated else None,
            "parameters": planned.parameters,
            "tokens": run.tokens,
            "model FLOPs": run.model_flops,
            "tokens a second": run.tokens_per_second,
        },
        "config": {key: _plain(value) for key, value in config(entry.plan, run.arm).items()},
    }
    return chart.source(run=told)


def scored_in_words(entry: Entry) -> str:
    """What its figures are figures of; figures on different text are never compared."""
    scored = scored_on(entry.plan)
    if scored is None:
        return ""
    return f"{scored.eval_tokens:,} tokens of {scored.source}, {scored.validation_sha256[:12]}"


def config(plan: record.Plan, arm: str) -> dict[str, Any]:
    """All that says how an arm was trained, on one level."""
    planned = plan.arms[arm]
    data = plan.data
    return {
        **planned.model.model_dump(mode="json"),
        **planned.train.model_dump(mode="json"),
        **{f"own.{part}": function for part, function in planned.own.items()},
        **({"text": data.source, "tokenizer": data.tokenizer} if data else {}),
        "device": f"{plan.resources.count} × {plan.resources.kind}",
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def log_of(store: Store, entry: Entry, run: record.Run) -> str:
    """The end of what the last training attempt printed, or whoever trained the run as a step,
    without secrets that are known here; empty where nothing was kept."""
    if entry.plan.steps:
        step = entry.plan.steps[entry.plan.trained()[run.arm, run.seed]]
        try:
            start, _ = artifacts.newest(store, step.store, step.fingerprint)
        except artifacts.BadOutput:
            return ""
        return end_of_log(store, f"{start.folder}{SCRATCH}/{LOG}") if start else ""
    folder, claims = f"executions/{entry.execution.id}", []
    for name in record.names(store, f"executions/{entry.execution.id}"):
        if re.fullmatch(r"t\d+\.claimed", name):
            claims.append((int(name[1:].partition(".")[0]), name))
    if not claims:
        return ""
    number, name = max(claims)
    claimed = record.require(store, f"{folder}/{name}", record.Claimed)
    return end_of_log(store, f"work/{entry.execution.id}.t{number}-{claimed.nonce}/out/log.txt")


def end_of_log(store: Store, name: str) -> str:
    """The end of the log `name` in the store, likewise."""
    try:
        printed = store.peek(name, start=-4 * MOST_LOG) or b""
    except StoreError:  # what a job left in its place is no file
        return ""
    words = redact.clean(printed.decode("utf-8", "replace"))[-MOST_LOG:]
    lines = words.splitlines()
    whole = lines if len(printed) <= MOST_LOG else lines[1:]  # the first one may be cut off
    return "\n".join(line for line in whole if line.isprintable() or "\t" in line)
