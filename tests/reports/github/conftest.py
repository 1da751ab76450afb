"""What public reports of other bots' users say of GitHub, done to this one. A test is named for its
report; `docs/situations.md` has what it shows, in a table for readers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.publish import charts
from tests.reports.github.github_lab import PIXEL
from tests.scenarios.lab import Lab, a_lab
from tests.stub_trainer import StubRay


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab whose trainer takes steps only when it is told to."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        yield lab
