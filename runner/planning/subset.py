"""The subset of a plan that an approval may choose: arms and seeds. Pure. It only removes runs.

arms=slow,fast seeds=0,1
"""

import re
from collections.abc import Collection

from runner.lib.problems import nearest, quoted
from runner.planning import cost as planning_cost
from runner.planning import limits
from runner.schema import plan_fingerprint, step_graph
from runner.schema.record import Narrowing, Plan, PlanRecord

MAX_KNOWN = 20  # known arms or seeds that an error lists


def read(words: str, plan: Plan) -> Narrowing | str:
    """Parse the words after a command. Returns what remains of the plan, or everything that is
    wrong with them (as clauses that advice can follow)."""
    known = {"arms": tuple(plan.arms), "seeds": tuple(map(str, plan.seeds))}
    wanted: dict[str, list[str]] = {}
    wrong: list[str] = []
    if plan.data is None and words.strip():
        return "a plan of steps can only run as a whole"
    for word in re.sub(r"\s*,\s*", ",", words.strip()).split():
        name, equals, value = word.partition("=")
        if not equals or name not in known:
            meant = nearest(name, known)
            instead = f"; write {quoted(f'{meant}={value}')}" if meant else ""
            wrong.append(f"{quoted(word)} is neither `arms=` nor `seeds=`{instead}")
            name = meant or name
        if name in wanted:
            wrong.append(f"`{name}=` is here twice; write `{name}=` once, with commas")
        elif name in known:
            wanted[name] = value.split(",")
    if plan.rung and "arms" in wanted:
        wrong.append("a rung needs both of its arms, because its gate compares them")
    for name, values in wanted.items():
        for one in values:
            if one not in known[name]:
                meant = nearest(one, known[name])
                there = (
                    f"write `{meant}`" if meant else f"it has {', '.join(known[name][:MAX_KNOWN])}"
                )
                wrong.append(f"the plan has no {name[:-1]} {quoted(one)}; {there}")
    for arm in dict.fromkeys(one for prediction in plan.predictions for one in prediction.arms):
        if arm not in wanted.get("arms", [arm]):
            wrong.append(f"the preregistration has a prediction about the arm `{arm}`")
    if wrong:
        return "; ".join(wrong)
    kept = {name: [one for one in known[name] if one in wanted[name]] for name in wanted}
    return Narrowing.model_validate(kept)


def line(narrowing: Narrowing) -> str:
    """The words for this subset; empty if it leaves out nothing."""
    said = {"arms": narrowing.arms, "seeds": narrowing.seeds}
    return " ".join(
        f"{key}={','.join(map(str, value))}" for key, value in said.items() if value is not None
    )


def narrowed(plan: Plan, narrowing: Narrowing) -> Plan:
    """The plan with the remaining runs, its cost and its fingerprint; the same plan if all
    remain."""
    arms = plan.arms if narrowing.arms is None else narrowing.arms
    left = only(plan, arms, plan.seeds if narrowing.seeds is None else narrowing.seeds)
    same = (len(left.arms), len(left.seeds)) == (len(plan.arms), len(plan.seeds))
    return plan if same else counted(left)


def counted(plan: Plan) -> Plan:
    """The plan with cost and fingerprint computed again."""
    plan = plan.model_copy(update={"cost": planning_cost.of(plan)})
    return plan.model_copy(update={"fingerprint": plan_fingerprint.fingerprint(plan)})


def only(plan: Plan, arms: Collection[str], seeds: Collection[int]) -> Plan:
    """The plan with only these arms and seeds and the remaining steps. Cost and fingerprint stay as
    they were."""
    gone = {
        name for (arm, seed), name in plan.trained().items() if arm not in arms or seed not in seeds
    }
    used = {of for name, step in plan.steps.items() if name not in gone for of in step.needs}
    gone |= {name for name, step in plan.steps.items() if step.do == "tune" and name not in used}
    left = {
        name: step_graph.without(step, gone)
        for name, step in plan.steps.items()
        if name not in gone
    }
    return plan.model_copy(
        update={
            "arms": {name: arm for name, arm in plan.arms.items() if name in arms},
            "seeds": tuple(seed for seed in plan.seeds if seed in seeds),
            "steps": {name: step for name, step in left.items() if step},
        }
    )


def remaining(proposed: PlanRecord, narrowing: Narrowing | None) -> tuple[Plan, float | None]:
    """The part of a proposed plan that an approval approves, and its limit of wall time in seconds
    (None for old plans without limits)."""
    plan, limit = proposed.plan, proposed.limit_seconds
    if plan is None:
        raise AssertionError(f"plan {proposed.n} names problems, and leaves nothing to run")
    left = narrowed(plan, narrowing or Narrowing())
    if limit is None or left is plan or left.cost.uncounted:
        return left, limit
    return left, min(limit, limits.limit_seconds(left, 0))


def deviations(plan: Plan, narrowing: Narrowing) -> tuple[str, ...]:
    """What is left out of the plan, as sentences."""
    found = []
    arms, seeds = narrowing.arms, narrowing.seeds
    if gone := [f"`{arm}`" for arm in plan.arms if arms is not None and arm not in arms]:
        found.append(f"It leaves out {len(gone)} of {len(plan.arms)} arms: {', '.join(gone)}.")
    if gone := [str(seed) for seed in plan.seeds if seeds is not None and seed not in seeds]:
        found.append(f"It leaves out {len(gone)} of {len(plan.seeds)} seeds: {', '.join(gone)}.")
    return tuple(found)
