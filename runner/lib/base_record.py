"""What every record is: immutable, in canonical bytes, with a digest."""

import hashlib
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from runner.lib.canonical_json import to_json


class Record(BaseModel):
    """A fact. Immutable; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def canonical(self) -> bytes:
        """The record's bytes: equal facts have equal bytes."""
        return to_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return hashlib.sha256(self.canonical()).hexdigest()


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Instant = AwareDatetime
