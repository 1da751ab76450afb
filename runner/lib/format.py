"""How the lab writes numbers and durations in comments, on pages and in the terminal."""

import math
import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

CENT = 0.01  # US dollars
LONG = 72 * 3600  # seconds; longer durations are written in days
NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)")

UNKNOWN = "–"


def natural(name: str) -> tuple[list[str | float], str]:
    """A sort key for names: `w8` comes before `w16`, and `rate=0.02` before `rate=0.1`."""
    parts = enumerate(NUMBER.split(name))
    return [float(part) if n % 2 else part for n, part in parts], name


def flops(value: float | None) -> str:
    """`2.60e12`; a dash for None."""
    if value is None:
        return UNKNOWN
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def count(value: int | None) -> str:
    """`1,234,567`; a dash for None."""
    return UNKNOWN if value is None else f"{value:,}"


def many(value: int, what: str) -> str:
    """`1 run`, `1,234 runs`."""
    return f"{value:,} {what}" if value == 1 else f"{value:,} {what}s"


def first_of(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def full_stop(clause: str) -> str:
    """The clause as the end of a sentence; a question keeps its mark."""
    return clause if clause.endswith((".", "?", "!", "…")) else f"{clause}."


def percent(share: float) -> str:
    """`12.5 %` for 0.125."""
    return f"{share * 100:.3g} %"


def sure(confidence: float) -> str:
    """`80 % sure`, with non-breaking spaces."""
    return f"{percent(confidence)} sure".replace(" ", "\u00a0")


def dollars(price: float) -> str:
    """`1.50 US$`; `under 0.01 US$`."""
    return f"{price:,.2f} US$" if price >= CENT / 2 else "under 0.01 US$"


def duration(seconds: float) -> str:
    """`under 1 s`, `34 s`, `2 min 5 s`, `3 h 10 min`, `31 d 9 h`; `unknown` for nan."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 1:
        return "under 1 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < LONG:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def between(low: float, high: float) -> str:
    """`34 s to 2 min 5 s`; only one of them if both read alike: `under 1 s`."""
    return " to ".join(dict.fromkeys((duration(low), duration(high))))


def flow(value: Any) -> str:
    """Configuration as YAML on one line, without keys that are None: `{at: 9, lr_schedule:
    cosine}`."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def size(value: int) -> str:
    """`0 B`, `1.5 kB`, `12 MB`."""
    amount, names = float(value), ("B", "kB", "MB", "GB", "TB")
    for name in names:
        if amount < 999.5 or name == names[-1]:
            break
        amount /= 1000
    return f"{amount:.3g} {name}"
