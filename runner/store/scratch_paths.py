"""What lies in the folder beside a maker's: what its step printed, why it failed, what the next
maker goes on from. Whoever makes a step writes it, whoever asks reads it."""

from pathlib import Path

SCRATCH = ".scratch"  # that folder is the maker's, with this behind its name

LOG = "log.txt"  # what the step printed
WHY = "why.txt"  # it failed
RECEIPT = "receipt.json"  # what it says that its figures rest on
HELD = "isolation.txt"  # what kept an isolated step apart
CURVE = "curve"  # the metrics of what trains
STOPPED = "stopped"  # the same of one that failed: nobody goes on from it
SHARED = ("checkpoints", CURVE)  # what the next maker goes on from
PARTS, DIGESTS = "parts", "digests.json"  # of a text: what each whole part is
BOX = "box"  # what an isolated step sees as this folder


def of(out: Path) -> Path:
    """That folder of the maker whose output is `out`."""
    return out.with_name(out.name + SCRATCH)


def others(out: Path) -> list[Path]:
    """Those of the other makers of the same step."""
    return [x for x in sorted(out.parent.glob(f"*{SCRATCH}")) if x != of(out)]
