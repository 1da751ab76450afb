"""Whether something that was run again came out the same: bit for bit, or within a tolerance."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from runner.record import Evaluated

TOLERANCE = 0.01  # of the bits per byte: what another device or version may move them by

How = Literal["bit for bit", "within the tolerance", "differs", "not comparable"]


@dataclass(frozen=True)
class Comparison:
    """One run, before and now."""

    how: How
    words: str


def compare(
    before: Mapping[str, Evaluated | None], now: Mapping[str, Evaluated | None]
) -> dict[str, Comparison]:
    """How each run of `before` came out this time, by the digest of its parameters and by its bits
    per byte."""
    return {name: _compare(one, now.get(name)) for name, one in before.items()}


def _compare(before: Evaluated | None, now: Evaluated | None) -> Comparison:
    if before is None or now is None:
        words = "it had no figure then" if before is None else "it has no figure now"
        return Comparison("not comparable", words)
    if before == now:
        return Comparison("bit for bit", f"{now.bpb:.4f} bits per byte, the same parameters")
    words = f"{before.bpb:.4f} then, {now.bpb:.4f} now"
    if abs(now.bpb - before.bpb) <= TOLERANCE * before.bpb:
        return Comparison("within the tolerance", f"{words}: at most {TOLERANCE:.0%} apart")
    return Comparison("differs", f"{words}: more than {TOLERANCE:.0%} apart")


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What of two receipts is not the same, so that equal bits were not promised. Of the cores only
    their number counts."""
    before, now = _counted(before), _counted(now)
    return [
        f"{name}: {before.get(name, 'none')} then, {now.get(name, 'none')} now"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def _counted(receipt: Mapping[str, str]) -> dict[str, str]:
    cores = receipt.get("affinity", "")
    return {**receipt, "affinity": f"{len(cores.split(','))} cores"} if cores else dict(receipt)
