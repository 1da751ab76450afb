"""The kernel's own limits on memory and on the number of processes, where somebody has given us a
part of its control groups to write in (root, or `Delegate=` of a systemd unit with a group below it
for the lab). Where nobody has, `held` names none, and limits are watched instead."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
OURS = "regatta-"
# By controller: the file of version 2, and of version 1.
FILES = {"pids": ("pids.max", "pids.max"), "memory": ("memory.max", "memory.limit_in_bytes")}


@dataclass(frozen=True)
class Held:
    """Groups for a process to enter, and the controllers whose limits they hold."""

    folders: tuple[Path, ...] = ()
    controllers: tuple[str, ...] = ()

    def enter(self) -> None:
        """Have this process, and what it starts from now on, in the groups."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")


@contextlib.contextmanager
def held(limits: Mapping[str, int], root: Path = ROOT, of: Path = OWN) -> Iterator[Held]:
    """Groups with these limits ({controller: most}) for the `with` body, as far as we may."""
    folders: dict[Path, None] = {}
    controllers = []
    for controller, parent, name in _parents(root, of):
        if controller not in limits or controller in controllers:
            continue
        folder = parent / f"{OURS}{os.getpid()}"
        with contextlib.suppress(OSError):
            _weed(parent)
            folder.mkdir(exist_ok=True)
            folders[folder] = None
            (folder / name).write_text(str(limits[controller]))
            controllers.append(controller)
    try:
        yield Held(tuple(folders), tuple(sorted(controllers)))
    finally:
        for folder in folders:
            _remove(folder)


def _parents(root: Path, of: Path) -> Iterator[tuple[str, Path, str]]:
    """(controller, group in which one may be made, the limit's file)."""
    try:
        lines = of.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers:  # version 1
            for controller in FILES.keys() & set(controllers.split(",")):
                yield controller, root / controller / path.strip("/"), FILES[controller][1]
            continue
        # A group that holds processes has none below it with limits: ours may be beside it.
        mine = root / path.strip("/")
        for parent in (mine, mine.parent) if mine != root else (mine,):
            with contextlib.suppress(OSError):
                given = (parent / "cgroup.subtree_control").read_text().split()
                for controller in sorted(FILES.keys() & set(given)):
                    yield controller, parent, FILES[controller][0]


def _weed(parent: Path) -> None:
    """Remove the groups of those who were killed before they could; one in use stays."""
    for left in parent.glob(f"{OURS}*"):
        if not Path("/proc", left.name.removeprefix(OURS)).exists():
            with contextlib.suppress(OSError):
                left.rmdir()


def _remove(folder: Path) -> None:
    until = time.monotonic() + 2.0  # its last process may not be gone yet
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.02)
