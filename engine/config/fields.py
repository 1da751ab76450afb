"""What configurations are made of: their base, counts, spans of steps, and refusals in words."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

MAX_COUNT = 2**31 - 1  # what an int32 index on the device can count

Count = Annotated[int, Field(gt=0, le=MAX_COUNT)]


def refusal(sentence: str, **values: Any) -> PydanticCustomError:
    """A validation error whose message is `sentence`, with `{name}` filled in from `values`."""
    return PydanticCustomError("cannot_work", sentence, values)


class Config(BaseModel):
    """Frozen and hashable; unknown keys are refused; "128", 128.0 and true are no integers."""

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


Span = Annotated[int | float, PlainValidator(_span)]  # 0.1: a tenth of the run; 100: steps


def span_steps(span: int | float, num_train_steps: int) -> int:
    """How many of `num_train_steps` steps a span is: itself if it is an int, else that fraction
    of them, rounded (ties to even)."""
    return span if isinstance(span, int) else round(span * num_train_steps)


def divisors(number: int) -> list[int]:
    """Those of up to 512."""
    return [n for n in range(1, min(number, 512) + 1) if number % n == 0]


def listed(numbers: list[int]) -> str:
    """The first ones, to choose from."""
    return ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
