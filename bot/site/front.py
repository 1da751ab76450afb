"""The front page: what runs now, what was found, which records were broken, what is wished for, and
how to take part."""

from collections.abc import Sequence
from itertools import islice

from bot.site.board import Entry, Lab
from bot.site.boards import Board
from bot.site.files import File, made_from
from bot.site.frontier import Broken
from bot.site.templating import Look

FEW = 5  # of each kind
BEST = 5  # rows of each board


def page(boards: Sequence[Board], facts: Lab, look: Look) -> File:
    """`index.html`."""
    return look.page(
        "index.html",
        "index.html",
        made_from(look.told, facts.told),
        facts=facts,
        boards=boards,
        few=FEW,
        best=BEST,
        judged=judged(facts),
        records=records(boards)[:FEW],
        chart=(lambda: boards[0].chart) if boards else None,
    )


def records(boards: Sequence[Board]) -> list[tuple[Broken, Board]]:
    """The records that were broken, newest first; the first of a board broke none."""
    found = [(one, board) for board in boards for one in board.broken if one.before]
    return sorted(found, key=lambda pair: pair[0].row.ended, reverse=True)


def judged(facts: Lab) -> list[Entry]:
    """What was judged last, whichever way it went."""
    ended = [(entry.result.at, entry) for entry in facts.entries if entry.result]
    ended.sort(key=lambda pair: pair[0], reverse=True)
    found = (entry for _, entry in ended if entry.result and entry.result.verdicts)
    return list(islice(found, FEW))
