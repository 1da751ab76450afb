"""All settings of a plan's arms by their whole names, and those in which the arms differ. Pure."""

from collections.abc import Collection, Mapping
from typing import Any

from runner.lib import format
from runner.schema.record import Plan

Settings = Mapping[str, Mapping[str, Any]]  # of an arm, by section


def settings(plan: Plan) -> dict[str, Settings]:
    """How each arm is trained, as {section: {key: value}}."""
    steps = {arm: plan.steps[name].config for (arm, _), name in plan.trained().items()}
    return {
        name: {
            "model": arm.model.model_dump(mode="json", exclude_none=True),
            "train": arm.train.model_dump(mode="json", exclude_none=True),
            "own": arm.own,
            "options": steps.get(name, {}).get("options", {}),
            "compute": steps.get(name, {}).get("compute", {}),
        }
        for name, arm in plan.arms.items()
    }


def flat(arm: Settings) -> dict[str, str]:
    """An arm's settings by their whole names, as `train.learning_rate`."""
    return {
        f"{section}.{key}": format.flow(value)
        for section, values in arm.items()
        for key, value in values.items()
        if value is not None
    }


def differing(arms: Collection[Mapping[str, str]]) -> list[str]:
    """The names of the settings in which flat arms differ. Of models of several kinds, only what
    all of them have: the function that makes a model differs, too."""
    alike = len({arm.get("own.model") for arm in arms}) == 1
    return [
        name
        for name in dict.fromkeys(name for arm in arms for name in arm)
        if len({arm.get(name) for arm in arms}) > 1
        if alike or not name.startswith("model.") or all(name in arm for arm in arms)
    ]
