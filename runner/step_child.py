"""Makes one step, in a process of its own (`runner.step_server` forks it). Its cores, threads and
flags are set before anything is imported, and it ends with whoever started it. What the step prints
is its log."""

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner import guard, machine
from runner.record import Record, Resources
from runner.store import to_json

WHY, RECEIPT = "why.txt", "receipt.json"  # what it leaves in its scratch folder


class Job(Record):
    """What there is to make."""

    function: str  # module:function
    config: dict[str, Any]
    own: str = ""  # module:function of the experiment's that config's `function` stands for
    inputs: dict[str, str | dict[str, str]]  # folders
    out: str
    scratch: str
    code: str  # the folder of the experiment's own modules; empty for what needs none of them
    resources: Resources
    receipt: bool = True  # whether to say what figures rest on


def main(job: Job) -> int:
    """Make the step; returns the exit code."""
    guard.die_with_parent(signal.SIGKILL)
    guard.adopt_orphans()
    scratch = Path(job.scratch)
    os.chdir(scratch)
    try:
        machine.settle(job.resources)
        if job.code:
            sys.path.insert(0, job.code)
        config = {**job.config, "function": _imported(job.own)} if job.own else job.config
        _imported(job.function)(config, _paths(job.inputs), Path(job.out))
        if job.receipt:
            # What has not imported JAX does not depend on what JAX finds here.
            receipt = machine.receipt(jax="jax" in sys.modules)
            (scratch / RECEIPT).write_bytes(to_json(receipt))
    except BaseException as error:
        traceback.print_exc()
        (scratch / WHY).write_text(" ".join(f"{type(error).__name__}: {error}".split()))
        return 1
    finally:
        guard.end_descendants(signal.SIGKILL)
    return 0


def _imported(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def _paths(inputs: dict[str, str | dict[str, str]]) -> dict[str, Path | dict[str, Path]]:
    return {
        key: {label: Path(place) for label, place in given.items()}
        if isinstance(given, dict)
        else Path(given)
        for key, given in inputs.items()
    }
