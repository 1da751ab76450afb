"""Which system calls isolated code is refused, as a program for the kernel's filter that bubblewrap
loads (`--seccomp`). Namespaces do not cover all that leads out: a socket of the family AF_VSOCK
reaches the host of a virtual machine, and io_uring opens sockets past any filter. Tracing, reading
others' memory and the kernel's rarely used parts no step needs.

Two boxes that read the same libraries share the memory in which the kernel keeps files. Whoever
pushes a page out in one box, and asks in another whether it is there, has told something across;
calls that do or ask such things are refused. (How long a read takes, and how many faults it cost,
still tells.) So is memory that is no process's own and that no limit sees.

Refused calls fail with EPERM, so that who only tries goes on. What is of another architecture,
where numbers mean other calls, is refused as a whole.
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
# What a line does, over how many lines it jumps if so and if not (None: to the last), its number.
Line = tuple[int, int | None, int | None, int]
X32 = 0x40000000  # on x86_64: the same calls once more, with pointers of 32 bits


class Calls(NamedTuple):
    """The numbers that an architecture gives its calls."""

    audit: int  # what the kernel calls the architecture
    socket: int
    madvise: int
    preadv2: int
    refused: tuple[int, ...]


# The same everywhere: io_uring_setup, _enter, _register, pidfd_getfd, process_madvise,
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
    """The filter for `machine`, or this one: instructions of 8 bytes. Empty where the numbers of
    its calls are not known here."""
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
    lines += _of_call(calls.preadv2, 5, [(JUMP_IF_EQUAL, 0, None, 0)])  # no flags, or refused
    lines += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    last = len(lines) - 1

    def jump(to: int | None, at: int) -> int:
        return last - at - 1 if to is None else to

    return b"".join(
        struct.pack("=HBBI", kind, jump(yes, at), jump(no, at), value)
        for at, (kind, yes, no, value) in enumerate(lines)
    )


def _of_call(call: int, argument: int, asks: list[Line]) -> list[Line]:
    """Lines that ask about the lower half of an argument of one call, and leave others alone."""
    return [
        (JUMP_IF_EQUAL, 0, len(asks) + 2, call),
        (LOAD, 0, 0, FIRST_ARGUMENT + 8 * argument),
        *asks,
        (LOAD, 0, 0, NUMBER),
    ]
