"""The kernel's own limits on memory and on the number of processes, if we may write to a part of
the control groups (as root, or with `Delegate=` of a systemd unit that has a subgroup for the lab).
Otherwise `held` holds none, and the limits are only watched."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
OURS = "regatta-"
# By controller: the file in version 2 and in version 1.
FILES = {"pids": ("pids.max", "pids.max"), "memory": ("memory.max", "memory.limit_in_bytes")}


@dataclass(frozen=True)
class Held:
    """Groups for a process to enter, and the controllers whose limits they enforce."""

    folders: tuple[Path, ...] = ()
    controllers: tuple[str, ...] = ()

    def enter(self) -> None:
        """Move this process, and everything it starts from now on, into the groups."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")


@contextlib.contextmanager
def held(limits: Mapping[str, int], root: Path = ROOT, of: Path = OWN) -> Iterator[Held]:
    """Groups with these limits ({controller: maximum}) during the `with` body, as far as
    permitted."""
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
    """(controller, group in which a subgroup can be made, the limit's file)."""
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
        # A group that contains processes cannot have subgroups with limits, but its parent may.
        mine = root / path.strip("/")
        for parent in (mine, mine.parent) if mine != root else (mine,):
            with contextlib.suppress(OSError):
                given = (parent / "cgroup.subtree_control").read_text().split()
                for controller in sorted(FILES.keys() & set(given)):
                    yield controller, parent, FILES[controller][0]


def _weed(parent: Path) -> None:
    """Remove groups that a killed process left behind; groups in use stay."""
    for left in parent.glob(f"{OURS}*"):
        if not Path("/proc", left.name.removeprefix(OURS)).exists():
            with contextlib.suppress(OSError):
                left.rmdir()


def _remove(folder: Path) -> None:
    until = time.monotonic() + 2.0  # its last process may still be ending
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.02)
