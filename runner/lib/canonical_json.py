"""JSON in one form, so that equal values have equal bytes."""

import json
from typing import Any

CANONICAL = json.JSONEncoder(  # made once; `json.dumps` would make one per value
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads(…, object_pairs_hook=once)`: refuses duplicate keys, of which some parsers
    take the first and others the last. Raises ValueError."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:100]!r} stands twice")
        found[key] = value
    return found


def to_json(value: object) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8, no NaN. Equal values have equal bytes."""
    return CANONICAL.encode(value).encode() + b"\n"
