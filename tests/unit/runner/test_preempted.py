"""Preemption is weather: it is not counted, it is heard of, and who makes a step anew goes on."""

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.lib import preemption
from runner.store import artifacts
from runner.store.artifacts import (
    End,
    MakerLost,
    MakerPreempted,
    MakingFailed,
    Start,
    history,
    make,
)
from runner.store.store import Store

NAME, FINGERPRINT = "train", "0123456789abcdef" * 4


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def losing(*errors: type[MakerLost]) -> Callable[[Path], None]:
    """A build whose first makers are lost so."""
    left = list(errors)

    def build(folder: Path) -> None:
        if left:
            raise left.pop(0)("its machine is gone")
        (folder / "made").touch()

    return build


def made(store: Store, build: Callable[[Path], None], **more: Any) -> artifacts.Made:
    return make(store, NAME, FINGERPRINT, build, {}, by="x1", most_lost=3, **more)


def test_any_number_of_preemptions_is_no_failure(store: Store) -> None:
    found = made(store, losing(*[MakerPreempted] * 12))
    assert found.manifest.generation == 13
    ends = [end for _, end in history(store, NAME, FINGERPRINT) if end]
    assert all(end.preempted and end.seconds is not None for end in ends[:-1])


def test_losses_count_whatever_preemptions_are_between_them(store: Store) -> None:
    losses = [MakerLost, MakerPreempted, MakerLost, MakerPreempted, MakerPreempted, MakerLost]
    with pytest.raises(MakingFailed, match="it was lost 3 times; the last time its machine is"):
        made(store, losing(*losses))


def test_progress_of_a_preempted_maker_is_progress(store: Store) -> None:
    losses = [MakerLost, MakerLost, MakerPreempted, MakerLost, MakerLost]
    assert made(store, losing(*losses), left=lambda folders: len(folders) // 3)


@pytest.mark.parametrize("spot", [True, False])
def test_a_spot_machine_that_falls_silent_was_preempted(store: Store, spot: bool) -> None:
    gone = Start(
        name=NAME, fingerprint=FINGERPRINT, generation=1, maker="0" * 16, by="x1", host="gone"
    )
    store.create(f"leases/{gone.lease}/start.json", gone.canonical())
    clock = iter(range(0, 10_000, 20))
    found = made(
        store,
        losing(),
        preemptible=spot,
        monotonic=lambda: float(next(clock)),
        sleep=lambda _: None,
    )
    assert found.manifest.generation == 2
    [(_, end), _] = history(store, NAME, FINGERPRINT)
    assert end
    assert (end.how, end.preempted) == ("lost", spot)


def test_an_end_of_an_older_lab_keeps_its_bytes() -> None:
    assert json.loads(End(how="lost", why="x").canonical()) == {
        "how": "lost",
        "manifest": None,
        "why": "x",
    }


class Answer:
    """A connection to a metadata server that says these words."""

    def __init__(self, said: str | Exception) -> None:
        self._said = said

    def __call__(self, *_: object, **__: object) -> "Answer":
        return self

    def request(self, *_: object, headers: dict[str, str]) -> None:
        assert headers == {"Metadata-Flavor": "Google"}, "it refuses others"
        if isinstance(self._said, Exception):
            raise self._said

    def getresponse(self) -> "Answer":
        return self

    def read(self, _: int) -> bytes:
        return str(self._said).encode()

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("said", "announced"),
    [
        ('{"preempted": "FALSE", "maintenanceEvent": "NONE"}', False),
        ('{"preempted": "TRUE", "maintenanceEvent": "NONE"}', True),
        ('{"preempted": "FALSE", "maintenanceEvent": "TERMINATE_ON_HOST_MAINTENANCE"}', True),
        ('{"preempted": "FALSE", "maintenanceEvent": "MIGRATE_ON_HOST_MAINTENANCE"}', False),
        ("a page of a captive network", None),
        ("[]", None),
        (OSError("no such host"), None),
    ],
)
def test_the_metadata_server_announces_the_end(
    said: str | Exception, announced: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http.client, "HTTPConnection", Answer(said))
    assert preemption.announced() is announced
