"""What is left, what waits, what was set aside and the last full look: four figures, a sentence and
advice for each, the same in health checks, metrics and the doctor."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import generate_latest

from bot.controller import catch_up, condition
from bot.controller.condition import FIGURES, Condition, ConditionWatch
from bot.controller.write_budget import Cause, Rank
from bot.controller.write_log import WriteLog
from bot.inbox import quarantine
from bot.inbox.deliveries import Unheard
from bot.model.thread import ThreadId
from bot.service import health
from bot.setup import condition_check
from bot.telemetry import metrics
from runner.store.store import Store

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
REPOSITORY = 7


def a_condition(**changes: Any) -> Condition:
    """A condition in which all is well, but for the changes."""
    left = {"minute": 80, "hour": 500, "strangers": 175}
    well = {"at": NOW, "left": left, "pending": 0, "deferred": {}, "full_look": NOW}
    return Condition.model_validate(well | changes)


def bad(now: Condition) -> dict[str, str]:
    """The sentences of the figures that are bad."""
    return {name: text for name, (text, advice) in now.sentences().items() if advice}


def test_each_figure_has_a_sentence_and_none_has_advice_where_all_is_well() -> None:
    assert list(a_condition().sentences()) == list(FIGURES)
    assert dict(a_condition().sentences().values()) == {
        "the lab may write 80 times more within this minute and 500 times within this hour, "
        "175 times because of strangers; 0 deliveries wait.": "",
        "none for lack of budget.": "",
        "0 within seven days: none.": "",
        "the last one at 2026-11-28 12:00 UTC, 0 min ago.": "",
    }


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "writes": (
        {"left": {"minute": 10, "hour": 325, "strangers": 0}},
        "0 times because of strangers",
    ),
    "waiting writes": ({"deferred": {"lab": 2, "stranger": 5}}, "2 caused by lab, 5 caused by"),
    "skipped": (
        {"aside": 1, "newest_aside": ["#4, it ended the process 3 times (delivery d1)"]},
        "1 within seven days: #4, it ended the process 3 times (delivery d1).",
    ),
    "full look": ({"full_look": NOW - timedelta(minutes=121)}, "121 min ago."),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_figure_says_so_and_what_to_do(name: str) -> None:
    changes, text = BAD[name]
    found = bad(a_condition(**changes))
    assert list(found) == [name]
    assert text in found[name]
    assert FIGURES[name]


@pytest.mark.parametrize(
    "changes",
    [
        {"deferred": {"stranger": 90}},
        {"deferred": None},
        {"full_look": None},
        {"full_look": NOW - timedelta(hours=2)},
    ],
)
def test_what_is_as_it_should_be_asks_for_nothing(changes: dict[str, Any]) -> None:
    assert bad(a_condition(**changes)) == {}


def test_the_figures_are_those_of_the_records(tmp_path: Path) -> None:
    store, log = Store(tmp_path), WriteLog(Store(tmp_path), REPOSITORY)
    log.add(NOW - timedelta(minutes=30), Cause(Rank.STRANGER, 1, 4))
    log.add(NOW - timedelta(seconds=30), Cause(Rank.LAB))
    for number, days in ((4, 1), (5, 8), (6, 2)):
        at = NOW - timedelta(days=days)
        quarantine.put(store, ThreadId(REPOSITORY, number), Unheard(f"d{number}", None), at, "why")
    catch_up._keep(store, REPOSITORY, catch_up.Swept(at=NOW - timedelta(hours=1)))
    now = condition.read(store, REPOSITORY, NOW)
    assert now.left == {"minute": 79, "hour": 498, "strangers": 174}
    assert now.newest_aside == ("#4, why (delivery d4)", "#6, why (delivery d6)")
    assert (now.aside, now.deferred) == (2, None)
    assert now.full_look == NOW - timedelta(hours=1)
    assert "only the bot that leads knows" in now.sentences()["waiting writes"][0]


def test_of_many_that_were_set_aside_ten_are_named(tmp_path: Path) -> None:
    store, id = Store(tmp_path), ThreadId(REPOSITORY, 4)
    for n in range(12):
        at = NOW - timedelta(minutes=n)
        quarantine.put(store, id, Unheard(f"d{n}", None), at, "why")
    now = condition.read(store, REPOSITORY, NOW)
    assert (now.aside, len(now.newest_aside)) == (12, condition.MAX_SHOWN)
    assert "(delivery d0)" in now.newest_aside[0]


# ── Where it is shown ──


def watch(store: Store, clock: list[float]) -> ConditionWatch:
    github: Any = SimpleNamespace(id=REPOSITORY, now=lambda: NOW)
    return ConditionWatch(store, github, lambda: clock[0])


def test_the_metrics_show_the_figures(tmp_path: Path) -> None:
    store = Store(tmp_path)
    WriteLog(store, REPOSITORY).add(NOW, Cause(Rank.LAB))
    quarantine.put(store, ThreadId(REPOSITORY, 4), Unheard("d1", None), NOW, "why")
    catch_up._keep(store, REPOSITORY, catch_up.Swept(at=NOW))
    watch(store, [0.0]).look({})
    text = generate_latest(metrics.REGISTRY).decode()
    assert 'regatta_writes_left{part="hour"} 499.0' in text
    assert 'regatta_writes_left{part="strangers"} 175.0' in text
    assert "regatta_deliveries_skipped 1.0" in text
    assert metrics.FULL_LOOK._value.get() == NOW.timestamp()


def test_the_store_is_read_every_ten_seconds(tmp_path: Path) -> None:
    store, clock = Store(tmp_path), [0.0]
    seen = watch(store, clock)
    seen.look({})
    first = seen.newest
    clock[0] = 9.0
    seen.look({"lab": 1})
    assert seen.newest is first
    clock[0] = 10.0
    seen.look({"lab": 1})
    assert seen.newest is not None
    assert seen.newest.deferred == {"lab": 1}


def test_what_cannot_be_read_leaves_the_last_condition_and_raises_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, clock = Store(tmp_path), [0.0]
    seen = watch(store, clock)
    seen.look({})
    first = seen.newest
    (tmp_path / "records/aside/7/4").mkdir(parents=True)
    (tmp_path / "records/aside/7/4/d1.json").write_text("{")
    clock[0] = 10.0
    seen.look({})
    assert seen.newest is first
    assert "the bot's condition cannot be read" in caplog.text


def answers(tmp_path: Path, now: Condition | None) -> TestClient:
    app = FastAPI()
    loop = health.Loop(lambda: True, lambda: 0.0, lambda: True, lambda: now, lambda: 0.0)
    app.include_router(health.routes(Store(tmp_path), loop))
    return TestClient(app)


@pytest.mark.parametrize(("path", "status"), [("/healthz", "ok"), ("/readyz", "leads")])
def test_a_bot_is_healthy_and_ready_however_bad_the_figures_are(
    tmp_path: Path, path: str, status: str
) -> None:
    """Otherwise strangers could have it restarted, or cut off."""
    changes: dict[str, Any] = {}
    for each, _ in BAD.values():
        changes |= each
    now = a_condition(**changes)
    answer = answers(tmp_path, now).get(path)
    assert (answer.status_code, answer.json()["status"]) == (200, status)
    assert Condition.model_validate(answer.json()["figures"]) == now
    for name, (text, advice) in now.sentences().items():
        assert answer.json()["sentences"][name] == f"{text} {advice}"


# ── The doctor ──


def checked(store: Path, answer: httpx.Response | Exception) -> dict[str, str]:
    def respond(request: httpx.Request) -> httpx.Response:
        assert request.url == "https://lab.test/healthz"
        if isinstance(answer, Exception):
            raise answer
        return answer

    settings: Any = SimpleNamespace(url="https://lab.test", store=str(store))
    client = lambda: httpx.Client(transport=httpx.MockTransport(respond))  # noqa: E731
    checks = condition_check.checks(settings, client)
    assert list(checks) == list(FIGURES)
    return {name: check() for name, check in checks.items()}


def test_the_doctor_reads_what_the_running_bot_says(tmp_path: Path) -> None:
    said = {"figures": a_condition(left={"minute": 3, "hour": 30, "strangers": 9})}
    body = httpx.Response(200, json={"figures": said["figures"].model_dump(mode="json")})
    assert "may write 3 times" in checked(tmp_path / "none", body)["writes"]


@pytest.mark.parametrize(
    "answer",
    [
        httpx.ConnectError("nobody listens"),
        httpx.Response(200, text="ok\n"),
        httpx.Response(200, json={"status": "ok"}),
        httpx.Response(200, json=["ok"]),
        httpx.Response(200, json={"figures": {"of": "another version"}}),
    ],
)
def test_the_doctor_reads_the_store_where_no_bot_says_it(tmp_path: Path, answer: Any) -> None:
    WriteLog(Store(tmp_path), REPOSITORY).add(datetime.now(UTC), Cause(Rank.LAB))
    assert "499 times within this hour" in checked(tmp_path, answer)["writes"]
