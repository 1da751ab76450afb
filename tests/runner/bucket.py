"""What tests of jobs on a bucket share."""

from pathlib import Path

import pytest

ENDLESS = float("inf")


def machine(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on we are on another machine."""
    monkeypatch.setenv("REGATTA_CACHE", str(folder))
