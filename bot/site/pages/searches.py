"""The page of searches, and its JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from bot.site.base.files import File, made_from
from bot.site.facts.searches import Search
from bot.site.pages.templating import Look
from runner.lib.canonical_json import to_json


def files(every: Sequence[Search], look: Look) -> Iterator[File]:
    """`searches.html` and `api/searches.json`."""
    made = made_from(look.told, *(one.told for one in every))
    yield File("api/searches.json", lambda: to_json([_twin(one) for one in every]), made)
    yield look.page("searches.html", "searches.html", made, searches=every)


def _twin(one: Search) -> dict[str, Any]:
    return {
        "search": one.terms.id,
        "terms": one.terms.model_dump(mode="json"),
        "trials": [trial.model_dump(mode="json") for trial in one.trials],
        "end": one.end and one.end.model_dump(mode="json"),
        "finding": one.finding,
    }
