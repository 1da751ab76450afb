"""The wall time that an approved plan may take, and how many devices it may hold. Pure.

The limit is generous, because it only has to end what never ends: a multiple of the time at poor
utilisation, and at least an hour. Work without an estimate (own code, steps that do not train) has
a limit from the lab's policy. If the experiment's author has declared a ceiling, that is the
maximum.
"""

from collections import Counter
from collections.abc import Mapping

from runner.schema import step_graph
from runner.schema.record import Plan, PlannedStep, Resources

TIMES = 4  # multiple of the expected time
# Steps that are fast or have an estimate.
COUNTED = ("train", "tune", "tokenize", "conversations", "evaluate", "generate", "benchmark")
LEAST = 3600.0  # seconds
SIZED = ("train", "tokenize", "evaluate")  # steps of arms and seeds, with an estimate
STARTING = 60.0  # seconds in which a step starts and compiles
STEP = 0.02  # seconds of a training step, however small its model is
TRIAL = 30.0  # seconds, with which each trial of a search may begin and end


def largest(plan: Plan) -> Resources:
    """The devices of the plan's largest part."""
    wanted = [plan.resources, *(step.resources for step in plan.steps.values())]
    kinds = plan.kinds  # old plans may name one that there is no longer

    def speed(of: Resources) -> float:
        return kinds[of.kind].peak_flops * of.count if of.kind in kinds else 0.0

    return max(wanted, key=speed)


def limit_seconds(plan: Plan, hours_without_estimate: float) -> float:
    """Seconds after which the plan's execution is stopped, all its attempts together."""
    searches = (step.config["search"] for step in plan.steps.values() if step.do == "tune")
    trials = sum(search["trials"] for search in searches)
    limit = max(LEAST, TIMES * plan.cost.seconds[1] + TRIAL * trials)
    ceiling = ceiling_seconds(plan)
    counted = all(step.do in COUNTED and not step.own for step in plan.steps.values())
    if plan.cost.uncounted or not counted:
        # The approver sees the ceiling, and it is reserved from the budget.
        return ceiling or limit + hours_without_estimate * 3600
    return min(limit, ceiling or limit)


def ceiling_seconds(plan: Plan) -> float | None:
    """The wall time after which the plan reaches its declared ceiling; None if it has none."""
    return plan.ceiling_hours * 3600 / largest(plan).count if plan.ceiling_hours else None


def at_once(plan: Plan) -> Counter[str]:
    """The maximum number of devices of each kind that the plan's execution holds at a time. Its
    runs take turns. Steps run in parallel unless one needs the other: in a chain of such steps,
    only one at a time holds devices."""
    if not plan.steps:
        return Counter({plan.resources.kind: plan.resources.count})
    together: Counter[str] = Counter()
    for chain in _chains(plan.steps):
        most: Counter[str] = Counter()
        for name in chain:
            wanted = plan.steps[name].resources
            most |= Counter({wanted.kind: wanted.count})  # maximum per kind
        together += most
    return together


def _chains(steps: Mapping[str, PlannedStep]) -> list[list[str]]:
    """All steps, in chains in which each step needs the previous ones, directly or not. Not always
    the fewest chains; independent steps are never in one chain."""
    order = step_graph.order({name: step.needs for name, step in steps.items()})
    before: dict[str, int] = {}  # sets of positions in `order`, as bits
    chains: dict[int, list[str]] = {}  # by the position of their last step
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


def reserved(plan: Plan, limit: float) -> dict[str, float]:
    """The device-seconds of each kind that an approval reserves: all devices for the limit of time
    in seconds; if the plan only trains and scores the lab's own models, a multiple of the expected
    use, if that is less. The actual use is charged at the end."""
    most = {kind: count * limit for kind, count in sorted(at_once(plan).items())}
    expected, steps, counts = plan.cost.device_seconds, plan.steps.values(), Counter[str]()
    sized = all(step.do in SIZED and not step.own for step in steps)
    if not (sized and expected and steps and plan.data and plan.arms) or plan.cost.uncounted:
        return most
    for step in steps:
        counts[step.resources.kind] += step.resources.count
    passes = 1 + max(len(step.snapshots) for step in steps)  # of scoring, of each run
    share = passes * plan.eval.tokens / max(1, min(arm.tokens for arm in plan.arms.values()))
    each = STARTING + STEP * max(arm.train.num_train_steps for arm in plan.arms.values())
    trained = {kind: (1 + share) * expected.get(kind, (0, 0))[1] for kind in most}
    return {kind: min(most[kind], TIMES * (trained[kind] + each * counts[kind])) for kind in most}


def device_hours(plan: Plan, seconds: float) -> float:
    """The maximum device-hours of the plan's execution in this time, all kinds together."""
    return at_once(plan).total() * seconds / 3600
