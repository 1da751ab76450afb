"""Steps on a Ray whose head is killed in the middle of training: the same execution goes on with a
new one, and ends with the bytes of one that nobody disturbed, and that had no Ray at all."""

import io
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from runner.cli import local_run, terminal
from runner.execution import local_ray
from runner.execution.local_ray import LocalRay
from runner.execution.ray_jobs import RayError
from runner.lib import process_tree
from runner.schema.record import Plan
from runner.store import artifacts
from runner.store.store import Store
from tests.integration.runner.test_execute import HEAD, made, planned

pytestmark = pytest.mark.slow

WORKERS = 3
OWN = """
import json, os, time
from pathlib import Path

def prepare(config, inputs, out):
    for split, shards in (("train", 3), ("validation", 1)):
        for shard in range(shards):
            with (out / f"{split}.{shard}.jsonl").open("w") as file:
                for n in range(9):
                    text = f"{split} {shard} {n} " + "To be, or not to be. " * 50_000
                    file.write(json.dumps({"text": text}) + "\\n")

def beginning(text):
    together = Path(__file__).parents[5] / "together"  # in the store
    if together.is_dir() and text.startswith("train"):
        (together / f"{text.split()[1]}-{os.getpid()}").touch()
        until = time.monotonic() + 120
        while not (together / "go").exists():
            assert time.monotonic() < until, "nobody said that all are there"
            time.sleep(0.01)
    return text[:200]

def compare(config, inputs, out):
    scores = json.loads((inputs["scores"] / "scores.json").read_text())
    (out / "bpb.txt").write_text(str(scores[""]["bpb"]))
"""
DECLARED = f"""{HEAD}steps:
  prepare: {{do: own:prepare}}
  map: {{do: map, inputs: {{text: prepare}}, config: {{function: own:beginning}}}}
  tokens: {{do: tokenize, inputs: {{text: map}}}}
  train:
    do: train
    inputs: {{tokens: tokens}}
    config:
      model: {{hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}}
      train: {{train_batch_size: 2, num_train_steps: 200, learning_rate: 0.01,
              checkpoint_every: 20}}
  scores: {{do: evaluate, inputs: {{models: train, tokens: tokens}}, config: {{tokens: 64}}}}
  compare: {{do: own:compare, inputs: {{scores: scores}}}}
"""


@dataclass
class Story:
    """What happened."""

    calm: dict[str, str]  # {step: digest of its output} of who made them one after another
    found: dict[str, artifacts.Made] = field(default_factory=dict)
    words: str = ""  # of the look at a Ray whose head is gone
    attempts: tuple[str, ...] = ()  # how each of the execution's ended
    at_once: list[str] = field(default_factory=list)  # shards that were worked on at a time
    again: list[str] = field(default_factory=list)  # and those begun after a worker was killed
    parts: int = 0
    left: list[int] = field(default_factory=list)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    root = tmp_path_factory.mktemp("lost")
    calm, store = Store(root / "calm"), Store(root / "store")
    undisturbed = made(calm, planned(root, calm, DECLARED, own=OWN))
    story = Story({name: one.manifest.output_sha256 for name, one in undisturbed.items()})
    plan = planned(root, store, DECLARED, own=OWN)
    store.local("together").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_ray, "local_cpus", lambda: 2 * WORKERS)
        _run(story, store, plan)
    return story


def _run(story: Story, store: Store, plan: Plan) -> None:
    console = Console(file=io.StringIO())
    execution = local_run.begin(store, plan, console)
    with local_ray.local_ray(store.local("ray")) as ray, terminal.Watching(console) as watching:
        killer = threading.Thread(target=_disturb, args=(story, store, plan, ray))
        killer.start()
        with pytest.raises(RayError) as gone:
            local_run.turn(store, ray, execution, watching)
        story.words = str(gone.value)
        killer.join()
    again = local_run.begin(store, plan, console)
    assert again == execution
    with local_ray.local_ray(store.local("ray")) as ray, terminal.Watching(console) as watching:
        facts = local_run.turn(store, ray, execution, watching)
    assert facts.result
    assert facts.result.state == "done", facts.result.why
    story.attempts = tuple(one.ended.how for one in facts.attempts if one.ended)
    for name, step in plan.steps.items():
        found = artifacts.find(store, step.store, step.fingerprint)
        assert found
        story.found[name] = found
    scratch = story.found["map"].folder.with_name(f"{story.found['map'].folder.name}.scratch")
    story.parts = len(list(scratch.glob("parts/*/digests.json")))


def _disturb(story: Story, store: Store, plan: Plan, ray: LocalRay) -> None:
    _kill_a_worker(story, store.local("together"))
    step = plan.steps["train"]
    at = store.local(f"steps/{step.store}/{step.fingerprint[:16]}")
    _await(lambda: len(list(at.glob("1-*.scratch/checkpoints/40"))) == 1)
    _kill_the_head(story, ray)


def _kill_a_worker(story: Story, together: Path) -> None:
    """One of Ray's, once all shards are begun; its own process ends with it."""
    _await(lambda: len(list(together.iterdir())) == WORKERS)
    begun = sorted(path.name for path in together.iterdir())
    children = {name.partition("-")[0]: int(name.partition("-")[2]) for name in begun}
    story.at_once = sorted(children)
    server = _parent(children["1"])
    os.kill(_parent(server), signal.SIGKILL)
    _await(lambda: len(list(together.iterdir())) > WORKERS)
    story.again = [path.name[0] for path in together.iterdir() if path.name not in begun]
    (together / "go").touch()


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _kill_the_head(story: Story, ray: LocalRay) -> None:
    """Its processes, while training stays where it is."""
    family = process_tree.descendants(ray.guard.pid)
    stop, kill = signal.SIGSTOP, signal.SIGKILL
    for name, number in {"step_server": stop, "gcs_server": kill, "raylet": kill}.items():
        for process in family:
            with suppress(OSError):
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                if any(word.decode().endswith(name) for word in words[:3]):
                    os.kill(process, number)
    ray.guard.wait(60)
    story.left = [process for process in family if Path(f"/proc/{process}/exe").exists()]


def _await(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 180
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_an_execution_whose_head_was_killed_ends_with_the_bytes_of_an_undisturbed_one(
    story: Story,
) -> None:
    assert "it continues from the last checkpoints" in story.words
    assert story.attempts == ("lost", "finished")
    found = {name: one.manifest.output_sha256 for name, one in story.found.items()}
    assert found == story.calm


def test_training_went_on_from_its_checkpoint_and_what_was_made_before_was_kept(
    story: Story,
) -> None:
    generations = {name: one.manifest.generation for name, one in story.found.items()}
    assert generations == {**dict.fromkeys(story.found, 1), "train": 2}
    made = story.found["train"].folder
    curve = (made.with_name(f"{made.name}.scratch") / "curve" / "000000.jsonl").read_text()
    assert json.loads(curve.partition("\n")[0])["step"] > 40


def test_a_killed_ray_head_leaves_no_process(story: Story) -> None:
    assert story.left == []


def test_shards_are_made_side_by_side_and_a_lost_worker_costs_its_own_alone(story: Story) -> None:
    assert story.at_once == ["0", "1", "2"]
    assert story.again == ["1"]
    assert story.parts == 4
