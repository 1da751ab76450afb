"""A run whose machine is taken away many times, with a notice and without one, ends with the bytes
of an undisturbed one and loses no more than its plan says."""

import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from runner.history import lost_work
from runner.isolation import bubblewrap
from runner.lib import preemption, process_tree
from runner.planning import mesh_words
from runner.schema.record import Execution
from runner.store import artifacts
from runner.store.store import Store
from runner.worker import executor, shard_jobs
from tests.decided import decide
from tests.integration.runner.test_execute import made, planned

STEPS, EVERY = 320, 10
TRAINING = f"""title: T
resources: {{kind: cpu, spot: true}}
steps:
  tokens: {{do: tokenize, config: {{source: stdlib}}}}
  train:
    do: train
    inputs: {{tokens: tokens}}
    config:
      model: {{hidden_dim: 32, intermediate_dim: 64, num_layers: 2, num_heads: 2, seq_len: 64}}
      train: {{train_batch_size: 16, num_train_steps: {STEPS}, learning_rate: 0.01,
              checkpoint_every: {EVERY}}}
"""
KILL, TERM, NOTICE = "kill -9", "SIGTERM", "the metadata server"
TEN = (TERM, KILL, NOTICE, KILL, TERM, KILL, NOTICE, TERM, KILL, TERM)
OWN_RATE = "      own: {schedule: own:rate}\n"
OWN = """
def rate(config, step):
    return 0.01 / (1 + step / 100)
"""
isolating = pytest.mark.skipif(
    bool(bubblewrap.probe()), reason=f"nothing was isolated: {bubblewrap.probe()}"
)


class Metadata(BaseHTTPRequestHandler):
    """Google's metadata server."""

    leaving = False

    def do_GET(self) -> None:
        assert self.headers["Metadata-Flavor"] == "Google"
        said = {"preempted": "TRUE" if Metadata.leaving else "FALSE", "maintenanceEvent": "NONE"}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = HTTPServer(("127.0.0.1", 0), Metadata)
    monkeypatch.setenv(preemption.HOST, f"127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield
    server.shutdown()
    thread.join()
    server.server_close()


def reached(step: Path, generation: int) -> int:
    """The newest step that a maker has printed."""
    logs = list(step.glob(f"{generation}-*.scratch/log.txt"))
    words = logs[0].read_text().split() if logs else []
    said = [int(after) for word, after in itertools.pairwise(words) if word == "step"]
    return max(said, default=0)


@contextmanager
def weather(
    step: Path, hows: Sequence[str], ended: Callable[[int], bool]
) -> Iterator[list[tuple[str, int]]]:
    """Disturb each of the first makers of a step, some steps after it went on. `ended`: whether the
    maker with this number has. Yields what was done at which step."""
    done: list[tuple[str, int]] = []
    chance = random.Random(21)
    failed: list[BaseException] = []

    def blow() -> None:
        for generation, how in enumerate(hows, start=1):
            until, goal = time.monotonic() + 60, 0
            while not goal or reached(step, generation) < goal:
                if not goal and (at := reached(step, generation)):
                    goal = at + chance.randint(2, 2 * EVERY)
                assert time.monotonic() < until, (generation, how)
                time.sleep(0.002)
            server = shard_jobs._server.start().process.pid
            trains = min(process_tree.children(server))
            done.append((how, reached(step, generation)))
            if how == NOTICE:
                Metadata.leaving = True
                while not ended(generation):
                    assert time.monotonic() < until, (generation, how)
                    time.sleep(0.01)
                Metadata.leaving = False
            else:
                os.kill(trains, signal.SIGKILL if how == KILL else signal.SIGTERM)

    def run() -> None:
        try:
            blow()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield done
    thread.join()
    assert not failed, failed


@pytest.mark.parametrize(
    ("hows", "own"),
    [
        pytest.param(TEN, "", marks=pytest.mark.slow, id="ten"),
        pytest.param((TERM, KILL, NOTICE), OWN_RATE, marks=isolating, id="three-in-a-box"),
    ],
)
@pytest.mark.long
@pytest.mark.usefixtures("metadata")
def test_preemptions_lose_what_the_plan_says_and_end_in_the_same_parameters(
    hows: Sequence[str], own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its server of steps has this environment, and not that of an earlier test.
    monkeypatch.setattr(shard_jobs, "_server", shard_jobs.StepServer())
    decide(tmp_path / "two-arms", devices="cpu: {price: 36.0, spot_price: 3.6}")
    calm, store = Store(tmp_path / "calm"), Store(tmp_path / "store")
    terms = executor.Terms("bubblewrap")
    undisturbed = made(calm, planned(tmp_path, calm, TRAINING + own, own=OWN), terms=terms)
    plan = planned(tmp_path, store, TRAINING + own, own=OWN)
    step = plan.steps["train"]
    assert any(f"at most {EVERY} steps of each run" in words for words in mesh_words.told(plan))

    def ended(generation: int) -> bool:
        makers = artifacts.history(store, step.store, step.fingerprint)
        return len(makers) >= generation and makers[generation - 1][1] is not None

    folder = store.local(f"steps/{step.store}/{step.fingerprint[:16]}")
    with weather(folder, hows, ended) as done:
        disturbed = made(store, plan, terms=terms)
    assert disturbed["train"].manifest.files == undisturbed["train"].manifest.files
    assert [how for how, _ in done] == list(hows)
    ends = [end for _, end in artifacts.history(store, step.store, step.fingerprint) if end]
    assert [end.how for end in ends] == ["lost"] * len(hows) + ["made"]
    assert [end.preempted for end in ends] == [how != KILL for how in hows] + [False]
    execution = Execution(id="x1", at=datetime.now(UTC), plan=plan, origin=None)
    (lost,) = lost_work.of_execution(store, execution)
    kills = hows.count(KILL)
    assert (lost.times, lost.preempted) == (len(hows), len(hows) - kills)
    assert lost.steps <= kills * EVERY, "nothing is done again after a notice"
    assert 0 < lost.seconds <= sum(end.seconds or 0.0 for end in ends)
    assert lost.price == pytest.approx(lost.seconds * 3.6 / 3600, abs=1e-6)
    print(*lost_work.told([lost]))
