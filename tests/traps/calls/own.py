"""Asks the kernel for what leads around namespaces: the host of a virtual machine, rings that open
sockets past any filter, tracing, keys; and for what tells of pages that another box has read, or
takes memory that no limit sees."""

import contextlib
import ctypes
import errno
import json
import os
import platform
import socket

NUMBERS = {
    "x86_64": {
        **{"io_uring_setup": 425, "keyctl": 250, "userfaultfd": 323, "bpf": 321},
        **{"mincore": 27, "fadvise64": 221, "readahead": 187, "cachestat": 451},
        **{"shmget": 29, "mq_open": 240, "memfd_secret": 447, "process_madvise": 440},
    },
    "aarch64": {
        **{"io_uring_setup": 425, "keyctl": 219, "userfaultfd": 282, "bpf": 280},
        **{"mincore": 232, "fadvise64": 223, "readahead": 213, "cachestat": 451},
        **{"shmget": 194, "mq_open": 180, "memfd_secret": 447, "process_madvise": 440},
    },
}
WITH_ARGUMENTS = {
    "x86_64": {"madvise": 28, "preadv2": 327},
    "aarch64": {"madvise": 233, "preadv2": 286},
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

    def refused(number, *arguments):
        ctypes.set_errno(0)
        return libc.syscall(number, *arguments) == -1 and ctypes.get_errno() == errno.EPERM

    for name, number in NUMBERS.get(platform.machine(), {}).items():
        if not refused(number, 0, 0, 0, 0, 0):
            reached.append(name)
    given = {"madvise": (0, 0, 21), "preadv2": (0, 0, 0, 0, 0, 8)}  # page out; without waiting
    for name, number in WITH_ARGUMENTS.get(platform.machine(), {}).items():
        if not refused(number, *given[name]):
            reached.append(name)
    with contextlib.suppress(OSError):
        socket.socketpair()[0].close()
        reached.append("its own sockets")
    (out / "reached.json").write_text(json.dumps(reached))
