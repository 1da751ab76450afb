"""Labels by a language model, against a stand-in for an endpoint on this machine: whatever it
answers, nothing is lost, nothing is sent twice, and the budget holds."""

import json
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.planning import planner
from runner.publish import asking
from runner.publish.asking import CannotAsk, Endpoint, ask
from runner.schema import record, replies
from runner.spec.selection_steps import Ask
from runner.store import artifacts
from runner.store.artifacts import MakingFailed
from runner.store.store import Store
from runner.worker import executor
from tests.integration.runner.test_execute import HEAD, planned

STEP = "ab" * 32


class Model:
    """A stand-in for an endpoint: what it does with a document is written in the document."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.keys: set[str | None] = set()
        self.busy: Counter[str] = Counter()  # how often a document is refused first
        self.used = (50, 10)  # tokens

    def answer(self, text: str) -> tuple[int, bytes]:
        self.seen[text] += 1
        if self.busy[text]:
            self.busy[text] -= 1
            return 429, b"{}"
        if text.startswith("status "):
            return int(text.split()[1]), b"{}"
        if text == "slow":
            time.sleep(1.5)
        if text == "rubbish":
            return 200, b"<html>"
        if text == "odd":
            return 200, b'{"choices": [{"message": {"content": 7}}], "usage": {}}'
        said = "I cannot say." if text == "silent" else f"Well. Final Score: {text}"
        choice = {"message": {"role": "assistant", "content": said}}
        usage = dict(zip(("prompt_tokens", "completion_tokens"), self.used, strict=True))
        return 200, json.dumps({"choices": [choice], "usage": usage}).encode()


@pytest.fixture
def model() -> Iterator[Model]:
    made = Model()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the library's name
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            made.keys.add(self.headers["authorization"])
            text = body["messages"][0]["content"].removeprefix("Judge: ").removesuffix(" End.")
            status, data = made.answer(text)
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_port}/v1"  # type: ignore[attr-defined]
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def configured(**keys: Any) -> dict[str, Any]:
    usual = {"prompt": "Judge: {example} End.", "model": "m", "reply_tokens": 20}
    return Ask(**{**usual, "max_tokens": 10**6, "max_dollars": 1.0, **keys}).model_dump(mode="json")


def asked(store: Store, model: Any, texts: list[str], **keys: Any) -> dict[str, tuple[Any, str]]:
    """{text: (reply, why there is none)}"""
    config, at_once = configured(**keys), 2
    requests = [replies.request(config, text) for text in texts]
    at = Endpoint(model.url, "a-long-secret", 1.0, 2.0)
    found = ask(store, at, STEP, config, requests, at_once, lambda _: None)
    by = {replies.sha256(one): text for one, text in zip(requests, texts, strict=True)}
    return {by[name]: (one.reply, one.why) for name, one in found.items()}


def test_every_document_is_asked_for_once_and_what_has_no_reply_says_why(
    store: Store, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "SECONDS", 1.0)
    texts = ["Great", "slow", "rubbish", "odd", "silent", "status 500", "Poor", "Great"]
    found = asked(store, model, texts)
    assert found["Great"] == ("Well. Final Score: Great", "")
    assert found["silent"][0] == "I cannot say."
    assert found["slow"] == (None, "no answer: ReadTimeout")
    assert (
        found["rubbish"] == found["odd"] == (None, "its answer is not a chat completion with usage")
    )
    assert found["status 500"] == (None, "the endpoint answered 500")
    assert model.seen == dict.fromkeys(texts, 1)
    assert model.keys == {"Bearer a-long-secret"}
    assert asked(store, model, texts) == found
    assert model.seen == dict.fromkeys(texts, 1), "a second call asks nothing"
    kept = b"".join(path.read_bytes() for path in Path(store.root).rglob("*.json"))
    assert b"a-long-secret" not in kept


def test_a_refusal_is_tried_again_a_few_times(store: Store, model: Any) -> None:
    model.busy["Okay"] = 3
    assert asked(store, model, ["Okay"])["Okay"][0] == "Well. Final Score: Okay"
    assert model.seen["Okay"] == 4
    model.busy["Good"] = 99
    with pytest.raises(CannotAsk, match=r"refused one request 5 times; ask later"):
        asked(store, model, ["Good", "Okay"])
    assert model.seen == {"Okay": 4, "Good": 5}
    model.busy["Good"] = 2
    assert asked(store, model, ["Good"])["Good"][0], "a later call has tries of its own"


def test_a_document_that_the_endpoint_does_not_take_has_no_reply_and_others_do(
    store: Store, model: Any
) -> None:
    found = asked(store, model, ["status 400", "status 413", "Great"], max_tokens=2000)
    assert found["status 413"][1] == "the endpoint answered 413: it does not take this document"
    assert found["Great"][0] == "Well. Final Score: Great"
    assert asked(store, model, ["status 400", "Great"]) == {
        text: found[text] for text in ("status 400", "Great")
    }
    assert set(model.seen.values()) == {1}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["status 401"], r"answers 401; check the endpoint, the key and `model`"),
        (["status 307"], r"answers 307; check the endpoint, the key and `model`"),
        ([f"status 50{n % 2} {n}" for n in range(40)], r"10 requests in a row had no reply; the"),
    ],
)
def test_an_endpoint_that_does_not_work_ends_the_asking(
    store: Store, model: Any, texts: list[str], words: str
) -> None:
    with pytest.raises(CannotAsk, match=words):
        asked(store, model, texts)
    assert len(model.seen) <= 12


def test_nobody_there_is_said_and_costs_nothing(store: Store, model: Any) -> None:
    there, model.url = model.url, "http://127.0.0.1:9/v1"
    with pytest.raises(CannotAsk, match=r"http://127.0.0.1:9/v1 cannot be reached"):
        asked(store, model, ["Great"])
    model.url = there
    assert asked(store, model, ["Great"])["Great"][0], "and it may be asked later"


def test_the_budget_holds_and_what_was_answered_is_kept(store: Store, model: Any) -> None:
    texts = [f"Good {n}" for n in range(30)]
    with pytest.raises(
        CannotAsk, match=r"what is left of 1,000 tokens and \$1.00.* documents have"
    ):
        asked(store, model, texts, max_tokens=1000)
    sent = len(model.seen)
    assert 10 < sent < 17, "60 tokens each, and room for the next at its most"
    with pytest.raises(CannotAsk, match=r"Raise `max_tokens` or `max_dollars`"):
        asked(store, model, texts, max_tokens=1000)
    assert len(model.seen) <= sent + 1, "what an earlier call used counts"
    with pytest.raises(CannotAsk, match=r"\$0.00"):
        asked(store, model, texts, max_dollars=0.0)
    assert len(asked(store, model, texts)) == 30
    assert set(model.seen.values()) == {1}


def test_a_reply_that_costs_more_than_it_could_ends_the_asking(store: Store, model: Any) -> None:
    model.used = (10**7, 5)
    with pytest.raises(CannotAsk, match=r"a reply used more than it could at most"):
        asked(store, model, [f"Good {n}" for n in range(30)])
    assert len(model.seen) <= 2


@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5, 6, 7])
def test_after_a_crash_anywhere_nothing_is_sent_twice(
    store: Store, model: Any, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, count = [f"Good {n}" for n in range(3)], 0
    create = store.create

    def dies(name: str, data: bytes, *, lasting: bool = True) -> bool:
        nonlocal count
        count += 1
        if count == nth:
            raise KeyboardInterrupt
        return create(name, data, lasting=lasting)

    monkeypatch.setattr(store, "create", dies)
    with pytest.raises(KeyboardInterrupt):
        asked(store, model, texts)
    monkeypatch.undo()
    found = asked(Store(store.root), model, texts)
    assert max(model.seen.values()) == 1
    lost = [why for reply, why in found.values() if reply is None]
    assert set(lost) <= {asking.LOST}
    assert len(lost) <= 2, "those that were under way"


# ── As an operator does it ───────────────────────────────────────────────────────────────────

OWN = """
import json

def prepare(config, inputs, out):
    for split, count in (("train", 40), ("validation", 5)):
        rows = [{"id": f"{split} {n}", "text": ["Great", "Poor", "silent"][n % 3] + " " * n}
                for n in range(count)]
        (out / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
"""
DECLARED = f"""{HEAD}steps:
  prepare: {{do: own:prepare}}
  labels:
    do: label
    inputs: {{text: prepare}}
    config:
      documents: 30
      ask: {{prompt: "Judge: {{example}} End.", model: m, max_tokens: 90000, max_dollars: 1}}
"""


def test_an_operator_asks_and_the_step_finds_the_replies(
    tmp_path: Path, store: Store, model: Any
) -> None:
    plan = planned(tmp_path, store, DECLARED, own=OWN)
    code = store.local(planner.code_folder(plan))

    def make(name: str) -> Path:
        executor.make(store, name, plan.steps, plan.kinds, code, "x1", terms=executor.OWN_MACHINE)
        step = plan.steps[name]
        found = artifacts.find(store, step.store, step.fingerprint)
        assert found
        return found.folder

    an_execution(store, plan)
    prices = ["--input-price", "1", "--output-price", "2"]
    call = ["label", "latest", "--endpoint", model.url, *prices, "--store", str(store.root)]
    free = CliRunner().invoke(app, [one for one in call if one not in prices])
    assert free.exit_code == 2, "without prices, no budget in dollars would hold"
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 2, traceback.format_exception(result.exception)
    assert "labels the output of `prepare`, which is not in the store yet" in result.output
    make("prepare")
    with pytest.raises(
        MakingFailed, match=r"no reply is recorded; the operator runs `regatta label"
    ):
        make("labels")
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    assert "labels: 30 documents, 21 of them with a label" in result.output
    lines = (make("labels") / "labels.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    wanted = {"Great": 5, "Poor": 2, "silent": -1}
    assert {(row["text"].strip(), row["label"]) for row in rows} == {*wanted.items()}
    assert {row["labelled_by"] for row in rows} == {"m"}
    assert sum(model.seen.values()) == 30


def an_execution(store: Store, plan: record.Plan) -> None:
    from tests.synthetic import execution

    record.write(store, "executions/x1/execution", execution(plan))
