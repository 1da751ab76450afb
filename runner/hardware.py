"""Kinds of device: what Ray is asked for, how many FLOP/s one does, what it holds and costs.

A lab extends these tables. Peaks are dense bfloat16 figures and memory is what the makers' data
sheets say; a price is US dollars an hour for one device, None where the lab pays none. A TPU comes
in slices, which are taken whole: `topologies` says of how many chips, and in which shape.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

GIB = 2**30

# Chips of a slice → its shape, as Google and `ray.util.tpu` write it.
GRIDS = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
CUBES = {
    **{4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8"},
    **{256: "4x8x8", 512: "8x8x8", 1024: "8x8x16"},
}
LARGE_CUBES = CUBES | {2048: "8x16x16", 4096: "16x16x16", 6144: "16x16x24"}


@dataclass(frozen=True)
class Kind:
    """One kind of device."""

    description: str
    peak_flops: float  # FLOP/s of one device
    platform: Literal["cpu", "gpu", "tpu"]  # as JAX calls it
    memory: int | None = None  # bytes of one device; None: the machine's own, whatever that is
    ray_cpus: float = 0  # whole cores; without ray_gpus, those a run trains on
    ray_gpus: float = 0
    price: float | None = None
    spot_price: float | None = None  # of one that may be taken away again at any time
    ray_tpu: str = ""  # the generation, as `ray.util.tpu` calls it
    topologies: Mapping[int, str] = field(default_factory=dict)  # none: any number of devices


# What experiments may ask for: the lab knows how to launch on these.
KINDS: dict[str, Kind] = {
    # Two cores at 3 GHz, 32 float32 operations a cycle each (two 8-lane multiply-adds).
    "cpu": Kind("CPU, 2 cores", peak_flops=1.92e11, platform="cpu", ray_cpus=2),
    "h100": Kind(
        "NVIDIA H100 SXM", peak_flops=9.89e14, platform="gpu", memory=80 * GIB, ray_gpus=1
    ),
}

# What plans and compile checks may be made for besides.
DESCRIBED: dict[str, Kind] = KINDS | {
    "h200": Kind("NVIDIA H200 SXM", peak_flops=9.89e14, platform="gpu", memory=141 * GIB),
    "v4": Kind("TPU v4", 2.75e14, "tpu", memory=32 * GIB, ray_tpu="v4", topologies=CUBES),
    "v5e": Kind("TPU v5e", 1.97e14, "tpu", memory=16 * GIB, ray_tpu="v5litepod", topologies=GRIDS),
    "v5p": Kind("TPU v5p", 4.59e14, "tpu", memory=95 * GIB, ray_tpu="v5p", topologies=LARGE_CUBES),
}


@dataclass(frozen=True)
class Slice:
    """So many devices of one kind, such as `h100x8`."""

    kind: str
    count: int

    def __str__(self) -> str:
        return f"{self.count} × {DESCRIBED[self.kind].description}"


def slice_named(name: str) -> Slice:
    """The slice that `h100x8` stands for: eight devices, chips for a TPU (Google's `v5p-64` counts
    cores, two on a chip). Raises ValueError in words."""
    found = re.fullmatch(r"([a-z0-9]+?)x([1-9][0-9]{0,5})", name)
    known = ", ".join(DESCRIBED)
    if not found:
        raise ValueError(
            f"`--slice`: `{name}` names no slice; write a kind ({known}), x and how many: h100x8"
        )
    kind, count = found.groups()
    if kind not in DESCRIBED:
        raise ValueError(f"`--slice`: no kind of device `{kind}` is known, only {known}")
    return Slice(kind, int(count))
