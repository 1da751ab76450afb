"""Of `test_machine.py` what needs a process, a socket or a compilation."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from runner.schema.job_reports import AttemptReport

SETTLED = """
import json, os
from runner.worker import environment as machine
from tests.decided import KINDS

machine.settle(KINDS["cpu"], 1)
print(json.dumps([machine.receipt(), sorted(os.sched_getaffinity(0))]))
"""


def receipt_of(**environment: str) -> tuple[dict[str, str], list[int]]:
    """The receipt of a process with this in its environment, and the cores it may run on."""
    names = ("PATH", "HOME", "LANG")
    clean = {name: os.environ[name] for name in names if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", SETTLED],
        env=clean | environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        check=True,
    )
    receipt, cores = json.loads(done.stdout)
    return receipt, cores


def test_a_receipt_states_what_bit_equality_depends_on() -> None:
    receipt, cores = receipt_of()
    for package in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "tensorstore", "numpy"):
        assert receipt[package] == version(package)
    assert receipt["python"] == ".".join(map(str, sys.version_info[:3]))
    assert (receipt["platform"], receipt["device"]) == ("cpu", "1 × cpu")
    assert receipt["threads"] == str(len(cores))
    assert receipt["affinity"] == ",".join(map(str, cores))
    assert receipt["xla_flags"] == ""
    assert "default_matmul_precision None, enable_x64 False" in receipt["options"]
    assert receipt["environment"] == "JAX_PLATFORMS=cpu"
    assert len(receipt["code_sha256"]) == 64
    AttemptReport(nonce="aa", receipt=receipt)  # it fits into what the lab reads


def test_flags_and_options_that_are_set_are_in_the_receipt_and_places_are_not() -> None:
    receipt, _ = receipt_of(
        XLA_FLAGS="--xla_cpu_enable_fast_math=false",
        JAX_ENABLE_X64="1",
        JAX_DEFAULT_MATMUL_PRECISION="highest",
        JAX_COMPILATION_CACHE_DIR="/somewhere/of/mine",
        NVIDIA_TF32_OVERRIDE="0",
        SECRET="canary",
    )
    assert receipt["xla_flags"] == "--xla_cpu_enable_fast_math=false"
    assert "default_matmul_precision highest, enable_x64 True" in receipt["options"]
    assert "NVIDIA_TF32_OVERRIDE=0" in receipt["environment"]
    assert "JAX_ENABLE_X64=1" in receipt["environment"]
    assert not any("canary" in value or "/somewhere" in value for value in receipt.values())
