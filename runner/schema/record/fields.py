"""What records of several kinds are written with."""

from typing import Any, Literal, TypeVar

from pydantic import Field

from runner.lib.base_record import Record

R = TypeVar("R", bound="Record")

Isolated = Literal["", "bubblewrap", "trusted"]  # how own code is kept apart; "": it is not run


def since(default: Any) -> Any:
    """A field that older records do not have. It is left out where it says nothing, so that those
    keep their bytes and with them their digests and signatures."""
    return Field(default=default, exclude_if=lambda value: value == default)
