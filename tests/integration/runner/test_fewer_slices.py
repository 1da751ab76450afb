"""A run whose slice is lost for good goes on with the other one, with the same batch."""

import json
import signal
import threading
from pathlib import Path

import pytest

from runner.planning import planner
from runner.store import artifacts
from runner.store.store import Store
from runner.worker import executor, host_group_ray
from tests.runner.local_gang import LocalGangs, await_file
from tests.unit.runner.test_gang_step import declared


def made(store: Store, folder: Path, resources: str) -> artifacts.Made:
    folder.mkdir(exist_ok=True)
    text = declared(1).replace("count: 1", resources)
    (folder / "experiment.yaml").write_text(text)
    plan = planner.plan_folder(folder, store)
    for name in ("tokens", "train"):
        last = executor.make(store, name, plan.steps, plan.kinds, folder, "x1")
    return last


def losses(of: artifacts.Made) -> list[float]:
    lines = (of.folder / "curve.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.slow
def test_with_one_slice_of_two_left_the_run_ends_as_one_device_would_have_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gangs = LocalGangs(tmp_path / "gangs")
    monkeypatch.setattr(host_group_ray, "run", gangs.run)
    alone = made(Store(tmp_path / "alone"), tmp_path / "small", "count: 1")
    store = Store(tmp_path / "store")

    def lose_a_slice() -> None:
        await_file(store.local("steps"), "1-*.scratch/checkpoints/5")
        gangs.most_slices = 1
        gangs.hosts[1].send_signal(signal.SIGKILL)

    weather = threading.Thread(target=lose_a_slice)
    weather.start()
    found = made(store, tmp_path / "small", "count: 2, slices: 2, min_slices: 1")
    weather.join()
    assert gangs.count == 2
    receipt = found.manifest.receipt
    assert (receipt["slices"], receipt["processes"]) == ("1 of 2", "1")
    assert losses(found) == pytest.approx(losses(alone), rel=1e-4)
    [second] = found.folder.parent.glob("2-*.scratch/curve/000000.jsonl")
    assert json.loads(second.read_text().partition("\n")[0])["step"] > 5, "from its checkpoint"
