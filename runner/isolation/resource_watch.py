"""Measures from outside what isolated code uses: processes, memory and disk, including bytes
without a name (open files that were deleted, memory that is a file), and what the machine has left.
Anything that cannot be counted is a violation: code that hides what it writes is ended."""

import contextlib
import os
import stat
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from runner.lib import process_tree
from runner.lib.untrusted_files import SETUID

MOST_ENTRIES = 200_000  # files and folders below what it writes to
GONE = " (deleted)"  # the kernel's suffix for a deleted file that is open
MEMFD = "/memfd:"
SHARED = (MEMFD, "/dev/zero", "/SYSV")  # names of shared memory that is in no folder
MAPPED = "map_files"  # of a process, in /proc; root can read there what is behind each mapping
PAGE = os.sysconf("SC_PAGE_SIZE")
PRIVATE = ("tmp", "dev/shm")  # of a box, in memory
GONE_MEANWHILE = (FileNotFoundError, NotADirectoryError, ProcessLookupError)
LEAST_DISK, LEAST_MEMORY = 256 << 20, 256 << 20  # bytes that a machine must keep free


@dataclass(frozen=True)
class Limits:
    """Limits of own code, in bytes and seconds."""

    memory: int = 0  # of all its processes together; 0: nine tenths of the machine's
    tasks: int = 4096  # processes and threads
    file: int = 64 << 30  # one file
    written: int = 256 << 30  # everything in its folders
    seconds: float = 24 * 3600.0
    printed: int = 16 << 20  # the output that is kept; the rest is only counted

    def most_memory(self) -> int:
        """`memory`, or nine tenths of this machine's."""
        return self.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 9 // 10


USUAL = Limits()


class Usage(NamedTuple):
    """What a process and all its descendants use."""

    tasks: int  # processes and threads
    memory: int  # bytes, including swapped ones; shared memory counts once per process
    processes: list[int]


def usage(of: int) -> Usage:
    """What a process and all its descendants use now, and their process ids."""
    known = process_tree.processes()
    found = [of, *process_tree.descendants(of, known)]
    threads = sum(known[one].threads for one in found if one in known)
    pages = sum(known[one].pages for one in found if one in known)
    swapped = sum(_said(one, "status").get("VmSwap", 0) for one in found)
    return Usage(threads, pages * PAGE + swapped, found)


def memory(processes: Iterable[int], files: int) -> int:
    """The bytes of memory of these processes, with shared memory counted once. `files` are the
    bytes of memory that is files, some of which they may have mapped."""
    shares = [_share(one) for one in processes]
    return sum(own for own, _ in shares) + max(files, sum(mapped for _, mapped in shares))


def _share(process: int) -> tuple[int, int]:
    """(bytes of its own memory, bytes of memory that is files) of one process, each with its share
    of shared pages; zeros if it has ended."""
    said = _said(process, "smaps_rollup")
    files = said.get("Pss_Shmem", 0)
    return said.get("Pss", 0) - files + said.get("SwapPss", 0), files


def _said(process: int | str, file: str) -> dict[str, int]:
    """The byte counts in a file of /proc by name; empty if there is no such process."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/{file}").read_text(errors="replace").splitlines()
        words = (line.split() for line in lines if line.endswith(" kB"))
        return {x[0].rstrip(":"): int(x[1]) << 10 for x in words if len(x) == 3 and x[1].isdigit()}
    return {}


class Hidden(NamedTuple):
    """Bytes that have no name outside the box."""

    disk: int = 0  # in deleted files that are open
    memory: int = 0  # in memory that is files


def hidden(processes: Iterable[int], folders: Iterable[Path]) -> Hidden:
    """What these processes hold beyond the files in `folders` (as seen in their box)."""
    seen: dict[tuple[int, int], int] = {}
    found = {"disk": 0, "memory": 0}
    shared = _private(processes)
    for place, name in _open_files(processes):
        kind = "memory" if name.startswith(MEMFD) else "disk"
        if not name.endswith(GONE) or not (kind == "memory" or _below(name, folders)):
            continue
        with contextlib.suppress(OSError):
            of = os.stat(place)  # noqa: PTH116
            if stat.S_ISREG(of.st_mode) and not of.st_nlink and (of.st_dev, of.st_ino) not in seen:
                seen[of.st_dev, of.st_ino] = size = _size(of, sparse=kind == "memory")
                found[kind] += size
    return Hidden(found["disk"], found["memory"] + shared + _mapped(processes, seen))


def _mapped(processes: Iterable[int], seen: Container[tuple[int, int]]) -> int:
    """The bytes of memory that these processes share by mappings, without the files in `seen`.
    Pages of a mapping stay allocated even when no process has loaded them. Mappings that we may not
    inspect count in full, up to what the machine has."""
    known: dict[tuple[int, int], int] = {}
    guessed: dict[tuple[int, int], int] = {}
    for process in processes:
        for words in _mappings(process):
            major, _, minor = words[3].partition(":")
            of = os.makedev(int(major, 16), int(minor, 16)), int(words[4])
            if of in seen or of in known:
                continue
            try:
                behind = os.stat(f"/proc/{process}/{MAPPED}/{words[0]}")  # noqa: PTH116
                known[of] = _size(behind, sparse=True)
            except OSError:
                begin, _, end = words[0].partition("-")
                most = int(words[2], 16) + int(end, 16) - int(begin, 16)
                guessed[of] = max(most, guessed.get(of, 0))
    rest = sum(size for of, size in guessed.items() if of not in known)
    return sum(known.values()) + min(rest, _said("", "meminfo").get("Shmem", 0))


def _mappings(process: int) -> Iterator[list[str]]:
    """The fields of each of its shared mappings: range, rights, offset, device, inode, name."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/maps").read_text(errors="replace").splitlines():
            words = line.split(maxsplit=5)
            if len(words) == 6 and words[5].startswith(SHARED) and words[5].endswith(GONE):
                yield words


def _open_files(processes: Iterable[int]) -> Iterator[tuple[str, str]]:
    """(path by which it can be reached, its name) of each open file. A thread may have files of its
    own."""
    for process in processes:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
                folder = f"/proc/{process}/task/{task}/fd"
                for number in os.listdir(folder):  # noqa: PTH208
                    with contextlib.suppress(OSError):
                        yield f"{folder}/{number}", os.readlink(f"{folder}/{number}")  # noqa: PTH115


def _below(name: str, folders: Iterable[Path]) -> bool:
    return any(name.startswith(f"{folder}/") for folder in folders)


def _private(processes: Iterable[int]) -> int:
    """The bytes in their private folders, which are in memory, read through the first process that
    permits it (the very first is bubblewrap, outside)."""
    for process in list(processes)[1:]:
        with contextlib.suppress(OSError):
            found = [os.statvfs(f"/proc/{process}/root/{name}") for name in PRIVATE]
            return sum((of.f_blocks - of.f_bfree) * of.f_frsize for of in found)
    return 0


def _size(of: os.stat_result, *, sparse: bool = False) -> int:
    """Holes count unless `sparse`, because a copy of the file fills them."""
    blocks = of.st_blocks * 512
    return blocks if sparse else max(blocks, of.st_size)


# ── What the machine has left ────────────────────────────────────────────────────────────────


def left(folders: Iterable[Path]) -> Mapping[str, int]:
    """Free bytes: `disk`, the minimum over these folders, and `memory`."""
    found: dict[str, int] = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            of = os.statvfs(folder)
            found["disk"] = min(of.f_bavail * of.f_frsize, found.get("disk", sys.maxsize))
    if "MemAvailable" in (said := _said("", "meminfo")):
        found["memory"] = said["MemAvailable"]
    return found


def least(at_first: Mapping[str, int]) -> Mapping[str, int]:
    """How much must stay free on a machine that has `at_first` free at the start; half of that if
    it is little."""
    wanted = {"disk": LEAST_DISK, "memory": LEAST_MEMORY}
    return {name: min(wanted[name], size // 2) for name, size in at_first.items()}


# ── The rules ────────────────────────────────────────────────────────────────────────────────


def beyond(process: int, limits: Limits, seconds: float, files: int = 0) -> str | None:
    """The limit of time, processes or memory that it exceeds; None if none. `files` are the bytes
    of memory that is files."""
    if seconds > limits.seconds:
        return f"it took longer than {limits.seconds:g} s"
    tasks, taken, processes = usage(process)
    if tasks > limits.tasks:
        return f"it started {tasks} processes and threads, and {limits.tasks} is the most"
    most = limits.most_memory()
    # Shared memory was counted once per process; if that is too much, count it exactly.
    if taken + files > most and (taken := memory(processes, files)) > most:
        return f"it took {taken:,} bytes of memory, and {most:,} is the most"
    return None


def out_of(left: Mapping[str, int], least: Mapping[str, int], grouped: bool) -> str | None:
    """What the machine has run out of, whoever used it; None if nothing. This also ends code whose
    use no check has found."""
    for name in ("disk",) if grouped else ("disk", "memory"):
        if name in left and left[name] < least.get(name, 0):
            return f"its machine has only {left[name]:,} bytes of {name} left"
    return None


def written(folders: Iterable[Path], limits: Limits, hidden: int = 0) -> str | None:
    """Why its written files are not acceptable: too much, uncountable, or of a forbidden kind; None
    if they are. A file counts with its holes filled; links are not followed. `hidden` are bytes
    that have no name."""
    taken, entries = hidden, 0
    waiting = [str(folder) for folder in folders]
    for inner in waiting:  # grows during the loop
        try:
            with os.scandir(inner) as found:
                for entry in found:
                    with contextlib.suppress(*GONE_MEANWHILE):
                        of = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(of.st_mode):
                            waiting.append(entry.path)
                        elif stat.S_ISREG(of.st_mode) and of.st_mode & SETUID:
                            return "it left a file that would run as its owner (setuid)"
                        taken, entries = taken + _size(of), entries + 1
                        if entries > MOST_ENTRIES:
                            return f"it wrote more than {MOST_ENTRIES:,} files"
        except GONE_MEANWHILE:
            continue
        except OSError as error:
            return f"it hid what it wrote from being counted ({error.strerror})"
    if taken > limits.written:
        return f"it wrote {taken:,} bytes, and {limits.written:,} is the most"
    return None
