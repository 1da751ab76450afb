"""The pages of runs, and the page that compares any of them.

A run's figures are one script file beside its page. The comparison loads those of the runs in its
link, so nothing is written twice.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bot.site.base.chart import taken
from bot.site.base.files import File, made_from
from bot.site.charts import curves, job_charts, provenance_drawn, validation_curves
from bot.site.facts import models
from bot.site.facts.entries import Entry
from bot.site.facts.lab import Lab
from bot.site.pages import executions
from bot.site.pages.templating import Look
from runner.analysis.comparability import scored_on
from runner.history import samples
from runner.lib import redact
from runner.publish import preview
from runner.schema import record
from runner.store import artifacts
from runner.store.scratch_paths import LOG, SCRATCH
from runner.store.store import Store, StoreError

COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")  # of a terminal, ECMA-48
MAX_LOG = 6_000  # bytes of a log's end
MAX_SAMPLES, MAX_SAMPLE = 20, 2_000  # on a page; characters of each text
NAMES = "compare.names.js"


def files(entry: Entry, whole: Callable[[], Entry], look: Look, store: Store) -> Iterator[File]:
    """For each run its page and the script with its figures; `whole` returns the entry with its
    curves."""
    made = made_from(look.told, entry.told)
    for at, name in enumerate(entry.names):
        yield File(f"runs/{name}.js", partial(_script, whole, at, store), made)
        if entry.runs[at].validation:
            script = partial(_validation, entry, at)
            yield File(validation_curves.script_of(entry.runs[at]), script, made)
        yield File(f"runs/{name}.html", partial(_page, whole, at, look, store), made)


def _validation(entry: Entry, at: int) -> str:
    return validation_curves.of_run(entry, entry.runs[at]).source()


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
        job=job_charts.charts(job_charts.lines_of(store, entry.plan, run), run),
        taken_home=models.of_run(entry, run),
        validation=partial(validation_curves.of_run, entry, run),
        config=config(entry.plan, run),
        nodes=partial(provenance_drawn.of_run, entry, run),
        drawing=provenance_drawn.drawing,
        log=partial(log_of, store, entry, run),
        samples=partial(samples_of, store, entry, run),
    )


def comparison(facts: Lab, look: Look) -> Iterator[File]:
    """`compare.html`, its empty chart, and the names of the runs."""
    yield File("compare.loss.js", lambda: curves.of_many().source(), look.told)
    names = [[name, entry.plan.title] for entry in facts.entries for name in entry.names]
    yield File(NAMES, lambda: taken(NAMES, {"names": names}), facts.told)
    yield look.page("compare.html", "compare.html", look.told, chart=curves.of_many)


def _script(whole: Callable[[], Entry], at: int, store: Store) -> str:
    entry = whole()
    run, scored = entry.runs[at], scored_on(entry.plan)
    planned = entry.plan.arms[run.arm]
    told = {
        "name": entry.names[at],
        "title": entry.plan.title,
        "arm": run.arm,
        "seed": run.seed,
        "state": run.state,
        "page": curves.page_of(run),
        # What its figures are computed on; figures on different text are never compared.
        "scored": f"{scored.eval_tokens:,} tokens of {scored.source}, "
        f"{scored.validation_sha256[:12]}"
        if scored
        else "",
        "figures": {
            "eval/bpb": run.evaluated.bpb if run.evaluated else None,
            **{metric: score.value for metric, score in run.measured.items()},
            "parameters": planned.parameters,
            "tokens": run.tokens,
            "model FLOPs": run.model_flops,
            "tokens a second": run.tokens_per_second,
        },
        "config": {key: _plain(value) for key, value in config(entry.plan, run).items()},
    }
    parts = job_charts.charts(job_charts.lines_of(store, entry.plan, run), run)
    return curves.of_run(entry, run).source(parts, run=told)


def config(plan: record.Plan, run: record.Run) -> dict[str, Any]:
    """All settings of a run's training, on one level; tuned ones as its search found them."""
    data = plan.data
    return {
        **executions.knobs_of(plan.arms[run.arm], mode="json"),
        **(run.tuned.settings if run.tuned else {}),
        **({"text": data.source, "tokenizer": data.tokenizer} if data else {}),
        "device": f"{plan.resources.count} × {plan.resources.kind}",
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def samples_of(
    store: Store, entry: Entry, run: record.Run
) -> tuple[list[samples.Sample], int, list[str]]:
    """What the run's model said: samples as text that can be shown, the number of further ones, and
    rejected reports."""
    trained = entry.plan.trained().get((run.arm, run.seed))
    if trained is None:
        return [], 0, []
    found, more, refused = samples.of_model(store, entry.plan, entry.steps, trained, MAX_SAMPLES)
    return (
        [
            one.model_copy(
                update={key: _shown(getattr(one, key)) for key in ("prompt", "completion")}
            )
            for one in found
        ],
        more,
        refused,
    )


def _shown(text: str) -> str:
    return preview.cut(preview.visible(redact.clean(text)), MAX_SAMPLE)


def log_of(store: Store, entry: Entry, run: record.Run) -> str | None:
    """The end of the training step's log, from its last maker; None if there is none."""
    trained = entry.plan.trained().get((run.arm, run.seed))
    if trained is None:
        return None
    step = entry.plan.steps[trained]
    try:
        start, _ = artifacts.newest(store, step.store, step.fingerprint)
    except artifacts.BadOutput:
        return None
    return end_of_log(store, f"{start.folder}{SCRATCH}/{LOG}") if start else None


def end_of_log(store: Store, name: str) -> str | None:
    """The end of the log `name` in the store, without known secrets; None if there is none."""
    try:
        printed = store.peek(name, start=-4 * MAX_LOG) or b""
    except StoreError:  # a job may have left something else there
        return None
    words = redact.clean(COLOURS.sub("", printed.decode("utf-8", "replace")))[-MAX_LOG:]
    lines = words.splitlines()
    whole = lines if len(printed) <= MAX_LOG else lines[1:]  # the first one may be cut off
    return "\n".join(line for line in whole if line.isprintable() or "\t" in line) or None
