"""Python's plain values as JSON and back: how two processes that do not trust each other call
functions. Nothing but plain values comes out of `decode`, whatever it is given. Pure."""

import math
from typing import Any

GROUPS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def encode(value: Any) -> Any:
    """The value for JSON; instances of subclasses count as their base. Raises TypeError for a value
    that is not plain, and RecursionError for one that contains itself."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, complex):
        return {"complex": [encode(value.real), encode(value.imag)]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(of)] for key, of in value.items()]}
    for name, kind in GROUPS.items():
        if isinstance(value, kind):
            return {name: [encode(of) for of in value]}
    raise TypeError(f"a {type(value).__name__} is no plain value")


def decode(found: Any) -> Any:
    """The inverse of `encode`. Raises ValueError, TypeError and RecursionError."""
    if found is None or isinstance(found, bool | int | float | str):
        return found
    if not isinstance(found, dict) or len(found) != 1:
        raise ValueError("this is no encoded value")
    [(kind, of)] = found.items()
    if kind == "float":
        return float(of)
    if kind == "complex":
        real, imaginary = map(decode, of)
        return complex(real, imaginary)
    if kind == "bytes":
        return bytes.fromhex(of)
    if kind == "dict":
        return {decode(key): decode(value) for key, value in of}
    if kind in GROUPS:
        return GROUPS[kind](decode(one) for one in of)
    raise ValueError(f"there is no kind of value {kind!r}")
