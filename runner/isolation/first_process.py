"""Process 1 of a box: `python -m runner.isolation.first_process TASKS MODULE …`."""

import contextlib
import os
import resource
import runpy
import sys

from runner.lib import process_tree


def main(tasks: int, module: list[str]) -> None:
    """Inside the box: limit the number of processes where the kernel counts them, and run the
    module in a child. This process is process 1, which nobody inside can trace; a tracer could
    remove its parent-death signal and outlive the box."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))
    process_tree.be_dumpable(False)
    if child := os.fork():
        os._exit(_code_of(child))
    process_tree.be_dumpable(True)
    sys.argv = module
    runpy.run_module(module[0], run_name="__main__", alter_sys=True)


def _code_of(child: int) -> int:
    """Wait for a child, reaping orphans meanwhile. Returns its exit code, 128 + n if signal n ended
    it."""
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
