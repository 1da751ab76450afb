"""How long an approved plan may take by the clock, and how many devices it may hold. Pure.

The limit is generous, since it is there to end what never ends and not to cut short what is slow:
some times what is expected at poor utilisation, and an hour at least. What nobody can estimate (the
experiment's own code, steps that do not train) has a limit that the lab's policy sets. Where the
experiment's author has declared a ceiling, nothing goes beyond that.
"""

from collections import Counter
from collections.abc import Mapping

from runner.schema import step_graph
from runner.schema.record import Plan, PlannedStep, Resources

TIMES = 4  # what is expected
COUNTED = ("train", "tokenize", "evaluate")  # what takes little, and what is known
LEAST = 3600.0  # seconds


def largest(plan: Plan) -> Resources:
    """The devices that the plan's largest part asks for."""
    wanted = [plan.resources, *(step.resources for step in plan.steps.values())]
    kinds = plan.kinds  # old plans may name one that there is no longer

    def speed(of: Resources) -> float:
        return kinds[of.kind].peak_flops * of.count if of.kind in kinds else 0.0

    return max(wanted, key=speed)


def limit_seconds(plan: Plan, hours_without_estimate: float) -> float:
    """Seconds after which the plan's execution is stopped, all its attempts together."""
    limit = max(LEAST, TIMES * plan.cost.seconds[1])
    ceiling = ceiling_seconds(plan)
    counted = all(step.do in COUNTED and not step.own for step in plan.steps.values())
    if plan.cost.uncounted or not counted:
        # Whoever approves the plan sees the ceiling, and it is set aside from their budget.
        return ceiling or limit + hours_without_estimate * 3600
    return min(limit, ceiling or limit)


def ceiling_seconds(plan: Plan) -> float | None:
    """The time by the clock in which the plan reaches its declared ceiling; None if it has none."""
    return plan.ceiling_hours * 3600 / largest(plan).count if plan.ceiling_hours else None


def at_once(plan: Plan) -> Counter[str]:
    """How many devices of each kind the plan's execution may hold at a time, at most. Its runs take
    turns. Its steps are made side by side, but for those of which one needs the other: of a chain
    of such, one at a time holds devices."""
    if not plan.steps:
        return Counter({plan.resources.kind: plan.resources.count})
    together: Counter[str] = Counter()
    for chain in _chains(plan.steps):
        most: Counter[str] = Counter()
        for name in chain:
            wanted = plan.steps[name].resources
            most |= Counter({wanted.kind: wanted.count})  # the larger one
        together += most
    return together


def _chains(steps: Mapping[str, PlannedStep]) -> list[list[str]]:
    """All steps, in chains in which each one needs those before it, directly or not. Not always the
    fewest; steps that need nothing of each other are never in one."""
    order = step_graph.order({name: step.needs for name, step in steps.items()})
    before: dict[str, int] = {}  # sets of places in `order`, as bits
    chains: dict[int, list[str]] = {}  # by the place of their last step
    ends = 0
    for place, name in enumerate(order):
        needs = 0
        for other in steps[name].needs:
            needs |= before[other]
        before[name] = needs | 1 << place
        chain: list[str] = []
        if free := needs & ends:
            last = free.bit_length() - 1
            chain = chains.pop(last)
            ends ^= 1 << last
        chains[place] = [*chain, name]
        ends |= 1 << place
    return list(chains.values())


def device_hours(plan: Plan, seconds: float) -> float:
    """What the plan's execution takes in this time at most, of all kinds together."""
    return at_once(plan).total() * seconds / 3600
