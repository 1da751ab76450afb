"""The front page: what runs now, what was found, which records were broken, what is wished for, and
how to take part."""

from functools import partial
from itertools import islice

from bot.site.board import Entry, Lab
from bot.site.boards import Board, chart
from bot.site.files import File
from bot.site.templating import Look

FEW = 5  # of each kind
BEST = 5  # rows of each board


def page(facts: Lab, look: Look) -> File:
    """`index.html`."""
    boards = [Board(group, facts) for group in facts.groups]
    records = sorted(
        ((one, board) for board in boards for one in board.broken if one.before),
        key=lambda pair: pair[0].row.ended,
        reverse=True,
    )
    return look.page(
        "index.html",
        "index.html",
        facts=facts,
        boards=boards,
        few=FEW,
        best=BEST,
        judged=judged(facts),
        records=records[:FEW],
        chart=partial(chart, boards[0]) if boards else None,
    )


def judged(facts: Lab) -> list[Entry]:
    """What was judged last, whichever way it went."""
    ended = [(entry.result.at, entry) for entry in facts.entries if entry.result]
    ended.sort(key=lambda pair: pair[0], reverse=True)
    found = (entry for _, entry in ended if entry.result and entry.result.verdicts)
    return list(islice(found, FEW))
