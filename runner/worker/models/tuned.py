"""Reads what a `tune` step found. It is untrusted, because own code may have trained its trials."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.config.schema import TrainConfig
from runner.lib import bounds, untrusted_files
from runner.lib.own_code_errors import BadOwnCode
from runner.schema.record import Tuned
from runner.spec import tuning
from runner.spec.step_types import SETTINGS
from runner.spec.tuning import TUNABLE, TUNED


def with_settings(config: Mapping[str, Any], inputs: Mapping[str, Path]) -> Mapping[str, Any]:
    """The configuration of a `train` step with the settings of its input, if it has that. Raises
    BadOwnCode for settings that cannot be tuned, and for values that cannot be."""
    if SETTINGS not in inputs:
        return config
    try:
        data = untrusted_files.read(inputs[SETTINGS] / TUNED, bounds.MOST_KEPT)
        found = bounds.parse(Tuned, data or b"null").settings
        train = tuning.with_settings(config["train"], found)
        TrainConfig.model_validate(train)
    except (untrusted_files.Refused, ValidationError, ValueError) as error:
        raise BadOwnCode(f"{TUNED} cannot be read: {error}") from error
    if other := [key for key in found if key not in TUNABLE]:
        raise BadOwnCode(f"{TUNED} has `{other[0]}`, which cannot be tuned")
    return {**config, "train": train}
