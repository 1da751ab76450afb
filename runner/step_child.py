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
from runner.builtin.blame import BadOwnCode, blamed
from runner.record import Record, Resources
from runner.store import to_json

WHY, RECEIPT = "why.txt", "receipt.json"  # what it leaves in its scratch folder


class Job(Record):
    """What there is to make."""

    function: str  # module:function
    config: dict[str, Any]
    own: tuple[str, ...] = ()  # module:function of the experiment's that it calls
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
            sys.dont_write_bytecode = True  # that folder is the store's
        own = {name: _imported_own(name) for name in job.own}
        handed = (own,) if own else ()
        _imported(job.function)(job.config, _paths(job.inputs), Path(job.out), *handed)
        # What has not imported JAX does not depend on what JAX finds here.
        receipt = machine.receipt(jax="jax" in sys.modules) if job.receipt else {}
        (scratch / RECEIPT).write_bytes(to_json(receipt))
    except BaseException as error:
        traceback.print_exc()
        words = str(error) if isinstance(error, BadOwnCode) else f"{type(error).__name__}: {error}"
        (scratch / WHY).write_text(" ".join(words.split()))
        return 1
    finally:
        guard.end_descendants(signal.SIGKILL)
    return 0


def _imported(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def _imported_own(function: str) -> Callable[..., Any]:
    with blamed(function, "imported"):
        found = _imported(function)
        if not callable(found):
            raise TypeError(f"it is a {type(found).__name__} and cannot be called")
        return found


def _paths(inputs: dict[str, str | dict[str, str]]) -> dict[str, Path | dict[str, Path]]:
    return {
        key: {label: Path(place) for label, place in given.items()}
        if isinstance(given, dict)
        else Path(given)
        for key, given in inputs.items()
    }
