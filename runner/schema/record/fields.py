"""Fields that several kinds of records use."""

from typing import Any, Literal, TypeVar

from pydantic import Field

from runner.lib.base_record import Record

R = TypeVar("R", bound="Record")

Isolated = Literal["", "bubblewrap", "trusted"]  # how own code is isolated; "": it is not run


def since(default: Any) -> Any:
    """A field that older records do not have. It is left out if it has its default, so that older
    records keep their bytes, digests and signatures."""
    return Field(default=default, exclude_if=lambda value: value == default)
