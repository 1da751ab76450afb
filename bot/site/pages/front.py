"""The front page: current executions, latest verdicts, broken records, open questions, and how to
take part."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from bot.site.base.files import File, made_from
from bot.site.facts.entries import Entry
from bot.site.facts.frontier import Broken
from bot.site.facts.lab import Lab
from bot.site.pages.boards import Board
from bot.site.pages.preview import Line, Preview
from bot.site.pages.templating import MARKS, Look
from runner.lib.format import many

FEW = 5  # of each kind
BEST = 5  # rows of each leaderboard


def files(boards: Sequence[Board], facts: Lab, look: Look) -> Iterator[File]:
    """`index.html` and its picture."""
    preview = pictured(facts, boards)
    yield from preview.files(look)
    yield look.page(
        "index.html",
        "index.html",
        made_from(look.told, facts.told),
        facts=facts,
        preview=preview,
        boards=boards,
        few=FEW,
        best=BEST,
        judged=judged(facts),
        records=records(boards)[:FEW],
        chart=(lambda: boards[0].chart) if boards else None,
    )


def pictured(facts: Lab, boards: Sequence[Board]) -> Preview:
    """How many predictions had which verdict, and the records of the largest leaderboards."""
    outcomes = Counter[str](verdict.outcome for verdict in facts.counted)
    records = [
        Line(f"Record on {board.group.data.source}", f"{board.broken[0].row.summary} bits per byte")
        for board in boards[:2]
        if board.broken
    ]
    ran = sum(len(entry.runs) for entry in facts.entries)
    return Preview(
        "index",
        "",
        "What the lab has found",
        "Predictions are sealed before anything runs and judged by rule afterwards.",
        tuple(records),
        tuple((name, outcomes[name]) for name in MARKS if outcomes[name]),
        f"{many(len(facts.entries), 'execution')}, {many(ran, 'run')}",
    )


def records(boards: Sequence[Board]) -> list[tuple[Broken, Board]]:
    """The broken records, newest first; a leaderboard's first row broke none."""
    found = [(one, board) for board in boards for one in board.broken if one.before]
    return sorted(found, key=lambda pair: pair[0].row.ended, reverse=True)


def judged(facts: Lab) -> list[Entry]:
    """The latest verdicts, of every kind."""
    ended = [(entry.result.at, entry) for entry in facts.entries if entry.result]
    ended.sort(key=lambda pair: pair[0], reverse=True)
    found = (entry for _, entry in ended if entry.result and entry.result.verdicts)
    return list(islice(found, FEW))
