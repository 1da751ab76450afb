"""The bot's client against the sandbox, all of it held against GitHub's description."""

from __future__ import annotations

import pytest

from bot.github import GitHub
from tests.sandbox.fixtures import (  # noqa: F401
    BOT_TOKEN,
    NAME,
    ask,
    received,
    sandbox,
    told,
    url,
)
from tests.sandbox.openapi import Recorder


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(bot=lambda who: who.endswith(BOT_TOKEN))


@pytest.fixture
def github(url: str) -> GitHub:  # noqa: F811
    """The client with the bot's own token."""
    return GitHub(
        NAME, lambda: BOT_TOKEN, api=f"{url}/api/v3", seconds_between_writes=0, sleep=lambda _: None
    )
