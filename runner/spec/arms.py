"""An arm of the short form: what it changes in the common settings."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from runner.lib.yaml_lines import Path
from runner.schema.record import ARM_NAME

ArmName = Annotated[str, StringConstraints(pattern=f"^{ARM_NAME}$")]

MODEL = "the shape; with a model of your own, its own keys"
TRAIN = "how it is trained"


class Arm(BaseModel):
    """The keys that an arm may change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: dict[str, Any] = Field(default={}, description=MODEL)
    train: dict[str, Any] = Field(default={}, description=TRAIN)
    own: dict[str, Any] = Field(
        default={}, description="functions of this folder in place of the lab's"
    )
    options: dict[str, Any] = Field(default={}, description="what only own functions read")
    compute: dict[str, Any] = Field(
        default={}, description="mesh, number format, rematerialisation"
    )


class Layer(NamedTuple):
    """Changes, and where the file has them."""

    at: Path
    arm: Arm
    derived: bool = False  # the values follow from what is at this place


def completed(layers: Iterable[Layer]) -> dict[str, dict[str, Any]]:
    """The configuration of an arm's runs without their seed; later layers win."""
    found: dict[str, dict[str, Any]] = {section: {} for section in Arm.model_fields}
    for layer in layers:
        for section, known in found.items():
            known |= getattr(layer.arm, section)
    return found


def place(layers: Mapping[str, tuple[Layer, ...]], arm: str, inside: Path) -> Path:
    """Where the file has a part of an arm's configuration."""
    for layer in reversed(layers.get(arm, ())):
        changed = getattr(layer.arm, str(inside[0]), {})
        if inside[1] in changed if inside[1:] else bool(changed):
            return layer.at if layer.derived else (*layer.at, *inside)
    return inside
