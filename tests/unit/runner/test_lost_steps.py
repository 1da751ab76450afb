"""Steps whose processes vanish: another one goes on, a few times; code that raises is not asked
again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import exceptions

from runner.schema.job_reports import PREEMPTED, AttemptReport, AttemptSpec, read_report
from runner.schema.record import Plan
from runner.store import artifacts
from runner.store.artifacts import End, Start
from runner.store.store import Store
from runner.worker import executor, main
from tests.integration.runner.test_execute import HEAD, made, planned

OWN = """
import os, signal

def times(out):
    return len(list(out.parent.glob("*.scratch")))

def killed(config, inputs, out):
    os.kill(os.getpid(), signal.SIGKILL)

def unlucky(config, inputs, out):
    (out / f"{times(out)}.txt").write_text("half")
    if times(out) < 3:
        os.kill(os.getpid(), signal.SIGKILL)

def text(config, inputs, out):
    for split in ("train", "validation"):
        (out / f"{split}.txt").write_text("To be, or not to be. " * 40)

def leaves(config, inputs, out):
    os._exit(3)
"""
TRAINING = f"""{HEAD}steps:
  text: {{do: own:text}}
  tokens: {{do: tokenize, inputs: {{text: text}}}}
  train:
    do: train
    inputs: {{tokens: tokens}}
    config:
      model: {{hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}}
      train: {{train_batch_size: 2, num_train_steps: 40, learning_rate: 0.01, checkpoint_every: 8}}
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


Answers = dict[str, Any]


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """What Ray would say of each step."""
    answers: Answers = {}

    class Task:
        def options(self, name: str, **_: object) -> "Task":
            self.name = name
            return self

        def remote(self, *_: object) -> str:
            return self.name

    def get(name: str) -> dict[str, str]:
        if isinstance(answers[name], Exception):
            raise answers[name]
        return {name: str(answers[name])}

    monkeypatch.setattr(ray, "init", lambda **_: None)
    monkeypatch.setattr(ray, "cluster_resources", dict)
    monkeypatch.setattr(ray, "remote", lambda _: Task())
    monkeypatch.setattr(ray, "get", get)
    return answers


def one_step(tmp_path: Path, store: Store, function: str) -> Plan:
    declared = f"{HEAD}steps: {{a: {{do: own:{function}}}}}"
    return planned(tmp_path, store, declared, own=OWN)


def ends(store: Store, plan: Plan, name: str = "a") -> Iterator[tuple[str, str, str]]:
    """(by whom, how, why) of each generation."""
    step = plan.steps[name]
    folder = store.local(f"leases/steps/{step.store}/{step.fingerprint[:16]}")
    for lease in sorted(folder.iterdir()):
        start = Start.model_validate_json((lease / "start.json").read_bytes())
        end = End.model_validate_json((lease / "end.json").read_bytes())
        yield start.by, end.how, end.why


def test_makers_that_fell_silent_count_as_lost(tmp_path: Path, store: Store) -> None:
    plan = one_step(tmp_path, store, "killed")
    step = plan.steps["a"]
    at = f"{step.store}/{step.fingerprint[:16]}"
    for generation in range(1, 4):
        start = Start(
            name=step.store,
            fingerprint=step.fingerprint,
            generation=generation,
            maker="0" * 16,
            by="x1",
            host="gone",
        )
        end = End(how="lost", why="it stood still for 45 s")
        store.create(f"leases/steps/{at}/{generation}/start.json", start.canonical())
        store.create(f"leases/steps/{at}/{generation}/end.json", end.canonical())
    with pytest.raises(artifacts.MakingFailed, match="lost 3 times; the last time it stood still"):
        made(store, plan)
    assert not store.local(f"steps/{at}").exists(), "and no process was begun"


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (exceptions.WorkerCrashedError(), artifacts.MakerLost),
        (exceptions.NodeDiedError("its node is gone"), artifacts.MakerLost),
        (exceptions.RuntimeEnvSetupError("no such package"), artifacts.MakingFailed),
    ],
)
def test_a_loss_by_ray_is_no_failure(
    tmp_path: Path, store: Store, error: Exception, raised: type[Exception], without_ray: Answers
) -> None:
    declared = f"{HEAD}steps: {{a: {{do: own:text}}, b: {{do: own:text, inputs: {{x: a}}}}}}"
    plan = planned(tmp_path, store, declared, own=OWN)
    without_ray |= {"a": error, "b": error}
    with pytest.raises(raised) as told:
        executor.run(store, plan, tmp_path, "x1")
    assert str(told.value).startswith("a: ")
    assert "b: " not in str(told.value), "of what never had its input nothing is said"


def test_after_a_failed_step_another_loss_starts_no_attempt(
    tmp_path: Path, store: Store, without_ray: Answers
) -> None:
    declared = f"{HEAD}steps: {{a: {{do: own:text}}, b: {{do: own:leaves}}}}"
    plan = planned(tmp_path, store, declared, own=OWN)
    without_ray |= {"a": exceptions.WorkerCrashedError(), "b": "KeyError: 'x'"}
    with pytest.raises(artifacts.MakingFailed, match=r"^b: KeyError: 'x'$"):
        executor.run(store, plan, tmp_path, "x1")


def test_an_attempt_whose_steps_were_lost_says_so_and_neither_that_it_failed_nor_finished(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = one_step(tmp_path, store, "text")

    def lose(*_: object) -> None:
        raise artifacts.MakerLost("a: the worker died")

    monkeypatch.setattr(executor, "run", lose)
    spec = AttemptSpec(attempt="x1.t1", nonce="0" * 16, plan=plan, isolation="own machine")
    folder = store.local(f"work/{spec.folder}")
    folder.mkdir(parents=True)
    assert main._attempt(store, folder, spec.canonical()) == PREEMPTED
    assert [path.name for path in folder.rglob("*.json")] == ["preempted.json"]
    said = read_report(folder.resolve() / "out" / "preempted.json", AttemptReport, "0" * 16)
    assert said
    assert said.why == "a: the worker died"
