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
from runner.record import Plan, PlannedRung, Run

LEVEL = 0.9


@dataclass(frozen=True)
class Gate:
    """How a rung came out."""

    rung: PlannedRung
    outcome: str  # passed, failed or inconclusive
    speedup: Speedup | None = None
    faster: float | None = None  # of which this is by speed alone
    why: str = ""  # nothing could be computed


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
    faster, reach = _ratio(*speeds)
    reach = math.hypot(reach, math.log(by_loss.high / by_loss.estimate))
    middle = math.log(by_loss.estimate) + math.log(faster)
    speedup = Speedup(*(math.exp(middle + sign * reach) for sign in (0, -1, 1)))
    return Gate(rung, scaling.promoted([speedup]), speedup, faster)


def _ratio(baseline: Sequence[float], variant: Sequence[float]) -> tuple[float, float]:
    """How many times as fast the variant is, and how far that may be off in logarithms."""
    one, other = ([math.log(speed) for speed in side] for side in (baseline, variant))
    freedom = len(one) + len(other) - 2
    pooled = (variance(one) * (len(one) - 1) + variance(other) * (len(other) - 1)) / freedom
    error = math.sqrt(pooled * (1 / len(one) + 1 / len(other)))
    return math.exp(fmean(other) - fmean(one)), float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
