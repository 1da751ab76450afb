"""What tests of jobs on a bucket share."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ENDLESS = float("inf")


COMPLETE = re.compile(r"/checkpoints/[0-9]+/commit_success\.txt$")


def saved(objects: Iterable[str]) -> bool:
    """Whether a whole checkpoint is among these names in a bucket."""
    return any(COMPLETE.search(name) for name in [*objects])


def machine(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on we are on another machine."""
    monkeypatch.setenv("REGATTA_CACHE", str(folder))
