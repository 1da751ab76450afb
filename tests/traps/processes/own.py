"""Signals and traces whatever it can see, process 1 too, which holds what ends all of it, and what
it was told of outside."""

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
    if os.getppid() != 1:
        raise SystemExit("process 1 is to be the lab's, which waits for this one")
    for process in [*config["processes"], 1, 2]:
        if process == os.getpid():
            continue
        if libc.ptrace(ATTACH, process, 0, 0) == 0:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)
            libc.ptrace(DETACH, process, 0, 0)
            reached.append(f"traced {process}")
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGSTOP if process > 2 else 0)
            if process > 2:
                reached.append(f"stopped {process}")
        with contextlib.suppress(OSError):
            with open(f"/proc/{process}/mem", "rb") as file:
                file.seek(4096)
            reached.append(f"read the memory of {process}")
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, config["processes"][0], 5)
        reached.append("setpriority")
    (out / "reached.json").write_text(json.dumps(reached))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGTERM)
