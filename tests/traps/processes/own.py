"""Signals and traces whatever it can see, and what it was told of outside."""

import contextlib
import ctypes
import json
import os
import signal

ATTACH, DETACH = 16, 17


def step(config, inputs, out):
    if os.getpid() > 50:
        raise SystemExit("this is no namespace of its own, and what follows would do harm")
    reached = []
    libc = ctypes.CDLL(None, use_errno=True)
    mine = {os.getpid(), os.getppid()}
    for process in [*config["processes"], 1, 2]:
        if process in mine:
            continue
        if libc.ptrace(ATTACH, process, 0, 0) == 0:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)
            libc.ptrace(DETACH, process, 0, 0)
            if process not in (1, 2):  # those are its own
                reached.append(f"traced {process}")
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGSTOP if process > 2 else 0)
            if process > 2:
                reached.append(f"stopped {process}")
        with contextlib.suppress(OSError):
            with open(f"/proc/{process}/mem", "rb") as file:
                file.seek(4096)
            if process > 2:
                reached.append(f"read the memory of {process}")
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, config["processes"][0], 5)
        reached.append("setpriority")
    (out / "reached.json").write_text(json.dumps(reached))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGTERM)
