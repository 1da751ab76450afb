"""The system calls that isolated code may not make, as a program for the kernel's filter that
bubblewrap loads (`--seccomp`). Namespaces do not cover every way out: a socket of the family
AF_VSOCK reaches the host of a virtual machine, and io_uring opens sockets past any filter. No step
needs tracing, reading other processes' memory or the kernel's rarely used parts.

Two boxes that read the same libraries share the kernel's page cache. One box can evict a page and
the other can ask whether it is cached, which passes a message; calls that do or ask this are
refused. (The time and the page faults of a read still reveal it.) Memory that belongs to no process
and that no limit sees is refused, too.

Refused calls fail with EPERM, so that programs that only probe continue. Calls of another
architecture, where numbers have other meanings, are all refused.
"""

import platform
import struct
from typing import NamedTuple

AF_VSOCK = 40
MADV_COLD, MADV_PAGEOUT = 20, 21
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
    refused: tuple[int, ...]


# The same on every architecture: io_uring_setup, _enter, _register, pidfd_getfd, process_madvise,
# memfd_secret, cachestat.
NEW = (425, 426, 427, 438, 440, 447, 451)
# Line by line: ptrace, process_vm_readv, process_vm_writev, add_key, request_key, keyctl, bpf,
# perf_event_open, userfaultfd, kexec_load; mincore, fadvise64, readahead; shmget, shmat, shmctl,
# shmdt, mq_open.
KNOWN = {
    "x86_64": Calls(
        audit=0xC000003E,
        socket=41,
        madvise=28,
        preadv2=327,
        refused=(
            *(101, 310, 311, 248, 249, 250, 321, 298, 323, 246),
            *(27, 221, 187),
            *(29, 30, 31, 67, 240),
            *NEW,
        ),
    ),
    "aarch64": Calls(
        audit=0xC00000B7,
        socket=198,
        madvise=233,
        preadv2=286,
        refused=(
            *(117, 270, 271, 217, 218, 219, 280, 241, 282, 104),
            *(232, 223, 213),
            *(194, 196, 195, 197, 180),
            *NEW,
        ),
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
