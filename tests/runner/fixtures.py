"""A store in a bucket, for tests of what runs on one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.store import gcs
from runner.store.store import Store
from tests import fake_gcs


@pytest.fixture(scope="module")
def gcs_server() -> Iterator[fake_gcs.FakeGcs]:
    with fake_gcs.serving() as fake:
        yield fake


@pytest.fixture
def fake(
    gcs_server: fake_gcs.FakeGcs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[fake_gcs.FakeGcs]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    monkeypatch.setenv("REGATTA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gcs, "RETRY", gcs.RETRY.with_delay(initial=0.01, maximum=0.02))
    gcs_server.buckets.update(records={}, jobs={})
    yield gcs_server
    gcs_server.peace()


@pytest.fixture
def bucket(fake: fake_gcs.FakeGcs) -> Store:  # noqa: ARG001
    return Store("gs://jobs/lab")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, fake: fake_gcs.FakeGcs) -> None:  # noqa: ARG001
    """What fails is given up after 0.3 s."""
    monkeypatch.setattr(gcs, "RETRY", gcs.RETRY.with_timeout(0.3))
