"""The doctor's checks of the bot's condition: what the running bot says of its four figures, or its
store where no bot answers."""

import functools
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import httpx

from bot.controller import condition
from bot.controller.condition import FIGURES, Condition
from bot.setup.findings import need
from bot.setup.settings import Settings
from runner.schema import record
from runner.store.store import Store


def checks(of: Settings, client: Callable[[], httpx.Client]) -> dict[str, Callable[[], str]]:
    """A check of each figure. A bot of another version counts as one that does not answer."""

    @functools.cache
    def sentences() -> dict[str, tuple[str, str]]:
        if of.url:
            with suppress(httpx.HTTPError, ValueError, LookupError, TypeError), client() as http:
                body = http.get(f"{of.url}/healthz", timeout=10).json()
                return Condition.model_validate(body["figures"]).sentences()
        store = Store(of.store, make=False)
        names = {*store.list("writes"), *record.names(store, "sweeps")}
        repository = max((int(name) for name in names if name.isdigit()), default=0)
        return condition.read(store, repository, datetime.now(UTC)).sentences()

    def check(name: str) -> str:
        sentence, advice = sentences()[name]
        need(not advice, sentence, advice)
        return sentence

    return {name: functools.partial(check, name) for name in FIGURES}
