"""Kinds of device: what to request from Ray, peak FLOP/s, memory and price.

Peaks are dense bfloat16 figures; peaks and memory come from the makers' data sheets. A price is in
US dollars per hour and device, None if the lab pays none. A TPU comes in slices, which are taken
whole: `topologies` gives the shape for each number of chips. A lab adds or overrides kinds in a
`hardware.yaml`:

    h100: {price: 2.1}
    a100: {description: NVIDIA A100, peak_flops: 3.12e+14, platform: gpu, memory_gib: 80,
           ray_gpus: 1, devices_per_host: 8}
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from runner.lib import paths

UTILISATION = (0.5, 0.2)  # fraction of peak FLOP/s that a good and a poor run reach

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

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # for hardware.yaml

    description: str
    peak_flops: float  # FLOP/s of one device
    platform: Literal["cpu", "gpu", "tpu"]  # as JAX calls it
    memory: int | None = None  # bytes of one device; None: whatever the machine has
    ray_cpus: float = 0  # whole cores; a run without ray_gpus trains on them
    ray_gpus: float = 0
    price: float | None = None
    spot_price: float | None = None  # of a preemptible device
    ray_tpu: str = ""  # the generation, as `ray.util.tpu` names it
    topologies: Mapping[int, str] = field(default_factory=dict)  # empty: any number of devices
    devices_per_host: int = 1  # devices of one process in a multi-host run; for TPUs, Ray knows it

    def __post_init__(self) -> None:
        if not self.peak_flops > 0:
            raise ValueError("peak_flops is to be above 0")


class BadHardware(ValueError):
    """hardware.yaml has an invalid kind of device."""


_TABLE: dict[str, Kind] = {
    # Two cores at 3 GHz, each with 32 float32 operations per cycle (two 8-lane multiply-adds).
    "cpu": Kind("CPU, 2 cores", peak_flops=1.92e11, platform="cpu", ray_cpus=2),
    "h100": Kind(
        *("NVIDIA H100 SXM", 9.89e14, "gpu"),
        memory=80 * GIB,
        ray_gpus=1,
        devices_per_host=8,
    ),
    "h200": Kind("NVIDIA H200 SXM", peak_flops=9.89e14, platform="gpu", memory=141 * GIB),
    "v4": Kind("TPU v4", 2.75e14, "tpu", memory=32 * GIB, ray_tpu="v4", topologies=CUBES),
    "v5e": Kind("TPU v5e", 1.97e14, "tpu", memory=16 * GIB, ray_tpu="v5litepod", topologies=GRIDS),
    "v5p": Kind("TPU v5p", 4.59e14, "tpu", memory=95 * GIB, ray_tpu="v5p", topologies=LARGE_CUBES),
}


def extended(kinds: Mapping[str, Kind], file: Path) -> dict[str, Kind]:
    """The table with the entries of `file` (a hardware.yaml, if it exists). Raises BadHardware."""
    if not file.is_file():
        return dict(kinds)
    from pydantic import (  # imported only if there is such a file
        PositiveFloat,
        TypeAdapter,
        ValidationError,
    )

    from runner.lib import yaml_lines

    told_of, positive = TypeAdapter(dict[str, Any]), TypeAdapter(PositiveFloat)
    try:
        said = yaml_lines.read(file.read_text(encoding="utf-8")).value
    except (yaml_lines.BadYaml, OSError, UnicodeDecodeError) as error:
        raise BadHardware(f"{file}: {error}") from error
    table = dict(kinds)
    for name, change in (said if isinstance(said, dict) else {"": said}).items():
        try:
            told = told_of.validate_python(change)
            if (gib := told.pop("memory_gib", None)) is not None:
                told["memory"] = round(positive.validate_python(gib) * GIB)
            table[name] = TypeAdapter(Kind).validate_python(
                {**(vars(table[name]) if name in table else {}), **told}
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, (name, *first["loc"])))
            raise BadHardware(f"{file}, `{where}`: {first['msg']}") from error
    return table


# The kinds for plans, simulations and compile checks.
DESCRIBED = extended(_TABLE, paths.HARDWARE)

# The kinds that experiments may request: those that request something from Ray.
KINDS = {
    name: kind for name, kind in DESCRIBED.items() if kind.ray_cpus or kind.ray_gpus or kind.ray_tpu
}


def takes_gang(kind: str, count: int) -> bool:
    """Whether so many devices need a gang of processes (`runner.worker.host_group`) and not one."""
    return count > 1 or bool(KINDS[kind].ray_tpu)


def listed(kinds: Iterable[str]) -> str:
    """The kinds for an error message. It has no did-you-mean, because similar names are not similar
    kinds: `gpu` is near `cpu`, and `a100` near `h100`."""
    return ", ".join(f"`{kind}`" for kind in kinds)


def misfit(kind: str, count: int, *, trains: bool) -> tuple[str, str] | None:
    """The problem with these resources for a `train` step or (not `trains`) any other step, as a
    key (`kind` or `count`) and a message; None if there is none."""
    if kind not in KINDS:
        return "kind", f"the lab has no devices of kind `{kind}`; it has {listed(KINDS)}"
    if KINDS[kind].topologies and not trains:
        here = listed(name for name, one in KINDS.items() if not one.topologies)
        return "kind", f"slices of {kind} are for `train` steps; write one of {here} here"
    if not trains:
        one = "only a `train` step may have more than one device; write `count: 1`"
        return ("count", one) if count != 1 else None
    shapes, each = KINDS[kind].topologies, KINDS[kind].devices_per_host
    if shapes and count not in shapes:
        sizes = ", ".join(map(str, shapes))
        return "count", f"{kind} comes in slices of {sizes} devices, not of {count}"
    if count > each and count % each:
        words = f"{count} devices are no whole number of hosts, which have {each} of {kind} each"
        return "count", words
    return None


def beside(kind: str) -> str:
    """The kind for work beside training on `kind`: for slices, the cores of their hosts."""
    return "cpu" if kind in KINDS and KINDS[kind].topologies else kind


@dataclass(frozen=True)
class Slice:
    """A number of devices of one kind, such as `h100x8`."""

    kind: str
    count: int

    def __str__(self) -> str:
        return f"{self.count} × {DESCRIBED[self.kind].description}"


def slice_named(name: str) -> Slice:
    """Parse a slice: `h100x8` is eight devices; for a TPU they are chips (Google's `v5p-64` counts
    cores, two per chip). Raises ValueError."""
    found = re.fullmatch(r"([a-z0-9]+?)x([1-9][0-9]{0,5})", name)
    known = listed(DESCRIBED)
    if not found:
        raise ValueError(
            f"`--slice`: `{name}` names no slice; write a kind ({known}), x and how many: h100x8"
        )
    kind, count = found.groups()
    if kind not in DESCRIBED:
        raise ValueError(f"`--slice`: no kind of device `{kind}` is known, only {known}")
    return Slice(kind, int(count))
