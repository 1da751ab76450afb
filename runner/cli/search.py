"""`search`: a program proposes declarations within a budget, and the lab trains and weighs them.

The program is a local command of the caller. For each trial it gets JSON on stdin, which says all
that is known, and writes one declaration on stdout; nothing on stdout ends the search. What it
writes is data (`runner.planning.search_limits`). Everything that happens is a record, so a search
that was killed continues where it was.
"""

import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from runner.analysis import search_statistics, verdicts
from runner.cli import local_run, options, tables
from runner.cli.ending import print_json, stop, stopping
from runner.cli.options import AsJson, RayToken, RayUrl, TheJobs, TheStore
from runner.execution import git_source
from runner.execution.ray_jobs import RayAddress
from runner.lib import redact
from runner.lib.problems import BadExperiment
from runner.lib.untrusted_files import printable
from runner.planning import planner, search_limits
from runner.schema import lab_config, metrics, record
from runner.schema.lab_config import LabConfig
from runner.schema.metrics import BPB
from runner.schema.record import SearchEnd, SearchTerms, SearchTrial
from runner.schema.record.searches import MAX_DECLARATION
from runner.spec import declaration
from runner.store.store import Store

BASELINE, FRESH = 1000, 2000  # the first seeds; trials have the first ones of the baseline
LEVEL = 0.05
MAY_TAKE = 600  # seconds for one proposal


class CannotPropose(Exception):
    """The program failed; the message says how."""


def command(
    path: Annotated[
        Path,
        typer.Argument(metavar="EXPERIMENT", help="The baseline: an experiment with one arm."),
    ],
    propose: Annotated[
        str,
        typer.Option(
            help="The command that proposes: JSON on stdin, a declaration on stdout. The lab "
            "publishes this command, so put no secret in it."
        ),
    ],
    budget: Annotated[int, typer.Option(min=1, max=10_000, help="The most trials.")],
    hours: Annotated[
        float | None, typer.Option(min=0, help="The most device-hours of all trials together.")
    ] = None,
    patience: Annotated[
        int, typer.Option(min=1, help="Stop after so many trials without a better one.")
    ] = 8,
    seeds: Annotated[int, typer.Option(min=2, max=100, help="Seeds of each trial.")] = 2,
    noise: Annotated[
        int, typer.Option(min=2, max=100, help="Seeds of the baseline, and of the last comparison.")
    ] = 4,
    compute: Annotated[
        float, typer.Option(min=0.001, help="The most FLOPs of a run, in those of the baseline's.")
    ] = 1.0,
    metric: Annotated[str, typer.Option(help="The score that is searched for.")] = BPB,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
    ray_address: RayUrl = None,
    ray_token_file: RayToken = None,
) -> None:
    """Let a program propose declarations within a budget, and compare the best with the baseline.

    The noise comes first: the baseline is trained with several seeds. Each trial is an execution.
    P-values are corrected for the number of trials. At the end, baseline and best trial are trained
    again with fresh seeds. A search that was stopped continues with the same command."""
    if seeds > noise:
        stop(f"--seeds {seeds} is more than --noise {noise}; trials use seeds of the baseline.")
    if (better := metrics.better(metric)) is None:
        stop(f"--metric {metric}: neither of two such scores is better; write one such as {BPB}.")
    words = shlex.split(propose)
    if not words:
        stop("--propose is empty; write a command, such as 'python propose.py'.")
    if secret := redact.named_in(words, os.environ):
        stop(
            f"--propose names the secret {secret}, and the lab publishes this command. Let the "
            "program read it from the environment."
        )
    folder = options.named(path)
    with stopping(OSError):
        text = (folder / declaration.FILE_NAME).read_text(encoding="utf-8")
    lab = lab_config.find(folder)
    noise_seeds = tuple(range(BASELINE, BASELINE + noise))
    baseline = search_limits.plan(text, folder, noise_seeds, lab)
    terms = SearchTerms(
        experiment=folder.as_posix(),
        declaration=text,
        fingerprint=baseline.fingerprint,
        proposer=tuple(words),
        metric=metric,
        trials=budget,
        device_hours=hours,
        patience=patience,
        compute=compute,
        noise_seeds=noise_seeds,
        seeds=noise_seeds[:seeds],
        fresh_seeds=tuple(range(FRESH, FRESH + noise)),
        level=LEVEL,
    )
    ray = options.ray(ray_address, ray_token_file)
    opened = options.made(store, jobs)
    console = Console(stderr=True)
    console.print(f"search {terms.id}: at most {budget} trials of {folder}", highlight=False)
    record.write(opened, f"searches/{terms.id}/terms", terms)
    sign = 1 if better == "lower" else -1
    if not (end := record.read(opened, f"searches/{terms.id}/end", SearchEnd)):
        with local_run.reaching(opened, ray, console) as there:
            end = Search(terms, opened, folder, lab, baseline, there, console, sign).run()
    _tell(terms, end, _trials(opened, terms), sign, as_json)


def _trials(store: Store, terms: SearchTerms) -> list[SearchTrial]:
    return record.numbered(store, f"searches/{terms.id}", SearchTrial)


@dataclass
class Search:
    """A search in progress."""

    terms: SearchTerms
    store: Store
    folder: Path
    lab: LabConfig
    baseline: record.Plan
    ray: RayAddress
    console: Console
    sign: int  # −1 if a higher score is better: comparisons are of −score

    def run(self) -> SearchEnd:
        """Search until it is over, from what is recorded. Raises RayError and StoreError."""
        trials = _trials(self.store, self.terms)
        if not trials:
            trials.append(self._trained(0, self.terms.declaration, self.baseline))
        while not (why := search_statistics.over(self.terms, self._turned(trials))):
            try:
                told = known(self.terms, trials, self._turned(trials), self.baseline)
                asked = json.dumps(told, allow_nan=False).encode()
                text = answer(self.terms.proposer, asked)
            except CannotPropose as error:
                stop(f"{error}. The search {self.terms.id} continues with the same command.", 1)
            if not text.strip():
                why = "the program had nothing more to propose"
                break
            trials.append(self._tried(len(trials), text, trials))
        return self._ended(trials, why)

    def _tried(self, n: int, text: str, trials: list[SearchTrial]) -> SearchTrial:
        """A proposal: refused, or trained."""
        try:
            if len(text) > MAX_DECLARATION:
                text, why = "", f"it has more than {MAX_DECLARATION:,} characters"
            else:
                planned = search_limits.plan(text, self.folder, self.terms.seeds, self.lab)
                why = search_limits.misfit(self.baseline, planned, self.terms.compute) or ""
                why = why or self._same(planned, trials)
        except BadExperiment as error:
            why = str(error)
        if not why:
            return self._trained(n, text, planned)
        refused = SearchTrial(n=n, at=datetime.now(UTC), declaration=text, refused=why)
        self.console.print(Text(f"trial {n}: refused: {printable(why)}"))
        return self._written(refused)

    def _same(self, planned: record.Plan, trials: list[SearchTrial]) -> str:
        """Which earlier trial trains the same; empty if none does."""
        (arm,) = planned.arms.values()
        for trial in trials:
            if not trial.refused:
                seeds = self.terms.seeds if trial.n else self.terms.noise_seeds
                before = search_limits.plan(trial.declaration, self.folder, seeds, self.lab)
                if arm in before.arms.values():
                    return f"trial {trial.n} was the same" if trial.n else "it is the baseline"
        return ""

    def _trained(self, n: int, text: str, planned: record.Plan) -> SearchTrial:
        """Train and score a declaration, as an execution."""
        execution, scores, hours = self._executed(planned)
        trial = SearchTrial(
            n=n,
            at=datetime.now(UTC),
            declaration=text,
            execution=execution,
            scores=scores,
            device_hours=hours,
        )
        found = search_statistics.whole(scores)
        mean = f"{fmean(found):.4f}" if found else "no score"
        self.console.print(f"trial {n}: {self.terms.metric} {mean}", highlight=False)
        return self._written(trial)

    def _executed(self, planned: record.Plan) -> tuple[str, tuple[float | None, ...], float]:
        """The execution of a plan, its scores by seed, and the device-hours that it used. One that
        has ended already is not repeated, unless it was cancelled."""
        planner.keep(self.store, planned, self.folder)
        known = (
            one
            for one, result in local_run.earlier(self.store, planned)
            if result and result.state != "cancelled"
        )
        if (before := next(known, None)) is None:
            source = git_source.source(self.folder)
            facts = local_run.execute(self.store, planned, self.console, self.ray, source)
            before = facts.execution
        ended = record.require(self.store, f"executions/{before.id}/result", record.Result)
        if ended.state == "cancelled":
            stop(f"{before.id} was cancelled. The search continues with the same command.", 1)
        paths = (f"runs/{before.id}.{record.run_name(*run)}" for run in before.plan.runs())
        runs = [run for path in paths if (run := record.read(self.store, path, record.Run))]
        figures = verdicts.figures_of(runs, self.terms.metric)
        (arm,) = planned.arms
        hours = sum(used.device_seconds for used in ended.used) / 3600
        return before.id, tuple(figures.get((arm, seed)) for seed in planned.seeds), hours

    def _ended(self, trials: list[SearchTrial], why: str) -> SearchEnd:
        """Compare the best trial with the baseline, and record the end."""
        turned = self._turned(trials)
        weighed, spread = search_statistics.weigh(turned), search_statistics.noise(turned)
        compared = None
        if found := search_statistics.best(weighed):
            best = next(trial for trial in trials if trial.n == found.n)
            both = []
            for text in (self.terms.declaration, best.declaration):
                fresh = self.terms.fresh_seeds
                planned = search_limits.plan(text, self.folder, fresh, self.lab)
                both.append(self._executed(planned))
            (first, base, _), (second, new, _) = both
            compared = search_statistics.compare(
                found.n, (first, second), self._turn(base), self._turn(new)
            )
            compared = compared.model_copy(update={"baseline": base, "trial": new})
        end = SearchEnd(
            at=datetime.now(UTC),
            why=why,
            noise=spread and spread[0],
            weighed=weighed,
            compared=compared,
        )
        record.write(self.store, f"searches/{self.terms.id}/end", end)
        return end

    def _written(self, trial: SearchTrial) -> SearchTrial:
        record.write(self.store, f"searches/{self.terms.id}/{trial.n}", trial)
        return trial

    def _turn(self, scores: tuple[float | None, ...]) -> tuple[float | None, ...]:
        return tuple(one if one is None else self.sign * one for one in scores)

    def _turned(self, trials: list[SearchTrial]) -> list[SearchTrial]:
        """The trials with scores so that lower is better."""
        return [one.model_copy(update={"scores": self._turn(one.scores)}) for one in trials]


# ── The program ──────────────────────────────────────────────────────────────────────────────


def answer(program: tuple[str, ...], asked: bytes) -> str:
    """What a program writes on stdout. Raises CannotPropose if it cannot be started, fails, or
    takes too long."""
    name = program[0]
    try:
        found = subprocess.run(
            program, input=asked, stdout=subprocess.PIPE, timeout=MAY_TAKE, check=False
        )
    except OSError as error:
        raise CannotPropose(f"{name} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise CannotPropose(f"{name} took more than {MAY_TAKE} seconds") from None
    if found.returncode:
        raise CannotPropose(f"{name} ended with exit code {found.returncode}")
    return found.stdout.decode("utf-8", "replace")


def known(
    terms: SearchTerms,
    trials: list[SearchTrial],
    turned: list[SearchTrial],
    baseline: record.Plan,
) -> dict[str, Any]:
    """What the program is told: the terms, and every trial so far."""
    weighed = {one.n: one for one in search_statistics.weigh(turned)}
    spread = search_statistics.noise(turned)
    (arm,) = baseline.arms.values()
    spent = sum(not trial.refused for trial in trials[1:])
    return {
        "version": 1,
        "experiment": terms.experiment,
        "metric": terms.metric,
        "better": metrics.better(terms.metric),
        "trials_left": terms.trials - spent,
        "limits": {"model_flops": arm.model_flops and terms.compute * arm.model_flops},
        "noise": spread and spread[0],
        "seeds": list(terms.seeds),
        "trials": [
            {
                "n": trial.n,
                "declaration": trial.declaration,
                "refused": trial.refused,
                "scores": list(trial.scores),
                **(
                    weighed[trial.n].model_dump(include={"difference", "p", "adjusted"})
                    if trial.n in weighed
                    else {}
                ),
            }
            for trial in trials
        ],
    }


# ── What is shown ────────────────────────────────────────────────────────────────────────────


def _tell(
    terms: SearchTerms, end: SearchEnd, trials: list[SearchTrial], sign: int, as_json: bool
) -> None:
    if as_json:
        print_json({"search": terms.id, "terms": terms, "trials": trials, "end": end})
        return
    out = Console(highlight=False)
    weighed = {one.n: one for one in end.weighed}
    rows = [
        (
            str(trial.n or "baseline"),
            f"{sign * weighed[trial.n].mean:.4f}" if trial.n in weighed else _mean(trial),
            f"{sign * weighed[trial.n].difference:+.4f}" if trial.n in weighed else "",
            f"{weighed[trial.n].adjusted:.3g}" if trial.n in weighed else "",
            trial.execution or printable(trial.refused)[:60],
        )
        for trial in trials
    ]
    names = ("trial", terms.metric, "difference", "p, corrected", "execution")
    out.print(tables.table(names, rows, right=names[1:4]))
    out.print(Text(f"It stopped: {end.why}."))
    if end.noise is not None:
        out.print(
            f"Noise between seeds: {end.noise:.4f} ({len(terms.noise_seeds)} of the baseline)"
        )
    out.print(Text(search_statistics.finding(terms, end)))


def _mean(trial: SearchTrial) -> str:
    found = search_statistics.whole(trial.scores)
    return f"{fmean(found):.4f}" if found else "–"
