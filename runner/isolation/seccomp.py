"""The system calls that isolated code may not make, as a program for the kernel's filter that
bubblewrap loads (`--seccomp`). Namespaces do not cover every way out: a socket of the family
AF_VSOCK reaches the host of a virtual machine, and io_uring opens sockets past any filter. No step
needs tracing, reading other processes' memory or the kernel's rarely used parts.

Two boxes that read the same libraries share the kernel's page cache. One box can evict a page and
the other can ask whether it is cached, or be notified of a read, which passes a message; calls that
do or ask this are refused. (The time and the page faults of a read still reveal it, and so does a
lock on the file.) Memory that belongs to no process and that no limit sees is refused, too: each
box has an IPC namespace of its own, but a semaphore there fills the machine's memory, not the
box's.

Refused calls fail with EPERM, so that programs that only probe continue. Calls of another
architecture, where numbers have other meanings, are all refused.
"""

import platform
import struct
from typing import NamedTuple

AF_VSOCK = 40
MADV_COLD, MADV_PAGEOUT = 20, 21
F_SETLEASE, F_NOTIFY = 1024, 1026
EPERM = 1
# Offsets in `struct seccomp_data`, and the instructions of classic BPF, from Linux's headers.
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
LOAD, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | EPERM
# What a line does, how many lines it jumps over if true and if false (None: to the last), and its
# number.
Line = tuple[int, int | None, int | None, int]
X32 = 0x40000000  # on x86_64: the same calls with 32-bit pointers


class Calls(NamedTuple):
    """The numbers of system calls on an architecture."""

    audit: int  # the kernel's name of the architecture
    socket: int
    madvise: int
    preadv2: int
    fcntl: int
    refused: tuple[int, ...]


# The refused calls, with their numbers on x86_64 and aarch64; None: there is no such call.
REFUSED: dict[str, tuple[int, int | None]] = {
    # Ways around namespaces, other processes, and rarely used parts of the kernel.
    **{"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271)},
    **{"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280)},
    **{"perf_event_open": (298, 241), "userfaultfd": (323, 282), "kexec_load": (246, 104)},
    **{"io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427)},
    **{"pidfd_getfd": (438, 438), "process_madvise": (440, 440), "kcmp": (312, 272)},
    **{"syslog": (103, 116), "open_by_handle_at": (304, 265)},
    # What tells of reads of a file that two boxes share.
    **{"mincore": (27, 232), "fadvise64": (221, 223), "readahead": (187, 213)},
    **{"cachestat": (451, 451), "inotify_init": (253, None), "inotify_init1": (294, 26)},
    **{"inotify_add_watch": (254, 27), "fanotify_init": (300, 262), "fanotify_mark": (301, 263)},
    # Memory that belongs to no process: System V's shared memory, semaphores and queues, POSIX's
    # queues, secret memory; and the places for asynchronous reads, which a whole machine shares.
    **{"shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197)},
    **{"semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192)},
    **{"msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187)},
    **{"mq_open": (240, 180), "memfd_secret": (447, 447), "io_setup": (206, 0)},
}
KNOWN = {
    "x86_64": Calls(
        audit=0xC000003E,
        socket=41,
        madvise=28,
        preadv2=327,
        fcntl=72,
        refused=tuple(x86 for x86, _ in REFUSED.values()),
    ),
    "aarch64": Calls(
        audit=0xC00000B7,
        socket=198,
        madvise=233,
        preadv2=286,
        fcntl=25,
        refused=tuple(arm for _, arm in REFUSED.values() if arm is not None),
    ),
}


def program(machine: str = "") -> bytes:
    """The filter for `machine`, by default this one: instructions of 8 bytes. Empty if its system
    call numbers are not known here."""
    calls = KNOWN.get(machine or platform.machine())
    if calls is None:
        return b""
    lines: list[Line] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 0, None, calls.audit),
        (LOAD, 0, 0, NUMBER),
        *((JUMP_IF_EQUAL, None, 0, number) for number in calls.refused),
    ]
    if calls.audit == KNOWN["x86_64"].audit:
        lines.append((JUMP_IF_AT_LEAST, None, 0, X32))
    for call, argument, values in (
        (calls.socket, 0, (AF_VSOCK,)),
        (calls.madvise, 2, (MADV_COLD, MADV_PAGEOUT)),
        (calls.fcntl, 1, (F_SETLEASE, F_NOTIFY)),
    ):
        asks: list[Line] = [(JUMP_IF_EQUAL, None, 0, value) for value in values]
        lines += _of_call(call, argument, asks)
    lines += _of_call(calls.preadv2, 5, [(JUMP_IF_EQUAL, 0, None, 0)])  # with flags it is refused
    lines += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    last = len(lines) - 1

    def jump(to: int | None, at: int) -> int:
        return last - at - 1 if to is None else to

    return b"".join(
        struct.pack("=HBBI", kind, jump(yes, at), jump(no, at), value)
        for at, (kind, yes, no, value) in enumerate(lines)
    )


def _of_call(call: int, argument: int, asks: list[Line]) -> list[Line]:
    """Lines that check the lower half of an argument of one call, and let other calls pass."""
    return [
        (JUMP_IF_EQUAL, 0, len(asks) + 2, call),
        (LOAD, 0, 0, FIRST_ARGUMENT + 8 * argument),
        *asks,
        (LOAD, 0, 0, NUMBER),
    ]
