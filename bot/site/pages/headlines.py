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


def headline(entry: Entry, why_not: str | None = None) -> Headline | None:
    """The first verdict that says a figure, otherwise the best arm; None without any score."""
    judged = entry.result.verdicts if entry.result else ()
    told = [one for one in judged if findings.found(one)] or [*judged]
    if told:
        first = told[0]
        parts = findings.found(first) or [("", first.why)]
        more = len(judged) - 1
        return Headline(tuple(parts), first.outcome, first, more, why_not or "")
    scored = [(one.mean, arm) for arm, one in entry.summaries.items() if one.mean is not None]
    if not scored or entry.result is None:
        return None
    _, best = min(scored)
    summary = entry.summaries[best]
    seeds = many(summary.n, "seed")
    parts = [("arm", best), ("", " scores "), ("figure", f"{summary} bits per byte")]
    others = f", the best of {len(scored)} arms" if len(scored) > 1 else ""
    return Headline((*parts, ("", f"{others} ({seeds})")))
