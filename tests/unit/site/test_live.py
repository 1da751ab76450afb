"""The page of what runs now: from what jobs report, kept for some seconds, for everybody."""

import json
from datetime import timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from bot.service import live
from bot.site.facts.entries import read_entry
from bot.site.pages.templating import look
from runner.lib import redact
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import EVIL, Page

NAME = synthetic.record.execution_id("1")


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def client(store, clock):
    app = FastAPI()
    app.include_router(live.routes(live.Live(store, look("Lab", live=True), clock)))
    return TestClient(app)


def report(store, run, *steps):
    """A job's word on steps of a run."""
    path = store.local(f"{synthetic.making(store, NAME, run)}/curve/{steps[0]:06d}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "step": step,
            "loss": 5.0 - step / 10,
            "grad_norm": 1.0,
            "learning_rate": 0.001,
            "tokens": step * 16 * 256,
            "tokens_per_second": 9000.0,
        }
        for step in steps
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read(client, tmp_path):
    """The page, and what its script hands over."""
    answer = client.get(f"/live/{NAME}")
    assert answer.status_code == 200
    (tmp_path / "live.html").write_text(answer.text)
    script = client.get(f"/live/{NAME}.js").text
    begin = f'regatta.take("live/{NAME}.js",'
    assert script.startswith(begin)
    return Page(tmp_path / "live.html"), json.loads(script[len(begin) : -len(");\n")])


def test_a_live_page_shows_what_jobs_report(store, client, tmp_path):
    synthetic.begin(store, synthetic.execution(synthetic.plan()), "t1.claimed", "t1.started")
    report(store, "fast.s1", 1, 2, 3)
    page, body = read(client, tmp_path)
    assert body["live"]["state"] == "running"
    assert ["fast.s1", 3, 16, 4.7, 9000] in body["live"]["rows"]
    assert ["slow.s0", 0, 16, None, None] in body["live"]["rows"]
    assert "fast.s1 3 16 4.7 9,000" in page.text
    assert "This page reloads them every 5 seconds" in page.text
    assert "../live.js" in page.links
    assert "spec" in body


def test_a_live_page_says_how_far_it_is_how_long_it_took_and_what_is_left(store, tmp_path):
    plan = synthetic.plan()
    synthetic.begin(store, synthetic.execution(plan), "t1.claimed", "t1.started")
    report(store, "fast.s1", *range(1, 9))
    today = synthetic.START + timedelta(minutes=3)
    page = live.Live(store, look("Lab", live=True), today=lambda: today).drawn(NAME)
    body = json.loads(page.script.partition(",")[2].removesuffix(");\n"))
    assert body["live"]["share"] == pytest.approx(8 / (6 * 16), abs=1e-4)
    assert body["live"]["facts"] == {
        "done": "8%", "tokens": "32.8k of 393k", "elapsed": "3 min 0 s", "left": "40 s",
        "speed": "9,000",
    }  # fmt: skip
    assert body["ends"]["tokens"] == 16 * 16 * 256, "the axis ends where training will"
    (tmp_path / "live.html").write_text(page.page)
    text = Page(tmp_path / "live.html").text
    assert "40 s left for training 3 min 0 s elapsed" in text
    assert text.index("Training loss") < text.index("Steps planned"), "the curve comes first"


def test_before_there_is_a_result_a_live_page_has_the_means_of_scored_runs(
    store, client, tmp_path, monkeypatch
):
    execution, ended = synthetic.execution(synthetic.plan()), Store(tmp_path / "ended")
    synthetic.finish(ended, execution, synthetic.PLAIN)
    scored = {(run.arm, run.seed): run for run in read_entry(ended, NAME).runs}
    synthetic.begin(store, execution, "t1.claimed", "t1.started")
    monkeypatch.setattr(live.step_runs, "runs", lambda *_: (scored, []))
    means = [str(one) for one in read_entry(ended, NAME).summaries.values()]
    assert all(" ± " in one and one in read(client, tmp_path)[0].text for one in means)


def test_a_runs_live_page_has_gradient_norm_learning_rate_and_speed(store):
    synthetic.begin(store, synthetic.execution(synthetic.plan()), "t1.claimed", "t1.started")
    report(store, "fast.s1", 1, 2, 3)
    page = live.Live(store, look("Lab", live=True)).drawn(NAME, "fast.s1")
    body = json.loads(page.script.partition(",")[2].removesuffix(");\n"))
    assert {name: part["data"]["points"]["value"] for name, part in body["parts"].items()} == {
        "grad_norm": [1.0] * 3, "learning_rate": [0.001] * 3, "tokens_per_second": [9000.0] * 3,
    }  # fmt: skip
    for title in ("Gradient norm", "Learning rate", "Tokens per second"):
        assert title in page.page


def test_before_the_first_step_there_is_a_page_without_a_curve(store, client, tmp_path):
    synthetic.begin(store, synthetic.execution(synthetic.plan()))
    page, body = read(client, tmp_path)
    assert body["live"]["state"] == "queued"
    assert "spec" not in body
    assert "figure" not in page.tags


def test_a_page_is_kept_for_some_seconds_and_then_drawn_again(store, client, clock, tmp_path):
    synthetic.begin(store, synthetic.execution(synthetic.plan()), "t1.claimed", "t1.started")
    report(store, "fast.s1", 1)
    read(client, tmp_path)
    report(store, "fast.s1", 2, 3)
    clock.now += live.SECONDS - 1
    assert ["fast.s1", 1, 16, 4.9, 9000] in read(client, tmp_path)[1]["live"]["rows"]
    clock.now += 1
    assert ["fast.s1", 3, 16, 4.7, 9000] in read(client, tmp_path)[1]["live"]["rows"]


def test_the_live_page_of_an_ended_execution_stops_reloading(store, client, tmp_path):
    synthetic.finish(store, synthetic.execution(synthetic.plan()), synthetic.PLAIN)
    page, body = read(client, tmp_path)
    assert body["live"]["ended"] is True
    assert "The execution has ended" in page.text
    assert "data-ended" in client.get(f"/live/{NAME}").text


@pytest.mark.parametrize("name", ["x0000000000000000", "..%2f..%2fetc", "X", NAME + "0", EVIL])
def test_the_live_page_of_an_unknown_execution_is_404(client, name):
    answer = client.get(f"/live/{name}")
    assert answer.status_code == 404
    assert "<" not in answer.text


def test_no_secret_that_is_held_here_stands_on_a_live_page(store, client, tmp_path):
    synthetic.begin(store, synthetic.execution(synthetic.plan(title="ghs_0123456789abcdef says")))
    redact.hold("ghs_0123456789abcdef")
    try:
        page, _ = read(client, tmp_path)
    finally:
        redact.forget()
    assert "[secret] says" in page.text
    assert "ghs_0123456789abcdef" not in client.get(f"/live/{NAME}").text


def test_strangers_words_on_a_live_page_are_words(store, client, tmp_path):
    synthetic.begin(store, synthetic.execution(synthetic.plan(title=EVIL)))
    page, _ = read(client, tmp_path)
    assert EVIL in page.text


def test_each_run_has_a_page_of_its_own_with_what_its_job_prints(store, client, tmp_path):
    synthetic.begin(store, synthetic.execution(synthetic.plan()), "t1.claimed", "t1.started")
    report(store, "fast.s1", 1, 2, 3)
    log = store.local(f"{synthetic.making(store, NAME, 'fast.s1')}/log.txt")
    log.write_text("compiling\nstep 3\n")
    page, _ = read(client, tmp_path)
    assert f"{NAME}/fast.s1" in page.links
    answer = client.get(f"/live/{NAME}/fast.s1")
    assert answer.status_code == 200
    (tmp_path / "run.html").write_text(answer.text)
    page = Page(tmp_path / "run.html")
    assert "fast, seed 1" in page.text
    assert "fast.s1 3 16 4.7 9,000" in page.text
    assert "slow" not in page.text
    assert "This page reloads them every 5 seconds" in page.text
    assert "compiling step 3" in page.text
    assert "../../live.js" in page.links
    path = f"live/{NAME}/fast.s1.js"
    script = client.get(f"/{path}").text
    assert script.startswith(f'regatta.take("{path}",')
    body = json.loads(script[len(f'regatta.take("{path}",') : -len(");\n")])
    assert body["live"]["rows"] == [["fast.s1", 3, 16, 4.7, 9000]]
    assert body["live"]["log"] == "compiling\nstep 3"
    assert "spec" in body
    slow = client.get(f"/live/{NAME}/slow.s0")
    assert "The job reported no curve." in slow.text
    assert client.get(f"/live/{NAME}/none.s0").status_code == 404
