"""How often chance makes a record or a rank on a track, and how often a better entry is found:

    python -m tests.bench.records [TRACKS]

Equal entries differ by their seeds alone. *Unequal*: the spread of each entry is drawn from 1 to 5,
even in its logarithm. *Quiet first*: the first entry has a fifth of the spread of the others, which
is where Welch's test with few seeds promises a little too much. Writes `results/records.md`.
"""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from runner.analysis import speedrun_ranking
from runner.analysis.comparability import Scored
from runner.analysis.speedrun_ranking import Ranked, Row
from runner.schema.record import Author
from runner.schema.tracks import Track

RESULTS = Path(__file__).parent / "results" / "records.md"
ENTRIES = 20
SEEDS = (2, 3, 5)
DESIGNS = ("equal", "unequal", "quiet first")
START = datetime(2026, 3, 1, tzinfo=UTC)
TEXT = "a" * 64
TRACK = Track.model_validate(
    {
        "name": "t",
        "title": "T",
        "data": {"source": "a text", "validation_sha256": TEXT, "eval_tokens": 1000},
        "spread": 0.01,
        "kind": "budget",
        "budget": 1e12,
        "cost": "model",
    }
)


def entry(number: int, figures: tuple[float, ...], author: str = "Ada") -> Row:
    """A ranked entry of the track, with one figure a seed."""
    return Row(
        id=f"x{number:03}/main",
        title=f"entry {number}",
        author=Author(name=author, affiliation="", url=""),
        track="t",
        tier="reproduced",
        at=START + timedelta(days=number),
        figures=figures,
        scored=Scored("a text", "byte", TEXT, 1000),
        model_flops=(1e11,) * len(figures),
        hardware_flops=(4e11,) * len(figures),
    )


def tracks(
    design: str, seeds: int, count: int, *, better: float = 0.0, entries: int = ENTRIES
) -> Iterator[list[Ranked]]:
    """Ranked tracks of entries with equal means. With `better`, the last one is better by so many
    standard deviations between its seeds."""
    random = np.random.default_rng([DESIGNS.index(design), seeds, entries, int(better * 10)])
    for _ in range(count):
        spread = np.full(entries, 0.01)
        if design == "unequal":
            spread *= np.exp(random.uniform(0, np.log(5), entries))
        elif design == "quiet first":
            spread[0] /= 5
        figures = 2 + spread[:, None] * random.standard_normal((entries, seeds))
        figures[-1] -= better * spread[-1]
        rows = [entry(number, tuple(map(float, row))) for number, row in enumerate(figures)]
        yield speedrun_ranking.rank(TRACK, rows)


def by_luck(ranked: list[Ranked]) -> tuple[bool, bool]:
    """Whether a track of equal entries has a record beside the first entry, and more than one
    rank."""
    return sum(one.record for one in ranked) > 1, any(one.rank != 1 for one in ranked)


def shares(design: str, seeds: int, count: int) -> tuple[float, float]:
    """Of tracks of equal entries, the shares with a false record, and with more than one rank."""
    record, rank = np.mean([by_luck(ranked) for ranked in tracks(design, seeds, count)], axis=0)
    return float(record), float(rank)


def power(seeds: int, entries: int, better: float, count: int) -> float:
    """How often an entry that is better becomes the record, after `entries` − 1 equal ones."""
    last = f"x{entries - 1:03}/main"
    return float(
        np.mean(
            [
                any(one.record and one.row.id == last for one in ranked)
                for ranked in tracks("equal", seeds, count, better=better, entries=entries)
            ]
        )
    )


def table(count: int) -> str:
    """Both tables in Markdown."""
    lines = [
        f"| {ENTRIES} equal entries, {count:,} tracks each "
        "| seeds | a false record | more than one rank |",
        "| --- | ---: | ---: | ---: |",
    ]
    for design in DESIGNS:
        for seeds in SEEDS:
            record, rank = shares(design, seeds, count)
            lines.append(f"| {design} | {seeds} | {record:.1%} | {rank:.1%} |")
    lines += [
        "",
        "| found, if better by | seeds | after 1 entry | after 5 | after 19 |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for better in (2.0, 3.0, 5.0):
        for seeds in (3, 5, 10):
            found = (power(seeds, entries, better, count // 2) for entries in (2, 6, 20))
            cells = " | ".join(f"{share:.0%}" for share in found)
            lines.append(f"| {better:g} standard deviations | {seeds} | {cells} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    text = table(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
