"""The folder beside a maker's output: what its step printed, why it failed, and what the next maker
continues from."""

from pathlib import Path

SCRATCH = ".scratch"  # suffix of that folder's name

LOG = "log.txt"  # the step's output text
WHY = "why.txt"  # why it failed
RECEIPT = "receipt.json"  # how its figures were computed, as it reports
HELD = "isolation.txt"  # how an isolated step was isolated
CURVE = "curve"  # the metrics of training
STOPPED = "stopped"  # the same for a failed training, which nobody continues
CHECKPOINTS = "checkpoints"
SHARED = (CHECKPOINTS, CURVE)  # what the next maker continues from
PARTS, DIGESTS = "parts", "digests.json"  # for a text: the finished parts, and their digests
BOX = "box"  # the view of this folder inside a box


def of(out: Path) -> Path:
    """That folder of the maker with the output `out`."""
    return out.with_name(out.name + SCRATCH)


def others(out: Path) -> list[Path]:
    """The folders of the other makers of the same step."""
    return [x for x in sorted(out.parent.glob(f"*{SCRATCH}")) if x != of(out)]
