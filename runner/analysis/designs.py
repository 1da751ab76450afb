"""Whether two plans have the same design, which runs are the same, and how designs differ. Pure."""

import hashlib
from typing import Any

from runner.analysis.comparability import scored_on
from runner.analysis.forecast import SAVING
from runner.lib.canonical_json import to_json
from runner.lib.lab_code import LAB_CODE
from runner.schema import record, step_graph
from runner.spec import measured


def same_design(one: record.Plan, other: record.Plan) -> bool:
    """Whether two plans have the same design, independent of the lab that computed their
    fingerprints. If predictions are about arms of a ladder, all its rungs are one design."""
    if one.rung and other.rung and one.rung.n != other.rung.n:
        return one.rung.ladder == other.rung.ladder is not None and _rest(one) == _rest(other)
    return one.fingerprint == other.fingerprint or not design_diff(one, other)


def design_diff(before: record.Plan, after: record.Plan) -> list[str]:
    """How two designs differ, as lines of a diff: whole arms, keys of common arms, seeds, steps of
    a graph, text, evaluation and devices."""
    lines = []
    arms = _arms(before), _arms(after)
    for name in sorted(before.arms.keys() | after.arms.keys()):
        one, other = (these.get(name) for these in arms)
        if one and other:
            lines += _changed(f"arms.{name}.", one, other)
        else:
            lines.append(f"{'-' if one else '+'} arms.{name}")
    lines += _changed("", _rest(before), _rest(after))
    if not (before.data and after.data):  # otherwise the arms show it
        found = step_graph.differences(before.steps, after.steps)
        lines += [f"! {name}: {why}" for name, why in found]
    return lines


def _arms(plan: record.Plan) -> dict[str, dict[str, Any]]:
    """What determines the results of each arm, without the lab's version and most of how it is
    computed: model and recipe; the own functions that its training calls, their options and code;
    the dtype if it is set; and, if it has them, how it continues a model and on what its loss is.
    """
    steps = {arm: plan.steps[name] for (arm, _), name in plan.trained().items()}
    found = {}
    for name, arm in plan.arms.items():
        config, code = (steps[name].config, steps[name].code) if name in steps else ({}, {})
        found[name] = {
            "model": arm.model.model_dump(mode="json"),
            "train": arm.train.model_dump(mode="json"),
            "own": arm.own,
            "options": config.get("options", {}),
            "dtype": config.get("compute", {}).get("dtype"),
            "code": {name: sha256 for name, sha256 in code.items() if name != LAB_CODE},
        } | {key: config[key] for key in ("init", "loss_on") if key in config}
    return found


def _rest(plan: record.Plan) -> dict[str, Any]:
    data = plan.data.model_dump(mode="json") if plan.data else {}
    return {
        "seeds": ", ".join(map(str, plan.seeds)),
        "data": {name: value for name, value in data.items() if not name.endswith("_tokens")},
        "eval": plan.eval.model_dump(mode="json"),
        "resources": plan.resources.model_dump(mode="json"),
        "measured": {  # beside what `eval` says; steps that are declared themselves show it
            name: step.config
            for name, step in plan.steps.items()
            if plan.data and step.do != "evaluate" and measured.measures(step)
        },
    }


def _changed(under: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    leaves = step_graph.leaves(before), step_graph.leaves(after)
    return [
        f"{sign} {under}{key}: {step_graph.shown(value)}"
        for key, one, other in step_graph.differing(*leaves)
        for sign, value in (("-", one), ("+", other))
    ]


def same_run(plan: record.Plan) -> dict[tuple[str, int], str]:
    """{(arm, seed): a digest that is equal for equal runs}: equal models, recipes and seeds on the
    same text with the same evaluation, in any plan."""
    found, trained, scored = {}, plan.trained(), scored_on(plan)
    alike = {name: _comes_to(arm) for name, arm in _arms(plan).items()}
    for arm, seed in plan.runs():
        step = plan.steps.get(trained.get((arm, seed), ""))
        texts = [plan.data.train_sha256] if plan.data else []
        texts += sorted(x for made in step.inputs.values() for x in made.values()) if step else []
        whole = to_json([alike[arm], seed, texts, scored.text if scored else None])
        found[arm, seed] = hashlib.sha256(whole).hexdigest()
    return found


def _comes_to(arm: dict[str, Any]) -> list[Any]:
    """The parts of an arm that determine its figures: own code only if it is called."""
    train = {key: value for key, value in arm["train"].items() if key not in SAVING}
    own = [arm[key] for key in ("own", "options", "dtype", "code")] if arm["own"] else []
    return [arm["model"], train, own, arm.get("init"), arm.get("loss_on")]


def pooled(plan: record.Plan) -> str:
    """What a design averages, as a clause."""
    seeds = ", ".join(map(str, plan.seeds))
    if len(plan.seeds) == 1:
        return f"each score is of the one seed {seeds}"
    each = f"each score is the mean over the seeds {seeds}"
    return (
        f"{each}, and a difference is the mean of the differences between runs with the same seed"
    )
