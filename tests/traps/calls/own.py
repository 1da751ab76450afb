"""Asks the kernel for what leads around namespaces: the host of a virtual machine, rings that open
sockets past any filter, tracing, keys; and for what tells of files that another box has read, or
takes memory that no limit sees, such as System V's semaphores and queues."""

import contextlib
import ctypes
import errno
import json
import os
import platform
import socket

NUMBERS = {  # on x86_64 and aarch64
    **{"io_uring_setup": (425, 425), "keyctl": (250, 219), "userfaultfd": (323, 282)},
    **{"bpf": (321, 280), "mincore": (27, 232), "fadvise64": (221, 223), "readahead": (187, 213)},
    **{"cachestat": (451, 451), "shmget": (29, 194), "mq_open": (240, 180), "kcmp": (312, 272)},
    **{"memfd_secret": (447, 447), "process_madvise": (440, 440), "semget": (64, 190)},
    **{"semctl": (66, 191), "semop": (65, 193), "semtimedop": (220, 192), "msgget": (68, 186)},
    **{"msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "inotify_init1": (294, 26)},
    **{"inotify_add_watch": (254, 27), "fanotify_init": (300, 262), "syslog": (103, 116)},
    **{"open_by_handle_at": (304, 265), "io_setup": (206, 0), "pidfd_getfd": (438, 438)},
}
MACHINES = ("x86_64", "aarch64")
WITH_ARGUMENTS = {
    "x86_64": {"madvise": 28, "preadv2": 327, "fcntl": 72},
    "aarch64": {"madvise": 233, "preadv2": 286, "fcntl": 25},
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

    for name, numbers in NUMBERS.items():
        if not refused(numbers[MACHINES.index(platform.machine())], 0, 0, 0, 0, 0):
            reached.append(name)
    folder = os.open("/usr", os.O_RDONLY)  # which all boxes share; notify of reads in it
    given = {"madvise": (0, 0, 21), "preadv2": (0, 0, 0, 0, 0, 8)}  # page out; without waiting
    given |= {"fcntl": (folder, 1026, 1)}
    for name, number in WITH_ARGUMENTS.get(platform.machine(), {}).items():
        if not refused(number, *given[name]):
            reached.append(name)
    with contextlib.suppress(OSError):
        socket.socketpair()[0].close()
        reached.append("its own sockets")
    (out / "reached.json").write_text(json.dumps(reached))
