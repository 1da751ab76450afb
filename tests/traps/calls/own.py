"""Asks the kernel for what leads around namespaces: the host of a virtual machine, rings that open
sockets past any filter, tracing, keys."""

import contextlib
import ctypes
import errno
import json
import os
import platform
import socket

NUMBERS = {
    "x86_64": {"io_uring_setup": 425, "keyctl": 250, "userfaultfd": 323, "bpf": 321},
    "aarch64": {"io_uring_setup": 425, "keyctl": 219, "userfaultfd": 282, "bpf": 280},
}


def step(config, inputs, out):
    reached = []
    try:
        socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
        reached.append("AF_VSOCK")
    except PermissionError:
        pass
    except OSError as error:  # the kernel has none, or was asked
        reached.append(f"AF_VSOCK: {error}")
    libc = ctypes.CDLL(None, use_errno=True)
    if not (child := os.fork()):
        os._exit(0 if libc.ptrace(0, 0, 0, 0) == 0 else 1)
    if os.waitpid(child, 0)[1] == 0:
        reached.append("ptrace")
    for name, number in NUMBERS.get(platform.machine(), {}).items():
        libc.syscall(number, 0, 0, 0, 0, 0)
        if ctypes.get_errno() != errno.EPERM:
            reached.append(name)
    with contextlib.suppress(OSError):
        socket.socketpair()[0].close()
        reached.append("its own sockets")
    (out / "reached.json").write_text(json.dumps(reached))
