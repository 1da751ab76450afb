"""A graph through Ray, as somebody runs it: `regatta run`, then `show`, `diff` and `graph`."""

import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from runner.cli import main
from runner.execution import local_ray
from runner.worker.fork_server import LAB
from tests.integration.runner.test_execute import OWN

DECLARED = """\
title: Words of a kind
resources: {kind: cpu}
steps:
  prepare: {do: own:prepare, config: {documents: 30}}
  short: {do: filter, inputs: {text: prepare}, config: {most_characters: 60}}
  loud: {do: map, inputs: {text: prepare}, config: {function: own:loud}}
  tokens: {do: tokenize, inputs: {text: short}}
  broken: {do: own:broken, inputs: {text: loud}}
  after: {do: own:prepare, inputs: {nothing: broken}, config: {documents: 1}}
"""


def ask(*words: object) -> Result:
    return CliRunner().invoke(main.app, [str(word) for word in words])


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[Result]]:
    """A folder, a store, and what `run` answered: with a broken step, and after it was mended."""
    root = tmp_path_factory.mktemp("graph")
    folder, store = root / "words", root / "store"
    folder.mkdir()
    (folder / "own.py").write_text(OWN)
    answers = []
    mended = DECLARED.replace("own:broken", "own:prepare, config: {documents: 2}")
    for declared in (DECLARED, mended):
        (folder / "experiment.yaml").write_text(declared)
        answers.append(ask("run", folder, "--store", store))
    return folder, store, answers


def execution(answer: Result) -> str:
    return next(word for word in answer.output.split() if word.startswith("x")).rstrip(":")


@pytest.mark.long
def test_steps_that_do_not_need_a_failed_step_are_made(
    ran: tuple[Path, Path, list[Result]],
) -> None:
    _, store, (broken, _) = ran
    assert broken.exit_code == 1
    assert "broken: failed, ValueError: no such word" in broken.output
    found = json.loads(ask("show", execution(broken), "--store", store, "--json").stdout)
    states = {name: end["state"] for name, end in found["steps"].items()}
    assert states == {
        **dict.fromkeys(("prepare", "short", "loud", "tokens"), "made"),
        "broken": "failed",
    }
    assert found["result"]["state"] == "failed"


@pytest.mark.long
def test_the_fixed_experiment_makes_only_missing_steps(
    ran: tuple[Path, Path, list[Result]],
) -> None:
    folder, store, (broken, mended) = ran
    assert mended.exit_code == 0, mended.output
    found = json.loads(ask("show", execution(mended), "--store", store, "--json").stdout)
    states = {name: end["state"] for name, end in found["steps"].items()}
    assert states == {
        **dict.fromkeys(("prepare", "short", "loud", "tokens"), "cached"),
        **dict.fromkeys(("broken", "after"), "made"),
    }
    differ = ask("diff", execution(broken), execution(mended), "--store", store)
    assert "do own:broken → own:prepare" in differ.output
    assert "input nothing: broken changed" in differ.output
    planned = ask("plan", folder, "--store", store)
    assert "6 steps, all cached: nothing to run" in planned.output


@pytest.mark.long
def test_a_graph_is_drawn_for_a_terminal_and_for_a_page(
    ran: tuple[Path, Path, list[Result]],
) -> None:
    folder, _, _ = ran
    drawn = ask("graph", folder)
    assert "text ← prepare" in drawn.output
    page = ask("graph", folder, "--mermaid").output.splitlines()
    assert page[0] == "flowchart LR"
    assert sum("-->" in line for line in page) == 5


@pytest.mark.slow
@pytest.mark.long
def test_an_execution_on_ray_is_reproduced_bit_for_bit(
    ran: tuple[Path, Path, list[Result]],
) -> None:
    _, store, (_, mended) = ran
    again = ask("reproduce", execution(mended), "--store", store)
    assert again.exit_code == 0, again.output
    assert again.stdout.count("bit for bit") == 6 + 1


ARMS = """\
title: Two arms where there are devices for two
data: {source: text.txt}
model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2, seq_len: 32}
train: {train_batch_size: 4, num_train_steps: 300, learning_rate: 0.003}
eval: {tokens: 64}
resources: {kind: cpu}
arms: {plain: {}, warm: {train: {learning_rate: 0.01}}}
"""


@pytest.mark.long
def test_two_arms_train_at_the_same_time_where_there_are_devices_for_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_ray, "local_cpus", lambda: 4)  # an arm takes two
    folder, store = tmp_path / "arms", tmp_path / "store"
    folder.mkdir()
    (folder / "text.txt").write_text("A line of a text to train two arms on.\n" * 400)
    (folder / "experiment.yaml").write_text(ARMS)
    answer = ask("run", folder, "--store", store)
    assert answer.exit_code == 0, answer.output
    found = json.loads(ask("show", execution(answer), "--store", store, "--json").stdout)
    spans = []
    for name in ("train/plain,seed=0", "train/warm,seed=0"):
        end = datetime.fromisoformat(found["steps"][name]["made_at"])
        spans.append((end - timedelta(seconds=found["steps"][name]["seconds"]), end))
    (one, one_end), (other, other_end) = spans
    assert max(one, other) < min(one_end, other_end), "the second began before the first had ended"


LENDS = """\
import os, sys, time
import ray
from runner.worker import ray_tasks

def wait(path):
    while not os.path.exists(path):
        ray_tasks.sleep(0.1)

def write(path):
    open(path, "w").close()

ray.init(num_cpus=2, include_dashboard=False)
waiting = ray.remote(wait).options(num_cpus=2).remote(sys.argv[1])
time.sleep(2)
ray.get(ray.remote(write).options(num_cpus=2).remote(sys.argv[1]), timeout=60)
ray.get(waiting, timeout=60)
"""


@pytest.mark.long
def test_a_task_that_waits_for_another_execution_lends_its_cores(tmp_path: Path) -> None:
    """Otherwise two executions that share a step of many shards wait for each other forever."""
    told = [sys.executable, "-c", LENDS, str(tmp_path / "made")]
    done = subprocess.run(told, cwd=LAB, capture_output=True, text=True, timeout=150)
    assert not done.returncode, done.stderr
