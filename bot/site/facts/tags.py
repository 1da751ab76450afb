"""Tags of an experiment, by which people find it: what its arms differ in, what kind of study it
is, its text and its devices. They follow from the plan, so that nobody has to write them. Pure.
"""

from collections.abc import Iterator
from typing import Any

from runner.schema import record

MAX_SETTINGS = 4  # that arms differ in; more say nothing
DATA = {"filter", "dedup", "decontaminate", "extract", "label", "classify", "select", "mix"}
BY_STEP = {
    "tune": "tuning",
    "conversations": "conversations",
    "benchmark": "benchmarks",
    "generate": "samples",
    "import": "imported model",
    **dict.fromkeys(DATA, "data"),
}


def tags(plan: record.Plan) -> tuple[str, ...]:
    """Its tags, each once: kinds first, then settings, text and devices."""
    return tuple(dict.fromkeys([*_kinds(plan), *_settings(plan), *_place(plan)]))


def _kinds(plan: record.Plan) -> Iterator[str]:
    studies = {
        "speedrun": plan.speedrun,
        "ladder": plan.rung,
        "ablation": plan.ablation,
        "IsoFLOP": plan.isoflop,
        "own code": plan.own_code() or any(arm.own for arm in plan.arms.values()),
        "experts": any(getattr(arm.model, "moe", None) for arm in plan.arms.values()),
        "fine-tuning": any(
            step.do == "train" and "init" in step.inputs for step in plan.steps.values()
        ),
    }
    yield from (name for name, found in studies.items() if found)
    yield from sorted({BY_STEP[step.do] for step in plan.steps.values() if step.do in BY_STEP})


def _settings(plan: record.Plan) -> Iterator[str]:
    arms = [_knobs(arm) for arm in plan.arms.values()]
    keys = {key: None for arm in arms for key in arm}
    differ = [key for key in keys if any(arm.get(key) != arms[0].get(key) for arm in arms)]
    if len(differ) <= MAX_SETTINGS:
        yield from differ


def _knobs(arm: record.PlannedArm) -> dict[str, Any]:
    """Settings by name, of own functions the parts of the training that they replace."""
    return {
        **dict(arm.model),
        **dict(arm.train),
        **{f"own {part}": of for part, of in arm.own.items()},
    }


def _place(plan: record.Plan) -> Iterator[str]:
    if plan.data:
        yield plan.data.source
    yield plan.resources.kind
