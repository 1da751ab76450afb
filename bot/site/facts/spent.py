"""Hardware FLOPs of a run, and how they are known. Pure.

What was measured from outside comes first, then the speed that the lab's own training code
reported; without either, the plan's estimate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from runner.schema import record
from runner.schema.devices import UTILISATION


@dataclass(frozen=True)
class Spent:
    """Hardware FLOPs of one run, or the limits of their estimate."""

    low: float
    high: float
    how: Literal["measured", "reported", "estimated"]


def spent(
    plan: record.Plan,
    arm: str,
    runs: Sequence[record.Run],
    entered: Sequence[record.EnteredRun],
) -> Spent | None:
    """What the devices could have computed while one run of an arm trained. `runs` and `entered`
    are those of all arms. None if unknown."""
    measured = [run.hardware_flops for run in entered if run.arm == arm]
    if measured and None not in measured:
        whole = fmean(value for value in measured if value is not None)
        return Spent(whole, whole, "measured")
    kind, planned = plan.kinds.get(plan.resources.kind), plan.arms[arm]
    speeds = [run.tokens_per_second or 0.0 for run in runs if run.arm == arm]
    if kind and any(speeds):
        peak = plan.resources.count * kind.peak_flops
        whole = planned.tokens / fmean(speed for speed in speeds if speed) * peak
        return Spent(whole, whole, "reported")
    if planned.model_flops is None:
        return None
    good, poor = (planned.model_flops / share for share in UTILISATION)
    return Spent(good, poor, "estimated")
