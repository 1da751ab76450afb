"""What is done around a look at a thread, so that the end of the process shows."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.inbox.quarantine import Quarantine
from bot.model.thread import ThreadId
from runner.schema import record
from runner.store.store import Store


def test_a_look_without_deliveries_reads_nothing_of_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked = Store(tmp_path / "store"), list[str]()
    names = record.names

    def noted(at: Store, folder: str) -> list[str]:
        asked.append(folder)
        return names(at, folder)

    monkeypatch.setattr(record, "names", noted)
    quarantine = Quarantine(store, lambda: datetime(2026, 3, 1, tzinfo=UTC))
    with quarantine.around(ThreadId(1, 7), []):
        pass
    assert asked == [], "a live thread is looked at all the time, and may have many folders"
