"""The gate after a rung of a ladder: is the variant worth the next size? Pure.

The speed-up is how many times the variant's compute the baseline would need for the same loss,
((L_base − c)/(L_variant − c))^(1/b) with the declared floor c and exponent b, times how many times
as fast the variant trained on the same devices, as in Marin's gate. Its 90 % interval covers the
spread between seeds of losses and of speeds, each by the t distribution. Above 1 the gate is
passed, below 1 it has failed, otherwise it is inconclusive. Losses are the lab's own figures;
speeds are as the job reported.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal

from scipy.special import stdtrit

from runner.schema.record import Plan, PlannedRung, Run

LEVEL = 0.9
MAX_POWER = 100.0  # of e, in a speed-up: 10^43 is not plausible

Outcome = Literal["passed", "failed", "inconclusive"]
Sides = Sequence[Sequence[float]]  # the figures over seeds of the baseline and of the variant


class _Refused(Exception):
    """The speed-up cannot be computed; the message says why."""


@dataclass(frozen=True)
class Speedup:
    """How many times the variant's compute the baseline needs for the same loss."""

    estimate: float
    low: float
    high: float
    faster: float  # the part that is due to speed

    @property
    def outcome(self) -> Outcome:
        """The gate's verdict on it."""
        if self.high < 1:
            return "failed"
        return "passed" if self.low > 1 else "inconclusive"


@dataclass(frozen=True)
class Gate:
    """The result of a rung's gate."""

    rung: PlannedRung
    speedup: Speedup | None
    why: str | None = None  # why it could not be computed

    @property
    def outcome(self) -> Outcome:
        """passed, failed or inconclusive."""
        return self.speedup.outcome if self.speedup else "inconclusive"

    @property
    def head(self) -> str:
        """Which gate it is, and its outcome."""
        return f"Gate of rung {self.rung.n} of {self.rung.of}: {self.outcome}."

    @property
    def sentence(self) -> str:
        """The figures and what follows from them; arms as code spans."""
        rung, found = self.rung, self.speedup
        after = f"The plan of rung {rung.n + 1} follows, unless the branch has moved."
        if self.outcome != "passed":
            after = "The bot posts no plan for the next rung."
        elif rung.n == rung.of:
            after = "This was the last rung."
        if found is None:
            why = self.why or ""
            return f"{why[:1].upper()}{why[1:]}. {after}"
        return (
            f"To reach the loss of `{rung.variant}`, `{rung.baseline}` would need "
            f"{found.estimate:.3g} times the compute (90 % interval {found.low:.3g} to "
            f"{found.high:.3g}, with a floor of {rung.floor:g} and an exponent of "
            f"{rung.exponent:g}). A factor of {found.faster:.3g} comes from training speed, as the "
            f"job reported it. {after}"
        )


def gate(plan: Plan, runs: Iterable[Run]) -> Gate | None:
    """The gate of the plan's rung, given its runs; None if the plan is no rung."""
    rung = plan.rung
    if rung is None:
        return None
    found = list(runs)
    sides = [[run for run in found if run.arm == arm] for arm in (rung.baseline, rung.variant)]
    losses = [[run.evaluated.bpb for run in side if run.evaluated] for side in sides]
    speeds = [[run.tokens_per_second for run in side if run.tokens_per_second] for side in sides]
    try:
        if min(map(len, losses)) < len(plan.seeds):
            raise _Refused("a run has no score")
        if min(map(len, speeds)) < len(plan.seeds):
            raise _Refused("a run reported no tokens per second")
        return Gate(rung, _speedup(rung, losses, speeds))
    except _Refused as error:
        return Gate(rung, None, str(error))


def _speedup(rung: PlannedRung, losses: Sides, speeds: Sides) -> Speedup:
    """Raises _Refused for a loss at or below the floor, a single seed, or values too far apart."""
    if min(map(len, losses)) < 2:
        raise _Refused("a gate needs two seeds of each arm; one seed has no spread")
    means = [fmean(side) for side in losses]
    if min(means) <= rung.floor:
        raise _Refused(f"a loss of {min(means):.4f} is not above the floor of {rung.floor:.4f}")
    above = [mean - rung.floor for mean in means]
    middle = math.log(above[0] / above[1]) / rung.exponent
    reach = _reach(losses, [1 / each / rung.exponent for each in above])
    if abs(middle) + reach > MAX_POWER:
        raise _Refused(
            f"losses of {means[0]:.4f} and {means[1]:.4f} give no finite speed-up with a floor of "
            f"{rung.floor:g} and an exponent of {rung.exponent:g}"
        )
    logs = [[math.log(speed) for speed in side] for side in speeds]
    faster = fmean(logs[1]) - fmean(logs[0])
    middle, reach = middle + faster, math.hypot(reach, _reach(logs, (1.0, 1.0)))
    if abs(middle) + reach > MAX_POWER:
        raise _Refused("the reported speeds differ too much")
    low, high = math.exp(middle - reach), math.exp(middle + reach)
    return Speedup(math.exp(middle), low, high, math.exp(faster))


def _reach(sides: Sides, slopes: Sequence[float]) -> float:
    """The half-width of the interval of a sum of both means, weighted by `slopes`: by the t
    distribution, with one variance for both sides."""
    freedom = sum(map(len, sides)) - 2
    pooled = sum(variance(side) * (len(side) - 1) for side in sides) / freedom
    each = zip(sides, slopes, strict=True)
    error = math.sqrt(sum(pooled / len(side) * slope**2 for side, slope in each))
    return float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
