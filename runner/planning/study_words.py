"""What a plan says of its study, and of settings that do not go together. Pure."""

from collections.abc import Iterator

from engine.config.schema import HYPERBALL
from runner.lib.format import first_of, flops, many
from runner.schema.record import Plan
from runner.schema.record.studies import FEWEST_SEEDS
from runner.spec.tuning import Search

SHOWS_FLOOR = 3  # sizes; with two, every floor fits
MISSED = 0.01  # of a budget
NARROW = 600  # below it, 0.02 (init gpt2) is less than 0.5/√hidden_dim (init marin)


def told(plan: Plan) -> list[str]:
    """The study of a plan as sentences, with warnings; empty if there is nothing to say."""
    found = [*_of_ablation(plan), *_of_isoflop(plan)]
    tuning = [*_of_tuning(plan)]
    if (found or tuning) and len(plan.seeds) < FEWEST_SEEDS:
        found.append(
            f"Exploratory: {many(len(plan.seeds), 'seed')} will give "
            f"{'no' if len(plan.seeds) == 1 else 'wide'} intervals; write {FEWEST_SEEDS} or more"
        )
    return [*tuning, *found, *_of_norms(plan)]


def _of_tuning(plan: Plan) -> Iterator[str]:
    tuned = {name: step for name, step in plan.steps.items() if step.do == "tune"}
    if not tuned:
        return
    first = next(iter(tuned.values()))
    search = Search.model_validate(first.config["search"])
    space = search.space(first.config["train"])
    keys = ", ".join(f"{key} ({len(values)} values)" for key, values in space.grid.items())
    how = {"coordinate": "coordinate descent", "random": "a random search"}[search.search]
    many_seeds = ", ".join(map(str, search.seeds))
    yield (
        f"Tuning: {how} over {keys}, with at most {many(search.trials, 'trial')} for each of "
        f"{many(len(tuned), 'arm')} ({search.trials * len(tuned):,} in all), over the seeds "
        f"{many_seeds}. The arms then run with the best settings and with other seeds"
    )
    if search.trials < space.one_round:
        yield (
            f"{many(search.trials, 'trial')} do not reach each key once, so that the search says "
            f"little; write {space.one_round} or more, or fewer keys"
        )


def _of_ablation(plan: Plan) -> Iterator[str]:
    if (study := plan.ablation) is None:
        return
    held = sum(part.held_out for part in study.parts)
    parts = [
        f"{many(n, 'part')} {how}"
        for n, how in ((held, "held out"), (len(study.parts) - held, "added"))
        if n
    ]
    spent = [flops(plan.arms[arm].model_flops) for arm in study.baseline if arm in plan.arms]
    yield (
        f"Ablation: {' and '.join(parts)}, one by one, at {many(len(study.sizes), 'size')} "
        f"({', '.join(spent)} FLOPs a run). The result will have the speed-up of each part, in "
        "FLOPs and in seconds"
    )
    if len(study.sizes) < SHOWS_FLOOR:
        yield (
            "Two sizes say little of the floor of the loss, so that intervals of speed-ups will be "
            "wide; a third size makes them narrower"
        )


def _of_isoflop(plan: Plan) -> Iterator[str]:
    if (study := plan.isoflop) is None:
        return
    budgets = sorted({of.budget for of in study.arms})
    sizes = {of.size for of in study.arms}
    yield (
        f"IsoFLOP: {many(len(budgets), 'budget')} ({', '.join(map(flops, budgets))} FLOPs a run) "
        f"and {many(len(sizes), 'size')}. The result will have the best tokens and parameters for "
        "each budget, and their power laws"
    )
    if len(budgets) < 2:
        yield "One budget gives no power law; write another one"
    off = {
        of.arm: abs(spent / of.budget - 1)
        for of in study.arms
        if (arm := plan.arms.get(of.arm)) and (spent := arm.model_flops)
    }
    worst = max(off, key=lambda arm: off[arm], default="")
    if worst and off[worst] > MISSED:
        yield (
            f"{worst} misses its budget by {off[worst]:.1%}, as steps are whole; a smaller batch "
            "or a larger budget comes closer"
        )


def _of_norms(plan: Plan) -> Iterator[str]:
    """Of optimizers that keep norms which are too small at the start: experiments/tuned-optimizers
    lost 0.6 bits per byte by it."""
    kept = [
        name
        for name, arm in plan.arms.items()
        if arm.train.optimizer in HYPERBALL
        and (model := arm.labs)
        and model.init == "gpt2"
        and model.hidden_dim < NARROW
    ]
    if kept:
        yield (
            f"{first_of(kept, 3)}: the optimizer keeps each matrix's norm as it begins, and init "
            "gpt2 begins with small norms in a narrow model, which costs much; write `init: mup` "
            "or `init: marin` in `model`"
        )
