"""The gate after a rung of a ladder: is the variant worth the next size? Pure.

The speed-up is how many times the compute of the variant its baseline would need for the same loss
(`scaling.speedup`), by the floor and the exponent that the experiment declared, times how many
times as fast it trained on the same devices. Its 90 % interval holds the spread between seeds of
losses and of speeds, each by the t distribution. Above 1 the gate is passed, below 1 it has failed,
and otherwise it is inconclusive. Losses are the lab's own figures; speeds are as the job reported.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from scipy.special import stdtrit

from runner.analysis import scaling
from runner.analysis.estimates import finite
from runner.analysis.scaling import Law, Refused, Rung, Speedup
from runner.schema.record import Plan, PlannedRung, Run

LEVEL = 0.9


@dataclass(frozen=True)
class Gate:
    """How a rung came out."""

    rung: PlannedRung
    outcome: str  # passed, failed or inconclusive
    speedup: Speedup | None = None
    faster: float | None = None  # of which this is by speed alone
    why: str = ""  # nothing could be computed

    @property
    def head(self) -> str:
        """Which gate, and how it came out."""
        return f"The gate of rung {self.rung.n} of {self.rung.of}: {self.outcome}."

    @property
    def sentence(self) -> str:
        """The figures that it rests on, and what follows; arms as code spans."""
        rung, found = self.rung, self.speedup
        after = f"The plan of rung {rung.n + 1} follows, if the branch is still where it was."
        if self.outcome != "passed":
            after = "So no plan of a next rung is posted."
        elif rung.n == rung.of:
            after = "It was the last one."
        if found is None:
            return f"{self.why[:1].upper()}{self.why[1:]}. {after}"
        return (
            f"For the loss of `{rung.variant}`, `{rung.baseline}` would take {found.estimate:.3g} "
            f"times the compute (90 % interval {found.low:.3g} to {found.high:.3g}), by a floor of "
            f"{rung.floor:g} and an exponent of {rung.exponent:g}; × {self.faster:.3g} of it is by "
            f"the speeds that the job reported. {after}"
        )


def gate(plan: Plan, runs: Iterable[Run]) -> Gate | None:
    """The gate of the plan's rung, given its runs; None of a plan that is no rung."""
    if plan.rung is None:
        return None
    found, rung = list(runs), plan.rung
    by_arm = {arm: [run for run in found if run.arm == arm] for arm in plan.arms}
    sides = [by_arm.get(arm, []) for arm in (rung.baseline, rung.variant)]
    losses = [
        [run.evaluated.bpb for run in side if run.evaluated and finite(run.evaluated.bpb)]
        for side in sides
    ]
    speeds = [[run.tokens_per_second for run in side if run.tokens_per_second] for side in sides]
    planned = len(plan.seeds)
    if min(map(len, losses)) < planned:
        return Gate(rung, "inconclusive", why="a run has no figure")
    if min(map(len, speeds)) < planned:
        return Gate(rung, "inconclusive", why="a run reported no tokens per second")
    law = Law(1.0, rung.exponent, rung.floor, 1.0, 0.0, 0, pinned=True)
    try:
        by_loss = scaling.speedup(
            Rung(tuple(losses[0]), tuple(losses[1]), 1.0, 1.0), law, level=LEVEL
        )
    except Refused as error:
        return Gate(rung, "inconclusive", why=str(error))
    by_speed, reach = _ratio(*speeds)
    reach = math.hypot(reach, math.log(by_loss.high / by_loss.estimate))
    middle = math.log(by_loss.estimate) + by_speed
    if abs(middle) + reach > scaling.MOST_POWER:
        return Gate(rung, "inconclusive", why="the speeds that were reported lie too far apart")
    speedup = Speedup(*(math.exp(middle + sign * reach) for sign in (0, -1, 1)))
    return Gate(rung, scaling.promoted([speedup]), speedup, math.exp(by_speed))


def _ratio(baseline: Sequence[float], variant: Sequence[float]) -> tuple[float, float]:
    """How many times as fast the variant is, and how far that may be off; both as logarithms."""
    one, other = ([math.log(speed) for speed in side] for side in (baseline, variant))
    freedom = len(one) + len(other) - 2
    pooled = (variance(one) * (len(one) - 1) + variance(other) * (len(other) - 1)) / freedom
    error = math.sqrt(pooled * (1 / len(one) + 1 / len(other)))
    return fmean(other) - fmean(one), float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
