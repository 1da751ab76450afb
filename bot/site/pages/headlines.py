"""What an execution found, in one sentence: the same on each page that lists executions. Pure."""

from dataclasses import dataclass

from bot.site.facts.entries import Entry
from runner.analysis import findings
from runner.lib.format import many
from runner.schema import record
from runner.schema.prediction_forms import Part


@dataclass(frozen=True)
class Headline:
    """A sentence in parts, and the verdict that it is about, if there is one."""

    parts: tuple[Part, ...]
    outcome: str = ""
    verdict: record.Verdict | None = None
    more: int = 0  # further verdicts
    why_not: str = ""  # why the verdict does not count


def main_verdict(entry: Entry) -> record.Verdict | None:
    """The verdict that a headline is about: the first one with a figure."""
    judged = entry.result.verdicts if entry.result else ()
    figured = (one for one in judged if one.interval is not None)
    return next(figured, judged[0] if judged else None)


def headline(entry: Entry, why_not: str | None = None) -> Headline | None:
    """The first verdict with a figure, otherwise the best arm; None without any score."""
    verdict, result = main_verdict(entry), entry.result
    if verdict and result:
        parts = findings.found(verdict) or [("", verdict.why)]
        more = len(result.verdicts) - 1
        return Headline(tuple(parts), verdict.outcome, verdict, more, why_not or "")
    scored = [(one.mean, arm) for arm, one in entry.summaries.items() if one.mean is not None]
    if not scored or result is None:
        return None
    _, best = min(scored)
    summary = entry.summaries[best]
    parts = [("arm", best), ("", " scores "), ("figure", f"{summary} bits per byte")]
    others = f", the best of {len(scored)} arms" if len(scored) > 1 else ""
    return Headline((*parts, ("", f"{others} ({many(summary.n, 'seed')})")))
