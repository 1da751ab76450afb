"""Health, readiness, figures, and how the site is served."""

from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import generate_latest

from bot.service import health, server
from bot.service.health import Loop
from bot.telemetry import metrics
from runner.store.backends import StoreFault
from runner.store.store import Store


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def served(store: Store, loop: Loop) -> TestClient:
    app = FastAPI()
    app.include_router(health.routes(store, loop))
    return TestClient(app)


def a_loop(clock: Clock, *, alive: bool = True, leads: bool = True) -> Loop:
    return Loop(lambda: alive, lambda: 1_000.0, lambda: leads, lambda: None, clock)


def test_a_loop_that_comes_around_is_healthy(tmp_path: Path) -> None:
    answer = served(Store(tmp_path), a_loop(Clock())).get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_a_loop_that_ended_is_not(tmp_path: Path) -> None:
    answer = served(Store(tmp_path), a_loop(Clock(), alive=False)).get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"status": "The loop has ended."})


def test_a_loop_that_stands_still_for_long_is_not(tmp_path: Path) -> None:
    clock = Clock()
    client = served(Store(tmp_path), a_loop(clock))
    clock.now += health.STANDS_STILL
    assert client.get("/healthz").status_code == 200
    clock.now += 1
    assert client.get("/healthz").status_code == 503


@pytest.mark.parametrize(("leads", "word"), [(True, "leads"), (False, "follows")])
def test_a_bot_is_ready_whether_it_leads_or_not(tmp_path: Path, leads: bool, word: str) -> None:
    answer = served(Store(tmp_path), a_loop(Clock(), leads=leads)).get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": word})


def test_a_bot_without_its_store_is_not_ready(tmp_path: Path) -> None:
    client = served(Store(tmp_path / "store"), a_loop(Clock()))
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    assert client.get("/readyz").status_code == 503
    assert not (tmp_path / "store").exists()


def test_a_bot_whose_disk_is_full_is_not_ready_until_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, store = Clock(), Store(tmp_path)
    client = served(store, a_loop(clock))
    assert client.get("/readyz").status_code == 200
    with monkeypatch.context() as full:
        full.setattr(store, "create", _no_space)
        assert client.get("/readyz").status_code == 200  # asked again at once, it tries nothing
        clock.now += health.TRY_EVERY
        assert client.get("/readyz").status_code == 503
    clock.now += health.TRY_EVERY
    assert client.get("/readyz").status_code == 200
    assert store.list("ready") == []


def _no_space(*_: object) -> bool:
    raise StoreFault("No space left on device")


def test_the_site_is_compressed_for_those_who_can_read_it(tmp_path: Path) -> None:
    script = "const charts = 1;\n" * 50_000
    (tmp_path / "vega.js").write_text(script)
    (tmp_path / "small.txt").write_text("small")
    client = TestClient(server.files(tmp_path))
    packed = client.get("/vega.js", headers={"Accept-Encoding": "gzip"})
    assert (packed.headers["content-encoding"], packed.text) == ("gzip", script)
    assert packed.headers["vary"] == "Accept-Encoding"
    plain = client.get("/vega.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == script.encode()
    part = client.get("/vega.js", headers={"Accept-Encoding": "gzip", "Range": "bytes=6-11"})
    assert (part.status_code, part.content) == (206, b"charts")
    again = {"Accept-Encoding": "gzip", "If-None-Match": packed.headers["etag"]}
    assert client.get("/vega.js", headers=again).status_code == 304
    assert "content-encoding" not in client.get("/small.txt").headers


def test_an_unsigned_event_name_creates_no_metric() -> None:
    for n in range(100):
        metrics.answered(f"made-up-{n}", 401, 0.001)
    text = generate_latest(metrics.REGISTRY).decode()
    assert "made-up" not in text
    assert 'event="other",status="401"' in text
