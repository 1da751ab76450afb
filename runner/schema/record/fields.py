"""Fields that several kinds of records use."""

from typing import Literal, TypeVar

from runner.lib.base_record import Record
from runner.lib.base_record import since as since

R = TypeVar("R", bound="Record")

Isolated = Literal["", "bubblewrap", "trusted"]  # how own code is isolated; "": it is not run
