"""The front page: what the lab is, what runs now, the latest verdicts and records, open questions,
and how to take part."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import PurePosixPath

from bot.model.policy_file import FORM_PATH
from bot.site.base.files import File, made_from
from bot.site.facts.entries import Entry
from bot.site.facts.frontier import Broken
from bot.site.facts.lab import Lab
from bot.site.pages.boards import Board
from bot.site.pages.preview import Line, Preview
from bot.site.pages.templating import MARKS, Look
from runner.analysis import estimates
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
        so_far=so_far(facts, boards),
        form=PurePosixPath(FORM_PATH).name,
        judged=judged(facts),
        records=records(boards)[:FEW],
        chart=(lambda: boards[0].chart) if boards else None,
    )


def so_far(facts: Lab, boards: Sequence[Board]) -> list[str]:
    """What the lab has done, in a few words each; nothing of an empty one."""
    asked = {entry.question for entry in facts.entries}
    outcomes = Counter[str](verdict.outcome for verdict in facts.counted)
    came = ", ".join(f"{outcomes[name]:,} {name}" for name in MARKS if outcomes[name])
    best = boards[0].broken[:1] if boards else []
    found = [
        many(len(asked) + len(facts.wishlist), "question"),
        f"{many(outcomes.total(), 'prediction')} judged: {came}" if came else None,
        *(
            f"best score {estimates.figure(one.row.mean, 3)} bits per byte on "
            f"{boards[0].text}; lower is better"
            for one in best
        ),
        f"{len(facts.running):,} running" if facts.running else None,
    ]
    return [words for words in found if words] if asked or facts.wishlist else []


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
        "Small language models, trained in the open",
        "People predict a result before the lab runs the experiment. Every answer is published.",
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
