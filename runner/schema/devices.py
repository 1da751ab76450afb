"""Kinds of device: what to request from Ray, peak FLOP/s, memory and price.

Peaks are dense bfloat16 figures; peaks and memory come from the makers' data sheets. A price is in
US dollars per hour and device, None if the lab pays none. A TPU comes in slices, which are taken
whole: `topologies` gives the shape for each number of chips. A lab adds or overrides kinds in its
`devices.yml` (`runner.schema.lab_config`); a plan carries those that it names.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from engine.config.hardware import Hardware, Platform

UTILISATION = (0.5, 0.2)  # fraction of peak FLOP/s that a good and a poor run reach

GIB = 2**30
SLICES_WITHIN = 600.0  # seconds to wait for all slices where fewer are enough


@dataclass(frozen=True)
class Kind:
    """One kind of device."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # where it is read

    description: str
    peak_flops: float  # FLOP/s of one device
    platform: Platform
    memory_gib: float | None = None  # of one device; None: whatever the machine has
    ray_cpus: float = 0  # whole cores; a run without ray_gpus trains on them
    ray_gpus: float = 0
    price: float | None = None
    spot_price: float | None = None  # of a preemptible device
    ray_tpu: str = ""  # the generation, as `ray.util.tpu` names it
    topologies: Mapping[int, str] = field(default_factory=dict)  # empty: any number of devices
    devices_per_host: int = 1  # devices of one process in a multi-host run; for TPUs, Ray knows it

    def price_of(self, spot: bool) -> float | None:
        """US dollars per hour of a device, or of one that may be taken away."""
        return self.spot_price if spot else self.price

    @property
    def memory(self) -> int | None:
        """Bytes of one device; None: the machine's own."""
        return None if self.memory_gib is None else round(self.memory_gib * GIB)

    def hardware(self, count: int, slices: int = 1) -> Hardware:
        """So many of them, in so many slices, to choose a mesh for; the links of a TPU join a whole
        slice."""
        host = count // slices if self.platform == "tpu" else self.devices_per_host
        return Hardware(self.platform, count, self.memory, host, slices)

    @property
    def on_ray(self) -> bool:
        """Whether experiments may ask for it: Ray is asked for something."""
        return bool(self.ray_cpus or self.ray_gpus or self.ray_tpu)

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> "Kind":
        """As JSON keeps its fields, whose keys are texts."""
        return cls(**{**said, "topologies": {int(n): at for n, at in said["topologies"].items()}})


def takes_gang(kind: Kind, count: int) -> bool:
    """Whether so many devices need a gang of processes (`runner.worker.host_group`) and not one."""
    return count > 1 or bool(kind.ray_tpu)


def listed(kinds: Iterable[str]) -> str:
    """The kinds for an error message. It has no did-you-mean, because similar names are not similar
    kinds: `gpu` is near `cpu`, and `a100` near `h100`."""
    return ", ".join(f"`{kind}`" for kind in kinds)


class Asked(Protocol):
    """Devices that a declaration asks for (`runner.schema.record.Resources`)."""

    @property
    def kind(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def slices(self) -> int: ...
    @property
    def min_slices(self) -> int | None: ...


def misfit(kinds: Mapping[str, Kind], asked: Asked, *, trains: bool) -> tuple[str, str] | None:
    """The problem with these resources in a lab with these kinds, for a `train` step or (not
    `trains`) any other step, as a key (such as `count`) and a message; None if there is none."""
    kind, count, slices = asked.kind, asked.count, asked.slices
    here = {name: one for name, one in kinds.items() if one.on_ray}
    if kind not in here:
        return "kind", f"the lab has no devices of kind `{kind}`; it has {listed(here)}"
    shapes, each = here[kind].topologies, here[kind].devices_per_host
    if shapes and not trains:
        others = listed(name for name, one in here.items() if not one.topologies)
        return "kind", f"slices of {kind} are for `train` steps; write one of {others} here"
    if not trains:
        one = "only a `train` step may have more than one device; write `count: 1`"
        return ("count", one) if count != 1 else None
    if count % slices:
        words = f"{count} devices cannot be in {slices} equal slices; make count a multiple of it"
        return "slices", words
    if asked.min_slices and slices % asked.min_slices:
        words = f"{asked.min_slices} slices cannot take over the batch of {slices} in equal parts"
        return "min_slices", f"{words}; write a number that divides {slices}"
    of_slice = count // slices
    if shapes and of_slice not in shapes:
        sizes = ", ".join(map(str, shapes))
        more = "" if count == 1 or count not in shapes else f"; {count} are one slice"
        return "count", f"{kind} comes in slices of {sizes} devices, not of {of_slice}{more}"
    if of_slice > each and of_slice % each:
        words = f"{of_slice} devices are no whole number of hosts, which have {each} of {kind} each"
        return "count", words
    return None


@dataclass(frozen=True)
class Slice:
    """A number of devices of one kind, such as `h100x8`; they may be several slices."""

    kind: str
    count: int
    device: Kind = field(hash=False)
    slices: int = 1  # in which they are

    def __str__(self) -> str:
        of = f" in {self.slices} slices" if self.slices > 1 else ""
        return f"{self.count} × {self.device.description}{of}"

    @property
    def hardware(self) -> Hardware:
        """What a mesh is chosen for."""
        return self.device.hardware(self.count, self.slices)


def slice_named(kinds: Mapping[str, Kind], name: str) -> Slice:
    """Parse a slice of one of these kinds: `h100x8` is eight devices; for a TPU they are chips
    (Google's `v5p-64` counts cores, two per chip). Raises ValueError."""
    found = re.fullmatch(r"([a-z0-9]+?)x([1-9][0-9]{0,5})", name)
    known = listed(kinds)
    if not found:
        raise ValueError(
            f"`--slice`: `{name}` names no slice; write a kind ({known}), x and how many: h100x8"
        )
    kind, count = found.groups()
    if kind not in kinds:
        raise ValueError(f"`--slice`: no kind of device `{kind}` is known, only {known}")
    return Slice(kind, int(count), kinds[kind])
