"""Of `test_gang_step.py` what needs a process, a socket or a compilation."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.cli import main
from runner.execution import local_ray
from runner.planning import planner
from runner.store import artifacts
from runner.store.store import Store
from runner.worker import executor
from tests.unit.runner.test_gang_step import MESH, declared

STEPS = 60


# ── A real one ───────────────────────────────────────────────────────────────────────────────


def kill_a_host(store: Path, killed: list[int], over: threading.Event) -> None:
    """End a process of the first gang once it has left its first checkpoint."""
    while not over.wait(0.02):
        if list(store.glob("steps/train/*/1-*.scratch/checkpoints/*/commit_success.txt")):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    said = (process / "cmdline").read_bytes()
                except OSError:
                    continue
                if said.startswith(b"ray::_Host"):
                    os.kill(int(process.name), signal.SIGKILL)
                    killed.append(int(process.name))
                    return


STAGES = "      compute: {mesh: {pipeline: 2}}\n"


def in_parts(text: str) -> str:
    """The declaration with a layer for each of two stages, and four parts of a batch."""
    text = text.replace("num_layers: 1", "num_layers: 2")
    return text.replace("learning_rate:", "gradient_accumulation_steps: 4, learning_rate:")


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [MESH, STAGES], ids=["fsdp", "pipeline"])
def test_a_step_on_two_devices_is_trained_by_two_processes_and_goes_on_when_one_is_killed(
    mesh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_ray, "local_cpus", lambda: 4)
    folder, alone = tmp_path / "gangs", Store(tmp_path / "alone")
    folder.mkdir()
    (folder / "experiment.yaml").write_text(in_parts(declared(1)))
    plan = planner.plan_folder(folder, alone)
    for name in ("tokens", "train"):
        one = executor.make(alone, name, plan.steps, plan.kinds, tmp_path, "x1")

    (folder / "experiment.yaml").write_text(in_parts(declared(2, more=mesh)))
    killed: list[int] = []
    over = threading.Event()
    killer = threading.Thread(target=kill_a_host, args=(tmp_path / "store", killed, over))
    killer.start()
    try:
        answer = CliRunner().invoke(
            main.app, ["run", str(folder), "--store", str(tmp_path / "store")]
        )
    finally:
        over.set()
        killer.join()
    assert answer.exit_code == 0, answer.output
    assert killed
    step = planner.plan_folder(folder).steps["train"]
    two = artifacts.find(Store(tmp_path / "store"), step.store, step.fingerprint)
    assert two is not None
    [(_, lost), _] = artifacts.history(two.store, step.store, step.fingerprint)
    assert lost
    assert (lost.how, two.manifest.generation) == ("lost", 2)
    assert "of 2 was lost: " in lost.why
    assert two.manifest.receipt["processes"] == "2"
    losses = [
        [
            json.loads(line)["loss"]
            for line in (made.folder / "curve.jsonl").read_text().splitlines()
        ]
        for made in (one, two)
    ]
    assert len(losses[1]) == STEPS
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    (rest,) = two.folder.parent.glob("2-*.scratch/curve/000000.jsonl")
    first = json.loads(rest.read_text().partition("\n")[0])["step"]
    assert first in range(6, STEPS, 5), "the step after a checkpoint"
    if mesh == MESH:
        assert losses[1] != losses[0], "two devices add up in another order"
    log = (two.folder.parent / f"{two.folder.name}.scratch" / "log.txt").read_text()
    assert f"step {STEPS} of {STEPS}: loss" in log
    assert ("is expected to have a bubble of" in log) == (mesh == STAGES)
