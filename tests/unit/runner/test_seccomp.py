"""The filter of system calls, as the kernel would run it, for both architectures."""

import platform
import struct

import pytest

from runner.isolation import seccomp
from runner.isolation.seccomp import (
    AF_VSOCK,
    ALLOW,
    F_NOTIFY,
    F_SETLEASE,
    KNOWN,
    MADV_COLD,
    MADV_PAGEOUT,
    REFUSE,
)


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What a program of classic BPF returns for a call."""
    given = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, architecture, 0, *given)
    lines = list(struct.iter_unpack("=HBBI", program))
    at, held = 0, 0
    while True:
        code, yes, no, value = lines[at]
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("<I", data, value)
            case 0x15:
                at += yes if held == value else no
            case 0x35:
                at += yes if held >= value else no
            case 0x06:
                return int(value)


@pytest.mark.parametrize("machine", KNOWN)
def test_a_call_is_refused_by_its_number_and_a_socket_by_its_family(machine: str) -> None:
    calls, program = KNOWN[machine], seccomp.program(machine)
    for number in calls.refused:
        assert verdict(program, calls.audit, number) == REFUSE, number
    assert verdict(program, calls.audit, calls.socket, AF_VSOCK) == REFUSE
    assert verdict(program, calls.audit, calls.socket, AF_VSOCK | 1 << 32) == REFUSE
    for family in (1, 2, 10, 16):
        assert verdict(program, calls.audit, calls.socket, family) == ALLOW
    others = set(range(500)) - {*calls.refused, calls.socket}
    assert {verdict(program, calls.audit, number, AF_VSOCK) for number in others} == {ALLOW}


@pytest.mark.parametrize("machine", KNOWN)
def test_page_cache_calls_are_refused(machine: str) -> None:
    calls, program = KNOWN[machine], seccomp.program(machine)
    advice = {n: verdict(program, calls.audit, calls.madvise, 0, 0, n) for n in range(26)}
    assert {n for n, said in advice.items() if said == REFUSE} == {MADV_COLD, MADV_PAGEOUT}
    flags = {n: verdict(program, calls.audit, calls.preadv2, 9, 9, 9, 9, 9, n) for n in (0, 1, 8)}
    assert flags == {0: ALLOW, 1: REFUSE, 8: REFUSE}
    names = {"x86_64": (27, 221, 187, 451), "aarch64": (232, 223, 213, 451)}
    for number in names[machine]:  # mincore, fadvise64, readahead, cachestat
        assert verdict(program, calls.audit, number) == REFUSE


@pytest.mark.parametrize("machine", KNOWN)
def test_calls_of_another_architecture_are_refused(machine: str) -> None:
    for audit in (0x40000003, 0x40000028, *(x.audit for x in KNOWN.values())):  # i386, arm
        same = audit == KNOWN[machine].audit
        said = verdict(seccomp.program(machine), audit, KNOWN[machine].socket, 1)
        assert said == (ALLOW if same else REFUSE)
    x32 = verdict(seccomp.program("x86_64"), KNOWN["x86_64"].audit, 0x40000000 + 41, AF_VSOCK)
    assert x32 == REFUSE


@pytest.mark.parametrize("machine", KNOWN)
def test_memory_of_no_process_and_notices_of_shared_files_are_refused(machine: str) -> None:
    calls, program = KNOWN[machine], seccomp.program(machine)
    numbers = {
        # semget, semctl, semtimedop, semop; msgget, msgctl, msgrcv, msgsnd; inotify_init1, kcmp
        "x86_64": (64, 66, 220, 65, 68, 71, 70, 69, 294, 312),
        "aarch64": (190, 191, 192, 193, 186, 187, 188, 189, 26, 272),
    }
    for number in numbers[machine]:
        assert verdict(program, calls.audit, number) == REFUSE, number
    commands = {n for n in range(1100) if verdict(program, calls.audit, calls.fcntl, 3, n) != ALLOW}
    assert commands == {F_SETLEASE, F_NOTIFY}


def test_an_unknown_architecture_has_no_filter() -> None:
    assert seccomp.program("riscv64") == b""
    assert seccomp.program() == seccomp.program(platform.machine())
