"""Building blocks of configurations: base class, counts, spans of steps, validation errors."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

MAX_COUNT = 2**31 - 1  # the largest count that an int32 index on the device can hold

MAX_WIDTH = 2**20  # of anything inside a block
MAX_LAYERS = 4096
MAX_PARTS = 2**16  # along an axis of a mesh

Count = Annotated[int, Field(gt=0, le=MAX_COUNT)]
Width = Annotated[int, Field(gt=0, le=MAX_WIDTH)]
Parts = Annotated[int, Field(gt=0, le=MAX_PARTS)]


def refusal(sentence: str, **values: Any) -> PydanticCustomError:
    """A validation error whose message is `sentence`, with `{name}` filled in from `values`."""
    return PydanticCustomError("cannot_work", sentence, values)


class Config(BaseModel):
    """Frozen and hashable. Refuses unknown keys. "128", 128.0 and true are not integers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def _span(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("float_type", "a span is a number")
    if isinstance(value, int):
        if not 0 <= value <= MAX_COUNT:
            raise refusal(f"{value} steps cannot be; write 0 or more")
    elif not 0 <= value <= 1:
        raise refusal(
            f"{value} is neither a fraction of the run (0.0 to 1.0) nor a whole number of steps; "
            "write one of them"
        )
    return value


_ANY_SPAN = Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0, le=1)]  # as a schema says it
Span = Annotated[
    int | float, PlainValidator(_span, json_schema_input_type=_ANY_SPAN)
]  # 0.1: a tenth of the run; 100: steps


def span_steps(span: int | float, num_train_steps: int) -> int:
    """How many of `num_train_steps` steps a span means: an int is a number of steps, a float is a
    fraction of all steps, rounded (ties to even)."""
    return span if isinstance(span, int) else round(span * num_train_steps)


def divisors(number: int) -> list[int]:
    """All divisors up to 512."""
    return [n for n in range(1, min(number, 512) + 1) if number % n == 0]


def listed(numbers: list[int]) -> str:
    """The first numbers as text, for an error message."""
    return ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
