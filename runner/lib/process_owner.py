"""Which process holds a lease, and whether that one has certainly ended.

A process is named by what no other one shares, in words with spaces between them: the machine's
boot, the namespaces in which its number and its beginning count, its number, and when it began, in
clock ticks since the boot. Only who shares the first three can tell anything of it. To everybody
else, and wherever something cannot be read, it may live; time tells. A virtual machine that was
copied while it ran has its original's boot: such a lease may be taken from one that lives, which
costs work, as with any lease.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from runner.lib import process_tree

PROC = Path("/proc")


def me() -> str:
    """This process; empty where the kernel does not tell."""
    process = os.getpid()
    with suppress(OSError):
        if str((PROC / "self").readlink()) != str(process):
            return ""  # what is there is another namespace's, with other numbers
        boot = (PROC / "sys/kernel/random/boot_id").read_text()
        where = [str((PROC / "self/ns" / name).readlink()) for name in ("pid", "time")]
        return " ".join(
            [boot.strip(), *where, str(process), str(process_tree.process(process).began)]
        )
    return ""


def has_ended(name: str) -> bool:
    """Whether the process of this name has ended for certain."""
    *where, process, began = name.split() if name.count(" ") == 4 else ["", ""]
    if not re.fullmatch(r"[1-9][0-9]{0,9}", process) or me().split()[:3] != where:
        return False
    try:
        os.kill(int(process), 0)  # which also tells of one that /proc hides from us
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    with suppress(OSError):
        found = process_tree.process(int(process))
        return found.state in "ZX" or str(found.began) != began
    return False
