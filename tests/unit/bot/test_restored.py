"""What the bot finds of its own comments that no record names."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bot.controller import catch_up
from bot.github import Later
from bot.github.lists import Found
from runner.schema import record
from runner.schema.record import Person
from runner.store.store import Store

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_list_that_breaks_off_restores_nothing_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, broken = Store(tmp_path / "store"), [True]
    body = "### Plan 1\n\n<!-- regatta: plan-1 -->"
    mine = Found(7, True, 1, Person(login="lab[bot]", id=5), True, NOW, NOW, body)

    def since(_: datetime) -> Iterator[Found]:
        yield mine
        if broken:
            raise Later("GitHub is away")

    github: Any = SimpleNamespace(id=1, bot="lab[bot]", now=lambda: NOW, comments_since=since)
    with caplog.at_level(logging.ERROR):
        with pytest.raises(Later):
            catch_up.restored(store, github)
        assert record.names(store, "restored") == []
        broken.clear()
        catch_up.restored(store, github)
    assert record.names(store, "restored/1") == ["7"]
    assert "no record of" in caplog.text
