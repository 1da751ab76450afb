"""By `/run` on the sandbox: arms on two spot devices each, in two slices, one of them with own
code; a slice of each is lost and replaced."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.fake_github.server import running
from bot.fake_github.world.sandbox import make_sandbox
from bot.model import policy_file
from runner.execution import local_ray
from runner.isolation import bubblewrap
from runner.schema import lab_config
from tests.scenarios.lab import ROOT, SECRET, TEXT, TOKENS, form_body
from tests.system.scenarios.test_processes import a_bot, wait_for

DECLARED = """\
title: Does a warmer learning rate pay off?
preregistration: 1
data: {source: text.txt, tokenizer: byte}
model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2, seq_len: 32}
train: {train_batch_size: 16, num_train_steps: 400, learning_rate: 0.003, checkpoint_every: 20}
eval: {tokens: 64}
resources: {kind: cpu, count: 2, slices: 2, spot: true}
seeds: [0]
arms:
  slow: {train: {learning_rate: 0.0003}}
  fast: {own: {schedule: "own:rate"}}
"""
OWN = """
def rate(config, step):
    return 0.003
"""
pytestmark = pytest.mark.skipif(
    bool(bubblewrap.probe()), reason=f"nothing was isolated: {bubblewrap.probe()}"
)


def hosts() -> Iterator[int]:
    """The processes of gangs."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().startswith(b"ray::_Host"):
                yield int(process.name)
        except OSError:
            continue


@pytest.mark.timeout(1000)
@pytest.mark.slow
def test_arms_on_two_slices_of_which_one_is_lost_end_with_a_result_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_ray, "local_cpus", lambda: 4)  # a run takes them all
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    form = ".github/ISSUE_TEMPLATE/experiment.yml"
    decided = f"{lab_config.FOLDER}/devices.yml"
    sandbox = make_sandbox(
        tmp_path / "sandbox",
        files={name: (ROOT / name).read_bytes() for name in (form, policy_file.PATH)}
        | {decided: b"cpu: {price: 36.0, spot_price: 3.6}\n"},
        bot_token="installation-token",
        persona_tokens=TOKENS,
        webhook_secret=SECRET,
        webhook_url=f"http://127.0.0.1:{port}/webhook",
    )
    store = tmp_path / "store"

    def said(number: int, words: str) -> list[str]:
        return [c.body for c in sandbox.issue(number).comments if words in c.body]

    def saved() -> int:
        found = store.glob("steps/*train*/*/1-*.scratch/checkpoints/*/commit_success.txt")
        return len({path.parents[2] for path in found})

    with (
        local_ray.local_ray(tmp_path / "ray") as ray,
        running(sandbox) as url,
        a_bot(store, url, port, ray),
    ):
        sandbox.open_issue("ada", "Experiment: warmer is better", form_body())
        wait_for("the seal", lambda: said(1, "### Sealed"))
        files = {
            "experiments/warm/experiment.yaml": DECLARED.encode(),
            "experiments/warm/text.txt": TEXT.encode(),
            "experiments/warm/own.py": OWN.encode(),
        }
        head = sandbox.commit("ada", "warm", files, "Declare")
        pull = sandbox.open_pull("ada", "Warmer", "Tests #1.", "warm").number
        [plan] = wait_for("the plan", lambda: said(pull, "### Plan 1"))
        assert "Mesh on 2 × CPU, 2 cores in 2 slices: data 2" in plan
        assert "at most 20 steps of each run (of 400)" in plan
        time.sleep(1.1)  # a tie in time refuses
        sandbox.comment("grace", pull, f"/run {head}")
        for n in (1, 2):  # the arms train one after the other
            wait_for("a checkpoint", lambda n=n: saved() == n, 300)
            os.kill(max(hosts()), signal.SIGKILL)
        [result] = wait_for("the result", lambda: said(pull, "<summary>Receipt"), 500)
    assert result.count("lost its machines once: ") == 2
    assert result.count("$ lost.") == 2  # with an escape before it
    [ended] = store.glob("records/executions/*/result.json")
    lost = json.loads(ended.read_text())["lost"]
    assert sorted(one["step"] for one in lost) == ["train/fast,seed=0", "train/slow,seed=0"]
    assert all(0 <= one["steps"] <= 20 for one in lost)
    for manifest in store.glob("steps/*train*/*/manifest.json"):
        receipt = json.loads(manifest.read_text())["receipt"]
        assert receipt["processes"] == "2"
