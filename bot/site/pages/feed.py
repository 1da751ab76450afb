"""News for feed readers (`feed.xml`, Atom, RFC 4287), and a badge for a README. Both are derived
from the records."""

import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.site.base.files import File, made_from
from bot.site.facts.lab import Lab
from bot.site.pages.boards import Board
from bot.site.pages.front import records
from bot.site.pages.templating import Look
from runner.analysis import estimates
from runner.lib.format import full_stop, many

SHOWN = 50  # entries, newest first
NEVER = datetime(1970, 1, 1, tzinfo=UTC)  # the date of an empty feed
# The namespace of the entries' ids, which stay when the site moves.
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_OID, "regatta")
# The complement of what XML 1.0 (section 2.2) allows; a title may contain anything.
UNFIT = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class News:
    """One entry of the feed."""

    name: str  # of its subject; equal names are one entry
    at: datetime
    title: str
    words: str
    path: str  # of its page, below the site's folder

    @property
    def id(self) -> str:
        """A permanent id, which does not depend on the site's URL."""
        return f"urn:uuid:{uuid.uuid5(NAMESPACE, self.name)}"


def files(boards: Sequence[Board], facts: Lab, look: Look) -> Iterator[File]:
    """`feed.xml` and `badge.svg`."""
    told, made = news(boards, facts), made_from(look.told, facts.told)
    updated = told[0].at if told else NEVER
    yield look.page(
        "feed.xml", "feed.xml", made, news=told, updated=updated, own=_id(look), fit=fit
    )
    yield look.page(
        "badge.svg", "badge.svg", made, words=badge(boards, facts), width=width, fit=fit
    )


def news(boards: Sequence[Board], facts: Lab) -> list[News]:
    """Ended executions and broken records, newest first."""
    found = []
    for entry in facts.entries:
        if entry.result:
            outcomes = ", ".join(verdict.outcome for verdict in entry.result.verdicts)
            why = facts.why_not(entry) if outcomes else ""
            said = [
                full_stop(f"{verdict.prediction.sentence}: {verdict.outcome}. {verdict.why}")
                for verdict in entry.result.verdicts
            ]
            if why:
                said.append(full_stop(f"These verdicts do not count: {why}"))
            if entry.result.why:
                said.append(full_stop(entry.result.why))
            found.append(
                News(
                    f"execution {entry.execution.id}",
                    entry.result.at,
                    f"{entry.plan.title}: {outcomes or entry.result.state}",
                    " ".join(said) or f"The execution is {entry.result.state}.",
                    f"executions/{entry.execution.id}/index.html",
                )
            )
    for one, board in records(boards):
        row, text = one.row, board.source
        found.append(
            News(
                f"record {board.id} {row.entry.execution.id} {row.arm}",
                row.ended,
                f"New record: {row.summary} bits per byte on {text}",
                f"{row.arm} of “{row.entry.plan.title}”. The old record was {one.before.summary}."
                if one.before
                else "",
                board.path,
            )
        )
    found.sort(key=lambda one: (one.at, one.name), reverse=True)
    return found[:SHOWN]


def badge(boards: Sequence[Board], facts: Lab) -> str:
    """How many verdicts count, and the record of the leaderboard with most rows."""
    words = many(len(facts.counted), "verdict")
    if boards and (broken := boards[0].broken):
        words += f" · best {estimates.figure(broken[0].row.mean, 3)} bpb"
    return words


def width(words: str) -> int:
    """The pixels for a text in the badge; the renderer fits the text to them."""
    return 10 + round(6.3 * len(words))


def fit(words: str) -> str:
    """The text without the characters that XML forbids."""
    return UNFIT.sub("\ufffd", words)


def _id(look: Look) -> str:
    return f"urn:uuid:{uuid.uuid5(NAMESPACE, str(look.pages.globals['lab']))}"
