"""Whole ways with real processes: sandbox, bot, Ray and JAX."""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.fake_github.server import running
from bot.fake_github.world.sandbox import make_sandbox
from bot.model import policy_file
from runner.execution.local_ray import local_ray
from runner.execution.ray_jobs import RayAddress
from runner.isolation import bubblewrap
from runner.lib.process_tree import PR_SET_CHILD_SUBREAPER, descendants
from tests.scenarios.lab import EXPERIMENT, ROOT, SECRET, TEXT, TOKENS, form_body

BEATS = 12 if bubblewrap.probe() else 11  # where own code is isolated, nobody has to run it again
LONGER = EXPERIMENT.replace("num_train_steps: 16", "num_train_steps: 120")


@pytest.fixture
def adopting() -> Iterator[None]:
    """Orphans of what this process starts become its children, so that none can hide."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def wait_for(what: str, look: Callable[[], Any], patience: float = 120) -> Any:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {patience} s")


@pytest.mark.timeout(1000)
@pytest.mark.long
@pytest.mark.usefixtures("adopting")
def test_the_demo_tells_its_whole_story_and_leaves_no_process(tmp_path: Path) -> None:
    before = set(descendants(os.getpid()))
    report = tmp_path / "report.json"
    ended = subprocess.run(
        [sys.executable, "-m", "bot", "demo", "--once", "--report", str(report)],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(report.read_text())
    assert told["missed"] is None
    assert len(told["beats"]) == BEATS
    assert all(beat["link"].startswith("http://127.0.0.1:") for beat in told["beats"])
    left = set(descendants(os.getpid())) - before
    assert not left, [Path(f"/proc/{process}/cmdline").read_bytes() for process in left]


@contextlib.contextmanager
def a_bot(
    store: Path, sandbox: str, port: int, ray: RayAddress
) -> Iterator[subprocess.Popen[bytes]]:
    """The bot as a process of its own, ended at the end if it still lives."""
    bot = subprocess.Popen(
        [
            *(sys.executable, "-m", "bot", "serve"),
            *("--repository", "regatta-lab/lab"),
            *("--store", str(store)),
            *("--github-api", f"{sandbox}/api/v3"),
            *("--ray-address", ray.url),
            *("--ray-token-file", str(ray.token_file)),
            *("--seconds-between-writes", "0"),
            *("--port", str(port)),
        ],
        env={
            "PATH": os.environ["PATH"],
            "REGATTA_WEBHOOK_SECRET": SECRET,
            "REGATTA_GITHUB_TOKEN": "installation-token",
            "REGATTA_BOT": "regatta-lab[bot]",
        },
        cwd=store.parent,
    )
    try:
        wait_for("the bot listens", lambda: _listens(port))
        yield bot
    finally:
        bot.terminate()
        bot.wait(30)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.mark.timeout(1000)
@pytest.mark.long
def test_a_bot_killed_in_the_middle_of_training_finishes_the_story_in_its_next_life(
    tmp_path: Path,
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    form = ".github/ISSUE_TEMPLATE/experiment.yml"
    sandbox = make_sandbox(
        tmp_path / "sandbox",
        files={name: (ROOT / name).read_bytes() for name in (form, policy_file.PATH)},
        bot_token="installation-token",
        persona_tokens=TOKENS,
        webhook_secret=SECRET,
        webhook_url=f"http://127.0.0.1:{port}/webhook",
    )
    store = tmp_path / "store"

    def said(number: int, words: str) -> list[str]:
        return [c.body for c in sandbox.issue(number).comments if words in c.body]

    def labels() -> list[str]:
        return [label.name for label in sandbox.issue(1).labels]

    with local_ray(tmp_path / "ray") as ray, running(sandbox) as url:
        with a_bot(store, url, port, ray) as bot:
            sandbox.open_issue("ada", "Experiment: warmer is better", form_body())
            wait_for("the seal", lambda: said(1, "### Sealed"))
            files = {
                "experiments/warm/experiment.yaml": LONGER.encode(),
                "experiments/warm/text.txt": TEXT.encode(),
            }
            head = sandbox.commit("ada", "warm", files, "Declare")
            pull = sandbox.open_pull("ada", "Warmer", "Tests #1.", "warm").number
            wait_for("the plan", lambda: said(pull, "### Plan 1"))
            time.sleep(1.1)  # a tie in time refuses
            sandbox.comment("grace", pull, f"/run {head}")
            wait_for("training", lambda: list(store.glob("steps/train/*/*.scratch/curve/*.jsonl")))
            bot.send_signal(signal.SIGKILL)
            bot.wait(10)
        assert not list(store.glob("records/executions/*/t1.ended.json"))
        with a_bot(store, url, port, ray):
            wait_for("the result", lambda: said(pull, "<summary>Receipt"), 200)
            wait_for("the label", lambda: labels() == ["experiment: done"])
            wait_for("the verdict", lambda: said(1, "shows the scores, the curves"))
            wait_for("its records on a branch", lambda: list(store.glob("records/witnessed/*")))

    tip = sandbox.world.git.ref("refs/heads/regatta-records")
    assert tip is not None
    assert len(sandbox.world.git.commit(tip).parents) == 1
    assert len(said(pull, "<summary>Receipt")) == 1
    assert len(said(pull, "regatta: status.")) == 1
    assert len(list(store.glob("records/executions/*/t*.claimed.json"))) == 1
    assert len(list(store.glob("records/runs/*.json"))) == 6
