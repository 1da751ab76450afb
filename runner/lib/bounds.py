"""What a figure, a word or a list may be at most that a job, a step or a stranger has written, and
the one way to read their JSON. All that enters the lab from them has one of these types, so that
what reckons with it later need not ask.

The bounds are far from what any honest job writes, and near enough that squares, sums and quotients
of figures stay within a float.
"""

import json
import math
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, Field, StringConstraints, TypeAdapter

from runner.lib.canonical_json import once

MOST_COUNT = 2**63 - 1
MOST_AMOUNT = 10**60  # a product of counts: the model FLOPs of a run, say
MOST_FIGURE = 1e40  # float32 ends at 3.4e38
MOST_SECONDS = 1e10  # some 300 years
MOST_WORDS = 4_000  # characters
MOST_KEPT = 4 << 20  # bytes of one JSON text; in memory it takes thirty times as much

T = TypeVar("T")

Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]  # of anything, and bytes
Step = Annotated[int, Field(ge=1, le=MOST_COUNT)]  # of training, from 1 on
Whole = Annotated[int, Field(ge=-MOST_COUNT, le=MOST_COUNT)]
Amount = Annotated[int, Field(ge=0, le=MOST_AMOUNT)]
Figure = Annotated[float, Field(ge=-MOST_FIGURE, le=MOST_FIGURE, allow_inf_nan=False)]
Size = Annotated[float, Field(ge=0, le=MOST_FIGURE, allow_inf_nan=False)]  # a figure from 0 on
Speed = Annotated[float, Field(ge=1e-3, le=MOST_FIGURE, allow_inf_nan=False)]  # one can divide by
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)]
Word = Annotated[str, StringConstraints(max_length=500)]
Words = Annotated[str, StringConstraints(max_length=MOST_WORDS)]


def parse(kind: type[T] | TypeAdapter[T], data: bytes, most: int = MOST_KEPT) -> T:
    """What the JSON text `data` of at most `most` bytes says, as `kind` has it. Raises ValueError,
    and nothing else for any bytes; a ValidationError where it is JSON of another form."""
    plain(data, most)
    if isinstance(kind, TypeAdapter):
        return kind.validate_json(data)
    if issubclass(kind, BaseModel):
        return kind.model_validate_json(data)
    return TypeAdapter(kind).validate_json(data)


def plain(data: bytes, most: int = MOST_KEPT) -> Any:
    """What a JSON text says that every reader understands alike: in UTF-8, no key twice, no NaN, no
    integer too long or list too deep for Python. Raises ValueError for any other."""
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
