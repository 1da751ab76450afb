"""An experiment that enters a speedrun → its rows on the track. Pure.

For the lab's models, model FLOPs and parameters come from the formula. For own models, they come
from the trace that was scored, as its own process reports, times 3 and the tokens; so such rows are
ranked by the hardware FLOPs that were measured from outside.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from runner.analysis import run_comparison, speedrun_ranking
from runner.analysis.comparability import Scored, scored_on
from runner.analysis.speedrun_ranking import Row, Tier
from runner.schema.record import EnteredRun, Execution, Plan, PlannedStep, Replayed, Result

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
    scored = on(plan)
    why = (
        speedrun_ranking.other_data(track, scored)
        if scored
        else "the plan does not say on which text it is scored"
    )
    if why:
        said.append(f"It would not be ranked: {why}.")
    if plan.own_code():
        said.append(
            "The track ranks own code by hardware FLOPs: wall time × devices × their peak. The lab "
            "measures the time."
        )
    return tuple(said)


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
    arms: dict[str, list[EnteredRun]] = {}
    for run in sorted(result.entered, key=lambda run: run.seed):
        arms.setdefault(run.arm, []).append(run)
    tiers = {arm: tier(execution, replays, arm) for arm in arms}
    return [_row(execution, result.at, tiers[arm], runs) for arm, runs in arms.items()]


def _row(execution: Execution, at: datetime, tier: Tier, runs: Sequence[EnteredRun]) -> Row:
    plan, first = execution.plan, runs[0]
    assert plan.speedrun
    figures = [run.evaluated.bpb for run in runs if run.evaluated]
    own_model = any(run.own_model for run in runs)
    return Row(
        id=f"{execution.id}/{first.arm}",
        title=f"{plan.title}: {first.arm}",
        author=plan.speedrun.author,
        track=plan.speedrun.track,
        tier=tier,
        at=at,
        figures=tuple(figures),
        scored=on(plan),
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
        void=_void(runs),
        notes=tuple(dict.fromkeys((*execution.deviations, *_notes(runs)))),
        page=f"executions/{execution.id}/index.html",
    )


def _all(runs: Sequence[EnteredRun], key: str) -> tuple[float, ...]:
    """A figure of all runs, or none: with some of them only, their selection could be biased."""
    found = [getattr(run, key) for run in runs]
    return () if None in found else tuple(float(value) for value in found)


def void(run: EnteredRun) -> str | None:
    """Why the figure of a run is rejected; None if it is not, or if there is none."""
    if run.evaluated is None:
        return None
    if run.own and not run.isolated:
        return "its own code ran without isolation, so that its figures are its own word"
    if run.void:
        return run.void
    if run.own_model and run.evaluated.examined is None:
        return "its model was not asked again with no more than what comes before"
    return (run.evaluated.examined.void or None) if run.evaluated.examined else None


def _void(runs: Sequence[EnteredRun]) -> str | None:
    for run in runs:
        where = f"seed {run.seed}: "
        if run.evaluated is None:
            return f"{where}it has no figure ({run.why or 'it did not end'})"
        if words := void(run):
            return where + words
    return None


def _notes(runs: Sequence[EnteredRun]) -> list[str]:
    found = []
    for run in runs:
        if run.measured:
            found.append(run.measured)
        examined = run.evaluated.examined if run.evaluated else None
        if examined and examined.uncounted:
            found.append(f"its FLOPs were not counted: {examined.uncounted}")
    return found
