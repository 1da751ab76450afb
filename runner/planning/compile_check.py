"""Compiles a training step ahead of time for devices that are not here, and returns what XLA says
each of them would hold. A child process compiles (`runner.worker.compile_child`), because JAX needs
to know its devices before it starts; this module imports no JAX.

If libtpu is installed, a TPU slice is compiled by the real compiler. Everything else is simulated
with as many CPU devices: the program has the same shardings and nearly the same collectives, but a
CPU's temporaries."""

import importlib.util
import json
import os
import subprocess
import sys
from typing import NamedTuple

from engine.config import memory
from engine.config.schema import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from runner.schema.devices import Slice


class Check(NamedTuple):
    """The result of compiling. Bytes are per device."""

    simulated: bool  # on CPU devices
    arguments: int  # the state and the batch
    temporaries: int  # everything else, with results that reuse no argument
    trace_seconds: float
    compile_seconds: float
    collectives: dict[str, int]  # how often each occurs in the program; in a loop's body once


class DoesNotCompile(Exception):
    """XLA refuses the program; the message says why and, for memory, what would fit."""


def llama_8b(mesh: MeshConfig) -> tuple[ModelConfig, TrainConfig]:
    """The shape of Llama 3 8B, and a batch with one sequence of 4,096 tokens per group of devices
    that shares rows."""
    model = ModelConfig(
        hidden_dim=4096,
        intermediate_dim=14336,
        num_layers=32,
        num_heads=32,
        num_kv_heads=8,
        seq_len=4096,
        vocab_size=128256,
        rope_theta=500_000.0,
    )
    return model, TrainConfig(train_batch_size=mesh.rows, num_train_steps=1000, learning_rate=3e-4)


def check(model: ModelConfig, train: TrainConfig, compute: ComputeConfig, on: Slice) -> Check:
    """Compile one step for the slice. Raises DoesNotCompile."""
    real = on.device.platform == "tpu" and importlib.util.find_spec("libtpu") is not None
    asked = {
        "model": model.model_dump(),
        "train": train.model_dump(),
        "compute": compute.model_dump(),
        "topology": _topology(on) if real else None,
        "slices": on.slices,
    }
    flags = os.environ.get("XLA_FLAGS", "")
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={on.count}",
        "TPU_SKIP_MDS_QUERY": "1",  # otherwise libtpu asks Google's cloud which machine this is
    }
    done = subprocess.run(
        [sys.executable, "-m", "runner.worker.compile_child"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2]
        raise DoesNotCompile(why or f"the compiler was ended by signal {-done.returncode}")
    answer = json.loads(done.stdout.rpartition("\n")[2])
    if "error" not in answer:
        return Check(simulated=not real, **answer)
    if "RESOURCE_EXHAUSTED" not in answer["error"]:
        raise DoesNotCompile(answer["error"])
    kind = on.device
    said = answer["error"], kind.memory, kind.platform
    raise DoesNotCompile(memory.what_fits(model, train, compute, *said))


def _topology(on: Slice) -> str:
    """The most compact torus of a slice's chips, as libtpu names it: `v5p:4x4x4`."""
    sides = [1, 1] if on.kind == "v5e" else [1, 1, 1]
    for factor in _factors(on.count // on.slices):
        sides[sides.index(min(sides))] *= factor
    return f"{on.kind}:" + "x".join(map(str, sorted(sides, reverse=True)))


def _factors(count: int) -> list[int]:
    """The prime factors of `count`, the largest first."""
    found, n = [], 2
    while count > 1:
        while count % n == 0:
            found.append(n)
            count //= n
        n += 1
    return found[::-1]
