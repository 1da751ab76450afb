"""What the trials of a search say: differences from the baseline, corrected for their number, and
whether the search is over. Pure. Scores are so that lower is better.

The noise is the standard deviation between seeds, pooled over the baseline and all trials. A
trial's p-value is that of a one-sided Student's t of its mean and the baseline's. Of many trials
some look better by chance, so p-values are corrected with Holm's method (Holm 1979). The best trial
was also chosen for its scores. So both it and the baseline are trained with fresh seeds, and this
one comparison, by Welch's t (Welch 1947), is the result.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, variance

from scipy.special import stdtr, stdtrit

from runner.analysis import estimates
from runner.lib.format import many
from runner.schema import metrics
from runner.schema.record import Compared, SearchEnd, SearchTerms, SearchTrial, WeighedTrial

MOST_REFUSED = 5  # proposals in a row
INTERVAL = 0.95
Scores = Sequence[float | None]


def whole(scores: Scores) -> list[float] | None:
    """The scores, if every seed has a finite one."""
    found = [one for one in scores if one is not None and math.isfinite(one)]
    return found if scores and len(found) == len(scores) else None


def noise(trials: Sequence[SearchTrial]) -> tuple[float, int] | None:
    """The pooled standard deviation between seeds, and its degrees of freedom; None where no trial
    has two scores."""
    known = [of for of in (whole(trial.scores) for trial in trials) if of and len(of) > 1]
    freedom = sum(len(of) - 1 for of in known)
    if not freedom:
        return None
    pooled = sum(variance(of) * (len(of) - 1) for of in known) / freedom
    return math.sqrt(pooled), freedom


def weigh(trials: Sequence[SearchTrial]) -> tuple[WeighedTrial, ...]:
    """The trials with all scores beside the baseline, which is the first; in their order."""
    base, spread = whole(trials[0].scores) if trials else None, noise(trials)
    if base is None or spread is None:
        return ()
    deviation, freedom = spread
    found: dict[int, tuple[float, float, float]] = {}
    for trial in trials[1:]:
        if (scores := whole(trial.scores)) is None:
            continue
        difference = fmean(scores) - fmean(base)
        error = deviation * math.sqrt(1 / len(scores) + 1 / len(base))
        found[trial.n] = fmean(scores), difference, _below(difference, error, freedom)
    adjusted = holm({n: p for n, (_, _, p) in found.items()})
    return tuple(
        WeighedTrial(n=n, mean=mean, difference=difference, p=p, adjusted=adjusted[n])
        for n, (mean, difference, p) in found.items()
    )


def holm(p_values: Mapping[int, float]) -> dict[int, float]:
    """p-values that hold for all of them together (Holm 1979): with the p-values sorted, the k-th
    of m times m − k + 1, never below an earlier one and at most 1."""
    adjusted: dict[int, float] = {}
    least = 0.0
    for place, n in enumerate(sorted(p_values, key=lambda one: (p_values[one], one))):
        least = max(least, min(1.0, (len(p_values) - place) * p_values[n]))
        adjusted[n] = least
    return adjusted


def best(weighed: Sequence[WeighedTrial]) -> WeighedTrial | None:
    """The trial with the best mean, if it is better than the baseline's; of equal ones the
    first."""
    found = min(weighed, key=lambda one: (one.mean, one.n), default=None)
    return found if found and found.difference < 0 else None


def over(terms: SearchTerms, trials: Sequence[SearchTrial]) -> str:
    """Why the search stops now; empty if it does not. `trials` begin with the baseline."""
    proposed = trials[1:]
    if trials and whole(trials[0].scores) is None:
        return "the baseline has no scores"
    if sum(not trial.refused for trial in proposed) >= terms.trials:
        return f"the budget of {terms.trials} trials is spent"
    hours = sum(trial.device_hours for trial in trials)
    if terms.device_hours is not None and hours >= terms.device_hours:
        return f"the budget of {terms.device_hours:g} device-hours is spent"
    last = proposed[-MOST_REFUSED:]
    if len(last) == MOST_REFUSED and all(trial.refused for trial in last):
        return f"{MOST_REFUSED} proposals in a row were refused"
    if _since_better(terms, trials) >= terms.patience:
        return f"{terms.patience} trials in a row were not better by more than the noise"
    return ""


def _since_better(terms: SearchTerms, trials: Sequence[SearchTrial]) -> int:
    """How many trials have run since one was better than all before it, by more than the noise of a
    difference of two trials."""
    spread = noise(trials)
    least = spread[0] * math.sqrt(2 / len(terms.seeds)) if spread else math.inf
    so_far, since = math.inf, 0
    for trial in trials:
        if trial.refused:
            continue
        scores = whole(trial.scores)
        mean = fmean(scores) if scores else math.inf
        if trial.n == 0 or mean < so_far - least:
            so_far, since = mean, 0
        else:
            since += 1
    return since


def compare(n: int, executions: tuple[str, str], baseline: Scores, trial: Scores) -> Compared:
    """The comparison with fresh seeds, by Welch's t; without figures where a seed has no score."""
    one, other = whole(baseline), whole(trial)
    made = Compared(n=n, executions=executions, baseline=tuple(baseline), trial=tuple(trial))
    if one is None or other is None or min(len(one), len(other)) < 2:
        return made
    parts = [variance(of) / len(of) for of in (one, other)]
    error = math.sqrt(sum(parts))
    difference = fmean(other) - fmean(one)
    if error == 0:
        same = {"difference": difference, "interval": (difference, difference)}
        return made.model_copy(update=same | {"p": float(difference >= 0)})
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(of) - 1) for part, of in zip(parts, (one, other), strict=True)
    )
    reach = float(stdtrit(freedom, (1 + INTERVAL) / 2)) * error
    return made.model_copy(
        update={
            "difference": difference,
            "interval": (difference - reach, difference + reach),
            "p": _below(difference, error, freedom),
        }
    )


def _below(difference: float, error: float, freedom: float) -> float:
    """The one-sided p-value of a difference below 0."""
    return float(stdtr(freedom, difference / error)) if error else float(difference >= 0)


def sign(metric: str) -> int:
    """1 if a lower score by this metric is better, −1 if a higher one is."""
    return 1 if metrics.better(metric) == "lower" else -1


def finding(terms: SearchTerms, end: SearchEnd) -> str:
    """What the search found, in a sentence."""
    of = end.compared
    if of is None:
        return "Found: no trial had a better mean than the baseline."
    if of.difference is None or of.interval is None or of.p is None:
        return f"Found: trial {of.n} had the best mean, and with fresh seeds a run has no score."
    decimals = estimates.two_digits(abs(of.difference))
    ends = sorted(-one for one in of.interval)  # a difference is below 0 where the trial is better
    by, low, high = (estimates.figure(one, decimals) for one in (-of.difference, *ends))
    unit = f"{by} {metrics.what(terms.metric).unit}".strip()
    unit += "" if terms.metric == metrics.BPB else f" in {terms.metric}"
    said = (
        f"trial {of.n} beats the baseline by {unit}"
        if of.p < terms.level
        else f"trial {of.n}, the best, is not clearly better than the baseline: by {unit}"
    )
    seeds = many(len(terms.fresh_seeds), "fresh seed")
    return f"Found: {said} (95 % CI {low} to {high}, {seeds}, p = {of.p:.2g})."
