"""Which system calls isolated code is refused, as a program for the kernel's filter that bubblewrap
loads (`--seccomp`). Namespaces do not cover all that leads out: a socket of the family AF_VSOCK
reaches the host of a virtual machine, and io_uring opens sockets past any filter. Tracing, reading
others' memory and the kernel's rarely used parts no step needs. Refused calls fail with EPERM, so
that who only tries goes on. What is of another architecture, where numbers mean other calls, is
refused as a whole.
"""

import platform
import struct
from typing import NamedTuple

AF_VSOCK = 40
EPERM = 1
# Offsets in `struct seccomp_data`, and the instructions of classic BPF, from Linux's headers.
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
LOAD, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | EPERM
X32 = 0x40000000  # on x86_64: the same calls once more, with pointers of 32 bits


class Calls(NamedTuple):
    """The numbers that an architecture gives its calls."""

    audit: int  # what the kernel calls the architecture
    socket: int
    refused: tuple[int, ...]


NEW = (425, 426, 427, 438)  # io_uring_setup, _enter, _register; pidfd_getfd: the same everywhere
# ptrace, process_vm_readv, process_vm_writev, add_key, request_key, keyctl, bpf, perf_event_open,
# userfaultfd, kexec_load, and the new ones
KNOWN = {
    "x86_64": Calls(0xC000003E, 41, (101, 310, 311, 248, 249, 250, 321, 298, 323, 246, *NEW)),
    "aarch64": Calls(0xC00000B7, 198, (117, 270, 271, 217, 218, 219, 280, 241, 282, 104, *NEW)),
}


def program(machine: str = "") -> bytes:
    """The filter for `machine`, or this one: instructions of 8 bytes. Empty where the numbers of
    its calls are not known here."""
    calls = KNOWN.get(machine or platform.machine())
    if calls is None:
        return b""
    checks = [(JUMP_IF_EQUAL, number) for number in calls.refused]
    if calls.audit == KNOWN["x86_64"].audit:
        checks.append((JUMP_IF_AT_LEAST, X32))
    # [0] architecture, [1] is it ours, [2] number, the checks, is it `socket`, its family, is it
    # AF_VSOCK, allow, refuse. A jump is over so many instructions.
    refuse = 3 + len(checks) + 4
    lines = [(LOAD, 0, 0, ARCHITECTURE), (JUMP_IF_EQUAL, 0, refuse - 2, calls.audit)]
    lines.append((LOAD, 0, 0, NUMBER))
    for kind, value in checks:
        lines.append((kind, refuse - len(lines) - 1, 0, value))
    lines.append((JUMP_IF_EQUAL, 0, 2, calls.socket))
    lines.append((LOAD, 0, 0, FIRST_ARGUMENT))
    lines.append((JUMP_IF_EQUAL, 1, 0, AF_VSOCK))
    lines += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
