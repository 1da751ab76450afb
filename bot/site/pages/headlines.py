"""What an execution found, in one sentence: the same on each page that lists executions. Pure."""

from dataclasses import dataclass

from bot.site.facts.entries import Entry
from bot.site.facts.searches import Search
from runner.analysis import answer
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
    """The verdict that a headline is about."""
    return answer.first_of(entry.result) if entry.result else None


def headline(entry: Entry, why_not: str | None = None) -> Headline | None:
    """The sentence that the thread and the terminal say of it; None while it runs, and without a
    verdict where no run was scored."""
    verdict, result = main_verdict(entry), entry.result
    if result is None or not (verdict or (result.state == "done" and entry.has_figures)):
        return None
    parts = tuple(answer.of(entry.plan, entry.runs, result))
    if verdict is None:
        return Headline(parts)
    return Headline(parts, verdict.outcome, verdict, len(result.verdicts) - 1, why_not or "")


def of_search(search: Search) -> Headline | None:
    """What the comparison with fresh seeds found; None while it runs."""
    if search.finding is None:
        return None
    words = search.finding.removeprefix("Found: ").removesuffix(".")
    return Headline((("", words[:1].upper() + words[1:]),))
