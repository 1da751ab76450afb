"""One of several processes that train the mesh tests' tiny model together. `ask` starts them all,
as `one_of_many.py PLACE SPEC`; the hosts of a gang call `work` themselves."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import compile_fast
import jax
import numpy as np
import on_devices

from engine.config.schema import ComputeConfig
from engine.data.token_store import Batch
from engine.model import mesh, processes
from engine.model.decoder import Decoder
from engine.model.processes import Place
from engine.training.train import train

DEATHS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}


class Noted:
    """A sampler that notes which rows are read of the first steps, and what they hold."""

    def __init__(self, upto: int = 3) -> None:
        self._sampler, self._upto = on_devices.sampler(), upto
        self.rows_of: dict[int, dict[int, str]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def rows(self, step: int, rows: np.ndarray) -> Batch:
        batch = self._sampler.rows(step, rows)
        if step <= self._upto:
            together = np.concatenate([batch.inputs_BS, batch.targets_BS], axis=1)
            digests = [hashlib.sha256(row.tobytes()).hexdigest() for row in together]
            self.rows_of[step] = dict(zip(rows.tolist(), digests, strict=True))
        return batch


def work(place: Place, attempt: int, spec: dict[str, Any]) -> dict[str, Any]:
    """Train on the mesh `spec["mesh"]` into `spec["folder"]/<attempt>`, from the newest checkpoint
    of earlier attempts and of `spec["resume"]`. `spec["config"]` changes the configuration.

    `spec["disturb"]` is a list of [attempt, rank, step, how]: when that process knows the metrics
    of that step it kills itself ("kill"), sends itself SIGTERM ("term") or finds that a day has
    passed on its clock ("day")."""
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    folder, clock = Path(spec["folder"]), [0.0]
    earlier = [folder / str(number) for number in range(1, attempt)]
    config = on_devices.CONFIG.model_copy(update=spec.get("config", {}))
    compute = ComputeConfig(mesh=on_devices.mesh_of(spec["mesh"]))
    sampler = Noted()
    losses, saved = {}, []
    for metrics in train(
        Decoder(on_devices.MODEL, compute),
        config,
        sampler,
        3,
        folder / str(attempt),
        [*earlier, *map(Path, spec.get("resume", []))],
        stop=lambda: bool(told),
        clock=lambda: clock[0],
    ):
        losses[metrics.step] = metrics.loss
        if metrics.saving:
            saved.append(metrics.step)
        for *when, how in spec.get("disturb", []):
            if when == [attempt, place.rank, metrics.step]:
                if how == "day":
                    clock[0] += 86_400
                else:
                    os.kill(os.getpid(), DEATHS[how])
    signal.signal(signal.SIGTERM, before)
    return {"attempt": attempt, "losses": losses, "saved": saved, "read": sampler.rows_of}


def fail(place: Place, attempt: int, words: str) -> None:
    """What no second attempt would mend."""
    raise ValueError(f"{words}, said by {place.rank} in attempt {attempt}")


def _layout(sizes: list[int]) -> dict[str, Any]:
    """The process of each device of a mesh, or why it is refused."""
    try:
        devices = mesh.make(on_devices.mesh_of(sizes)).devices
    except mesh.BadMesh as error:
        return {"refused": str(error)}
    return {"processes": np.vectorize(lambda device: device.process_index)(devices).tolist()}


def ask(count: int, slices: int = 1, devices: int = 1, **spec: Any) -> list[dict[str, Any]]:
    """What each of `count` processes of so many devices answers: what came of `work`, and of each
    of `layouts`, sizes of meshes, how it lies."""
    return started(__file__, count, slices, devices, spec)


def started(script: str, count: int, slices: int, devices: int, spec: dict[str, Any]) -> list[Any]:
    """What `script PLACE SPEC` answers in each of `count` processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = compile_fast.in_environment() | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
    }
    places = [json.dumps([rank, count, address, slices]) for rank in range(count)]
    processes = [
        subprocess.Popen(
            [sys.executable, script, place, json.dumps(spec)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for place in places
    ]
    try:
        answers = []
        for process in processes:
            out, errors = process.communicate(timeout=280)
            assert process.returncode == 0, errors[-3000:]
            answers.append(json.loads(out.strip().rpartition("\n")[2]))
        return answers
    finally:
        for process in processes:
            process.kill()


def main(place: Place, spec: dict[str, Any]) -> dict[str, Any]:
    processes.join(place)
    layouts = [_layout(sizes) for sizes in spec.get("layouts", [])]
    answer = {
        "devices": jax.device_count(),
        "first": processes.as_first([place.rank, 7]),
        "layouts": layouts,
        **work(place, 1, spec),
    }
    processes.leave()
    return answer


if __name__ == "__main__":
    print(json.dumps(main(Place(*json.loads(sys.argv[1])), json.loads(sys.argv[2]))))
