"""An experiment that enters a speedrun → its rows on the track. Pure.

For the lab's models, model FLOPs and parameters come from the formula. For own models, they come
from the trace that was scored, as its own process reports, times 3 and the tokens; so such rows are
ranked by the hardware FLOPs that were measured from outside.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from runner.analysis import arm_settings, run_comparison, speedrun_checks, speedrun_ranking
from runner.analysis.comparability import Scored, scored_on
from runner.analysis.speedrun_checks import Failed
from runner.analysis.speedrun_ranking import Row, Tier
from runner.schema.record import EnteredRun, Execution, Plan, PlannedStep, Replayed, Result
from runner.schema.tracks import Track

BY_FORMULA = "by formula"
BY_TRACE = "3 × the traced forward pass that was scored × tokens, as the model's own process says"


def on(plan: Plan) -> Scored | None:
    """What a plan's figures will be computed on; None if that is unknown or not one text. Here a
    step's text is identified by its own digest, because a track names that."""
    if plan.data:
        return scored_on(plan)
    found = [
        _of_tokens(plan.steps[name], int(step.config["tokens"]))
        for step in plan.steps.values()
        if step.do == "evaluate"
        for name in step.inputs["tokens"]
    ]
    alike = {one and (one.text, one.tokenizer) for one in found}  # whatever the text's name
    return found[0] if len(alike) == 1 else None


def _of_tokens(step: PlannedStep, tokens: int) -> Scored | None:
    config, sha256 = step.config, step.config.get("sha256")
    # With a source, the plan has filled in the digests; otherwise anybody may have written them.
    if step.do != "tokenize" or not config["source"] or not isinstance(sha256, Mapping):
        return None
    source, tokenizer = str(config["source"]), str(config["tokenizer"])
    return Scored(source, tokenizer, str(sha256["validation"]), tokens)


def foreseen(plan: Plan) -> tuple[str, ...]:
    """What a plan says about its entry: the track, and what will prevent a rank there."""
    if plan.speedrun is None:
        return ()
    author = plan.speedrun.author
    of = f" ({author.affiliation})" if author.affiliation else ""
    track = plan.enters
    if track is None:
        return (f"There is no track `{plan.speedrun.track}`.",)
    said = [f"This enters the track `{track.name}` for {author.name}{of}: {track.sentence}."]
    said += [f"It would not be ranked: {failed}." for failed in refused(plan)]
    if plan.own_code() and not track.seconds and track.kind != "time":
        said.append(
            "The track ranks own code by hardware FLOPs: wall time × devices × their peak. The lab "
            "measures the time."
        )
    return tuple(said)


def refused(plan: Plan) -> tuple[Failed, ...]:
    """Everything that will keep a plan's entry from a rank, as far as it is known before it runs;
    nothing for a plan that enters no track."""
    if (track := plan.enters) is None:
        return ()
    scored = on(plan)
    unknown = Failed("the plan does not say on which text it is scored", "data")
    trained = (plan.steps[name].resources for name in plan.trained().values())
    found = (
        speedrun_ranking.other_data(track, scored) if scored else unknown,
        speedrun_ranking.other_tokenizer(track, track.data.tokenizer_digest),
        speedrun_checks.of_plan(track, plan),
        *{speedrun_checks.of_device(track, f"{on.count} × {on.kind}") for on in trained},
        *_too_dear(track, plan),
        *{speedrun_checks.of_seeds(track, seeds) for seeds in _seeds(plan).values()},
    )
    return tuple(filter(None, found))


def _seeds(plan: Plan) -> dict[str, int]:
    """How many seeds each arm has."""
    found: dict[str, int] = {}
    for arm, _ in plan.trained():
        found[arm] = found.get(arm, 0) + 1
    return found


def _too_dear(track: Track, plan: Plan) -> Iterable[Failed]:
    """Arms that cost more than the budget in FLOPs, where a formula counts them."""
    if track.kind != "budget" or not track.budget or track.cost != "model":
        return
    for name, arm in plan.arms.items():
        if arm.own or arm.model_flops is None or arm.model_flops <= track.budget:
            continue
        words = f"a run of `{name}` costs {arm.model_flops:.4g} FLOPs, and the budget is "
        yield Failed(f"{words}{track.budget:.4g}")


def tier(execution: Execution, replays: Iterable[Replayed], arm: str) -> Tier:
    """How an arm's figures were verified. Replayed: a part of one of its runs was trained again,
    and every such replay gave the same."""
    if execution.origin:
        return "reproduced"
    same = [
        replay.how in run_comparison.GOOD
        for replay in replays
        if (step := execution.plan.steps.get(replay.run))
        and (run := step.run(replay.run))
        and run[0] == arm
    ]
    return "replayed" if same and all(same) else "self-reported"


def rows(execution: Execution, result: Result, replays: Sequence[Replayed] = ()) -> list[Row]:
    """The rows of an execution that has ended, one per arm."""
    if execution.plan.speedrun is None:
        return []
    track, plan = execution.plan.enters, execution.plan
    failed = speedrun_checks.of_plan(track, plan) if track else None
    arms: dict[str, list[EnteredRun]] = {}
    for run in sorted(result.entered, key=lambda run: run.seed):
        arms.setdefault(run.arm, []).append(run)
    tiers = {arm: tier(execution, replays, arm) for arm in arms}
    found = [_row(execution, result.at, tiers[arm], runs) for arm, runs in arms.items()]
    return [replace(row, failed=failed) for row in found] if failed else found


def together(
    entered: Iterable[tuple[Execution, Result, Sequence[Replayed]]],
) -> list[Row]:
    """The rows of a lab's executions. One that reproduced another is not a row of its own: it
    counts for the row of that one, whose arm's scores it gave again or not."""
    every = list(entered)
    again: dict[tuple[str, str], list[Row]] = {}
    for execution, result, replays in every:
        if execution.reproduces:
            for row in rows(execution, result, replays):
                again.setdefault((execution.reproduces, row.arm), []).append(row)
    return [
        _with(row, again.get((execution.id, row.arm), []))
        for execution, result, replays in every
        if not execution.reproduces
        for row in rows(execution, result, replays)
    ]


def beside(others: Iterable[Row], rows: Sequence[Row]) -> list[Row]:
    """Rows with those of another place that are not among them."""
    known = {row.id for row in rows}
    return [*rows, *(row for row in others if row.id not in known)]


def _with(row: Row, again: Sequence[Row]) -> Row:
    """A row with what its reproductions gave."""
    known = [one for one in again if len(one.figures) == len(row.figures)]
    same = [one for one in known if run_comparison.alike(row.figures, one.figures)]
    if len(same) == len(known):
        return replace(row, reproduced=len(same))
    other = next(one for one in known if one not in same)
    words = f"{other.execution} ran it again, and its scores differ"
    return replace(row, reproduced=len(same), notes=(*row.notes, words))


def _row(execution: Execution, at: datetime, tier: Tier, runs: Sequence[EnteredRun]) -> Row:
    plan, first = execution.plan, runs[0]
    assert plan.speedrun
    settings = arm_settings.settings(plan).get(first.arm, {})
    search = (step.config["search"] for step in plan.steps.values() if step.do == "tune")
    figures = [run.evaluated.bpb for run in runs if run.evaluated]
    own_model = any(run.own_model for run in runs)
    tokenizers = {run.tokenizer_sha256 for run in runs}
    return Row(
        id=f"{execution.id}/{first.arm}",
        title=plan.title if first.arm == "main" else f"{plan.title}: {first.arm}",
        author=plan.speedrun.author,
        track=plan.speedrun.track,
        tier=tier,
        at=at,
        figures=tuple(figures),
        scored=on(plan),
        tokenizer_sha256=first.tokenizer_sha256 if len(tokenizers) == 1 else None,
        family=execution.id,
        hardware=f"{first.resources.count} × {first.resources.kind}",
        seconds=_all(runs, "seconds"),
        parameters=first.parameters,
        tokens=first.tokens,
        model_flops=_all(runs, "model_flops"),
        hardware_flops=_all(runs, "hardware_flops"),
        flops_by=BY_TRACE if own_model else BY_FORMULA,
        price=first.price,
        custom=any(run.own for run in runs),
        failed=speedrun_checks.of_runs(runs),
        settings=tuple(arm_settings.flat(settings).items()),
        code=plan.code_folder if any(run.own for run in runs) else "",
        shipped=first.shipped,
        trials=plan.speedrun.trials,
        searched=sum(one["trials"] * len(one["seeds"]) for one in search),
        notes=tuple(dict.fromkeys((*execution.deviations, *_notes(runs)))),
        page=f"executions/{execution.id}/index.html",
    )


def _all(runs: Sequence[EnteredRun], key: str) -> tuple[float, ...]:
    """A figure of all runs, or none: with some of them only, their selection could be biased."""
    found = [getattr(run, key) for run in runs]
    return () if None in found else tuple(float(value) for value in found)


def _notes(runs: Sequence[EnteredRun]) -> list[str]:
    found = []
    for run in runs:
        if run.measured:
            found.append(run.measured)
        examined = run.evaluated.examined if run.evaluated else None
        if examined and examined.uncounted:
            found.append(f"its FLOPs were not counted: {examined.uncounted}")
    return found
