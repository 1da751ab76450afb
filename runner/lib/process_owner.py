"""Which process holds a lease, and whether that process has certainly ended.

The name of a process is unique. It consists of words with spaces between them: the machine's boot
id, the namespaces of its process id and of its start time, its process id, and its start time in
clock ticks since boot. Only a process with the same first three can judge whether it has ended. For
all others, and whenever something cannot be read, it may be alive; then the lease's time decides. A
virtual machine that was copied while running has its original's boot id: its leases may be taken
from a living process, which costs work but breaks nothing.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from runner.lib import process_tree

PROC = Path("/proc")


def me() -> str:
    """The name of this process; empty if the kernel does not reveal it."""
    process = os.getpid()
    with suppress(OSError):
        if str((PROC / "self").readlink()) != str(process):
            return ""  # that /proc belongs to another namespace, with other process ids
        boot = (PROC / "sys/kernel/random/boot_id").read_text()
        where = [str((PROC / "self/ns" / name).readlink()) for name in ("pid", "time")]
        return " ".join(
            [boot.strip(), *where, str(process), str(process_tree.process(process).began)]
        )
    return ""


def has_ended(name: str) -> bool:
    """Whether the process with this name has certainly ended."""
    *where, process, began = name.split() if name.count(" ") == 4 else ["", ""]
    if not re.fullmatch(r"[1-9][0-9]{0,9}", process) or me().split()[:3] != where:
        return False
    try:
        os.kill(int(process), 0)  # also finds processes that /proc hides from us
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    with suppress(OSError):
        found = process_tree.process(int(process))
        return found.state in "ZX" or str(found.began) != began
    return False
