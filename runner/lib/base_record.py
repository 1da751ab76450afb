"""The base of every record: immutable, with canonical bytes and a digest."""

import hashlib
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from runner.lib.canonical_json import to_json


class Record(BaseModel):
    """A recorded fact. Immutable; refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def canonical(self) -> bytes:
        """The record's bytes: equal records have equal bytes."""
        return to_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return hashlib.sha256(self.canonical()).hexdigest()


def since(default: Any) -> Any:
    """A field that older records do not have. It is left out if it has its default, so that older
    records keep their bytes, digests and signatures."""
    return Field(default=default, exclude_if=lambda value: value == default)


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Instant = AwareDatetime
