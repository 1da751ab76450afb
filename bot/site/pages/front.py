"""The front page: what the lab is, what it found last, its record over time, what runs now, and how
to take part."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePosixPath

from bot.model.policy_file import FORM_PATH
from bot.site.base.drawn import Drawing
from bot.site.base.files import File, made_from
from bot.site.facts.entries import Entry
from bot.site.facts.frontier import Broken
from bot.site.facts.lab import Lab
from bot.site.facts.searches import Search
from bot.site.pages.boards import Board
from bot.site.pages.executions import strip
from bot.site.pages.headlines import Headline, headline, of_search
from bot.site.pages.preview import Line, Preview
from bot.site.pages.templating import MARKS, Look
from runner.lib.format import many
from runner.schema.metrics import BPB

FEW = 5  # of each kind
FOUND = 6  # findings, after the last one
BEST = 5  # rows of a leaderboard
SPARK = 190  # pixels


@dataclass(frozen=True)
class Finding:
    """What an execution or a search found; `entry` is the execution, or the search's baseline."""

    at: datetime
    entry: Entry
    said: Headline
    page: str

    @property
    def title(self) -> str:
        """The question."""
        return self.entry.seal.called if self.entry.seal else self.entry.plan.title


def files(
    boards: Sequence[Board], facts: Lab, look: Look, searches: Sequence[Search]
) -> Iterator[File]:
    """`index.html` and its picture."""
    preview = pictured(facts, boards)
    yield from preview.files(look)
    yield look.page(
        "index.html",
        "index.html",
        made_from(look.told, facts.told, *(one.told for one in searches)),
        facts=facts,
        preview=preview,
        boards=[board for board in boards if board.group.metric == BPB],
        few=FEW,
        best=BEST,
        so_far=so_far(facts),
        form=PurePosixPath(FORM_PATH).name,
        findings=found(facts, searches),
        strip=strip,
        spark=spark,
    )


def so_far(facts: Lab) -> list[tuple[str, str]]:
    """What the lab has done: figures, each with what it counts; nothing of an empty lab."""
    asked = {entry.question for entry in facts.entries}
    outcomes = Counter[str](verdict.outcome for verdict in facts.counted)
    came = ", ".join(f"{outcomes[name]:,} {name}" for name in MARKS if outcomes[name])
    questions = len(asked) + len(facts.wishlist)
    models = sum(run.evaluated is not None for entry in facts.entries for run in entry.runs)
    told = [
        (questions, "question" if questions == 1 else "questions"),
        (outcomes.total(), f"{'prediction' if outcomes.total() == 1 else 'predictions'}: {came}"),
        (models, "trained model" if models == 1 else "trained models"),
        (len(facts.running), "running now"),
    ]
    return [(f"{n:,}", words) for n, words in told if n]


def found(facts: Lab, searches: Sequence[Search]) -> list[Finding]:
    """The last finding of each question, the newest first; without verdicts that do not count, and
    without re-runs. A search tells what it found in place of its trials."""
    trials = {name for one in searches if one.end for name in one.executions}
    known = {entry.execution.id: entry for entry in facts.entries}
    ended: list[tuple[datetime, Entry, Search | None]] = [
        (entry.result.at, entry, None)
        for name, entry in known.items()
        if entry.result and entry.result.state == "done"
        if name not in facts.originals and name not in trials
    ]
    ended += [
        (one.end.at, known[one.trials[0].execution], one)
        for one in searches
        if one.end and one.trials[0].execution in known
    ]
    ended.sort(key=lambda each: each[0], reverse=True)
    several: dict[str, Finding] = {}
    for at, entry, search in ended:
        if entry.question in several or facts.why_not(entry) is not None:
            continue
        if said := of_search(search) if search else headline(entry):
            of = (
                f"searches.html#{search.terms.id}"
                if search
                else f"experiments/{entry.question}.html"
            )
            several[entry.question] = Finding(at, entry, said, of)
        if len(several) > FOUND:
            break
    return list(several.values())


def spark(board: Board) -> Drawing:
    """Its record over time, as a small drawing."""
    return replace(board.history.drawing, height=SPARK)


def pictured(facts: Lab, boards: Sequence[Board]) -> Preview:
    """How many predictions had which verdict, and the records of the largest leaderboards."""
    outcomes = Counter[str](verdict.outcome for verdict in facts.counted)
    records = [
        Line(f"Record on {board.source}", f"{board.broken[0].row.summary} bits per byte")
        for board in boards[:2]
        if board.broken and board.group.metric == BPB
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
    several = [(one, board) for board in boards for one in board.broken if one.before]
    return sorted(several, key=lambda pair: pair[0].row.ended, reverse=True)
