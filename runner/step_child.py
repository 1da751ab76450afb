"""Makes one step, in a process of its own: `python -m runner.step_child`, with a Job as JSON on its
standard input. Its cores, threads and flags are set before anything is imported, and it ends with
whoever started it. What the step prints is its log."""

import importlib
import json
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
    receipt: bool = True  # whether to say what figures rest on, which takes JAX


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
            (scratch / RECEIPT).write_bytes(to_json(machine.receipt()))
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


if __name__ == "__main__":
    sys.exit(main(Job.model_validate(json.load(sys.stdin))))
