"""A search in which a program proposes declarations (`regatta search`): its terms, each of its
trials, and its end. What the program wrote is kept as it wrote it."""

import hashlib
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from runner.lib.base_record import Instant, Record, Sha256
from runner.schema.metrics import Metric

MAX_DECLARATION = 200_000  # characters

Declared = Annotated[str, Field(max_length=MAX_DECLARATION)]


class SearchTerms(Record):
    """What is searched, and when it stops. Equal terms are one search."""

    experiment: str  # the folder
    declaration: Declared  # of the baseline
    fingerprint: Sha256  # of the plan of its training with `noise_seeds`
    proposer: tuple[str, ...]  # the command and its arguments
    metric: Metric
    trials: int  # the budget
    device_hours: float | None  # the budget of devices; None: no limit
    patience: int  # trials without a better one, after which it stops
    compute: float  # the most FLOPs of a trial's run, in those of a baseline's
    noise_seeds: tuple[int, ...]  # of the baseline
    seeds: tuple[int, ...]  # of each trial
    fresh_seeds: tuple[int, ...]  # of the comparison at the end
    level: float  # of significance

    @property
    def id(self) -> str:
        """`s` and the first 16 hexadecimal digits of its digest."""
        return f"s{hashlib.sha256(self.canonical()).hexdigest()[:16]}"


class SearchTrial(Record):
    """One declaration that was proposed, with its execution or the reason why there is none. Trial
    0 is the baseline."""

    n: int
    at: Instant
    declaration: Declared
    refused: str = ""
    execution: str = ""
    scores: tuple[float | None, ...] = ()  # by seed, in the order of the seeds; None: it has none
    device_hours: float = 0.0


class WeighedTrial(Record):
    """A trial beside the baseline."""

    n: int
    mean: float
    difference: float  # from the baseline's mean; better is below 0
    p: float  # one-sided, by Student's t with the variance pooled over all trials
    adjusted: float  # p corrected for all trials (Holm 1979)


class Compared(Record):
    """The best trial and the baseline, both trained again with fresh seeds."""

    n: int  # the trial
    executions: tuple[str, str]  # of the baseline, and of the trial
    baseline: tuple[float | None, ...]
    trial: tuple[float | None, ...]
    difference: float | None = None  # of the means; better is below 0
    interval: tuple[float, float] | None = None  # 95 %, by Welch's t
    p: float | None = None  # one-sided


class SearchEnd(Record):
    """How a search ended."""

    at: Instant
    why: str  # it stopped
    noise: float | None  # standard deviation between seeds, pooled
    weighed: tuple[WeighedTrial, ...]
    compared: Compared | None = None  # None: no trial's mean was better


def executions_of(trials: Iterable[SearchTrial], end: SearchEnd | None) -> list[str]:
    """The executions of a search: those of its trials, and of the comparison at its end."""
    compared = end.compared.executions if end and end.compared else ()
    return [*dict.fromkeys([*(one.execution for one in trials if one.execution), *compared])]
