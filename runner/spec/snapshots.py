"""The snapshots that training keeps (`evaluate_every`), as a plan shows them. Pure."""

from collections.abc import Mapping

from engine.config import flops, memory
from engine.config.schema import ModelConfig
from runner.lib.format import many
from runner.schema.record import PlannedStep


def told(steps: Mapping[str, PlannedStep]) -> str | None:
    """How many there are and the disk that they take, as a clause; None if there are none."""
    keep = [step for step in steps.values() if step.snapshots]
    if not keep:
        return None
    known = [step for step in keep if "model" not in step.config["own"]]
    disk = sum(len(step.snapshots) * _bytes(step) for step in known)
    of = many(len(keep), "run")
    words = f"{many(sum(len(step.snapshots) for step in keep), 'snapshot')} of {of}"
    amounts = [memory.size(disk)] if known else []
    amounts += ["an unknown amount (own models)"] if len(known) < len(keep) else []
    return f"{words}, which take {' and '.join(amounts)} of disk"


def _bytes(step: PlannedStep) -> int:
    return memory.FLOAT32 * flops.parameters(ModelConfig.model_validate(step.config["model"]))
