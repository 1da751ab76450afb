"""The speedrun's page: each track with its ranked rows, and those that are not, with the reason."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from bot.site.board import Lab
from bot.site.files import File, made_from
from bot.site.templating import Look
from runner import figures
from runner.analysis import tracks
from runner.analysis.tracks import Ranked, Row, Track
from runner.store import to_json


def files(facts: Lab, look: Look) -> Iterator[File]:
    """`speedrun.html` and its twin."""
    found, made = boards(facts.competing), made_from(look.told, facts.told)
    yield File("api/speedrun.json", lambda: to_json(_twin(found)), made)
    yield look.page(
        "speedrun.html", "speedrun.html", made, boards=found, value=value, tiers=tracks.TIERS
    )


def boards(rows: Iterable[Row]) -> list[tuple[Track, list[Ranked]]]:
    """Every track with its rows; those with rows first."""
    every = list(rows)
    found = [(track, tracks.rank(track, every)) for track in tracks.known().values()]
    return sorted(found, key=lambda of: not of[1])


def value(track: Track, ranked: Ranked) -> str:
    """What a row is ranked by, in words; empty where it is not ranked."""
    if ranked.value is None:
        return ""
    if track.kind == "target":
        return f"{figures.flops(ranked.value)} {'hardware' if ranked.row.custom else track.cost}"
    if track.kind == "time":
        return figures.duration(ranked.value)
    if ranked.interval:
        low, high = ranked.interval
        return f"{ranked.value:.4f} ({low:.4f} to {high:.4f})"
    return f"{ranked.value:.4f}"


def _twin(found: list[tuple[Track, list[Ranked]]]) -> dict[str, Any]:
    return {
        track.name: {
            "track": track.model_dump(mode="json"),
            "rows": [_row(ranked) for ranked in rows],
        }
        for track, rows in found
    }


def _row(ranked: Ranked) -> dict[str, Any]:
    told = asdict(ranked)
    row = told.pop("row")
    row["author"] = ranked.row.author.model_dump(mode="json")
    row["at"] = ranked.row.at.isoformat()
    row["scored"] = ranked.row.scored._asdict() if ranked.row.scored else None
    return told | row
