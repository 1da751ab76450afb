"""The page of searches, and its JSON."""

from collections.abc import Iterator
from typing import Any

from bot.site.base.files import File, made_from
from bot.site.facts.searches import Search, searches
from bot.site.pages.templating import Look
from runner.lib.canonical_json import to_json
from runner.store.store import Store


def files(look: Look, store: Store) -> Iterator[File]:
    """`searches.html` and `api/searches.json`."""
    every = searches(store)
    ends = (one.end.digest() for one in every if one.end)
    trials = (trial.digest() for one in every for trial in one.trials)
    made = made_from(look.told, *ends, *trials)
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
