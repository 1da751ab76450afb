"""Upper bounds for figures, texts and lists that a job, a step or a stranger wrote, and the only
parser for their JSON. Everything that enters the lab from them has one of these types, so later
code need not check again.

The bounds are far above what any honest job writes, and small enough that squares, sums and
quotients of figures stay within a float.
"""

import json
import math
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, Field, StringConstraints, TypeAdapter

from runner.lib.canonical_json import once

MOST_COUNT = 2**63 - 1
MOST_AMOUNT = 10**60  # for products of counts, such as the model FLOPs of a run
MOST_FIGURE = 1e40  # float32 ends at 3.4e38
MOST_SECONDS = 1e10  # about 300 years
MOST_WORDS = 4_000  # characters
MOST_KEPT = 4 << 20  # bytes of one JSON text; parsed it takes 30 times as much memory

T = TypeVar("T")

Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]  # of anything, also bytes
Step = Annotated[int, Field(ge=1, le=MOST_COUNT)]  # of training, from 1
Whole = Annotated[int, Field(ge=-MOST_COUNT, le=MOST_COUNT)]
Amount = Annotated[int, Field(ge=0, le=MOST_AMOUNT)]
Figure = Annotated[float, Field(ge=-MOST_FIGURE, le=MOST_FIGURE, allow_inf_nan=False)]
Size = Annotated[float, Field(ge=0, le=MOST_FIGURE, allow_inf_nan=False)]  # a figure ≥ 0
Speed = Annotated[float, Field(ge=1e-3, le=MOST_FIGURE, allow_inf_nan=False)]  # safe to divide by
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)]
Word = Annotated[str, StringConstraints(max_length=500)]
Words = Annotated[str, StringConstraints(max_length=MOST_WORDS)]


def parse(kind: type[T] | TypeAdapter[T], data: bytes, most: int = MOST_KEPT) -> T:
    """Parse the JSON text `data` of at most `most` bytes as `kind`. Raises only ValueError, for any
    bytes; a ValidationError if it is JSON of another form."""
    plain(data, most)
    if isinstance(kind, TypeAdapter):
        return kind.validate_json(data)
    if issubclass(kind, BaseModel):
        return kind.model_validate_json(data)
    return TypeAdapter(kind).validate_json(data)


def plain(data: bytes, most: int = MOST_KEPT) -> Any:
    """Parse JSON that every reader understands alike: in UTF-8, without duplicate keys, NaN, or
    integers too long or lists too deep for Python. Raises ValueError for any other text."""
    if len(data) > most:
        raise ValueError(f"it is larger than {most} bytes")
    try:
        return json.loads(
            data.decode(),
            object_pairs_hook=once,
            parse_constant=_no_figure,
            parse_float=_finite,
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _finite(text: str) -> float:
    return found if math.isfinite(found := float(text)) else _no_figure(text)


def _no_figure(name: str) -> NoReturn:
    raise ValueError(f"{name} is no figure")
