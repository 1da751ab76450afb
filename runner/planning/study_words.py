"""What a plan says of its study. Pure."""

from collections.abc import Iterator

from runner.lib.format import flops, many
from runner.schema.record import Plan
from runner.schema.record.studies import FEWEST_SEEDS

SHOWS_FLOOR = 3  # sizes; with two, every floor fits
MISSED = 0.01  # of a budget


def told(plan: Plan) -> list[str]:
    """The study of a plan as sentences, with warnings; empty if it has none."""
    found = [*_of_ablation(plan), *_of_isoflop(plan)]
    if found and len(plan.seeds) < FEWEST_SEEDS:
        found.append(
            f"Exploratory: {many(len(plan.seeds), 'seed')} will give "
            f"{'no' if len(plan.seeds) == 1 else 'wide'} intervals; write {FEWEST_SEEDS} or more"
        )
    return found


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
