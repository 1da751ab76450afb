"""Kinds of device: what Ray is asked for, how many FLOP/s one does, what it holds and costs.

Peaks are dense bfloat16 figures and memory is what the makers' data sheets say; a price is US
dollars an hour for one device, None where the lab pays none. A TPU comes in slices, which are taken
whole: `topologies` says of how many chips, and in which shape. The kinds of a lab are in its
`devices.yml` (`runner.schema.lab_config`); a plan carries those that it names.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

UTILISATION = (0.5, 0.2)  # of peak FLOP/s: what a good and a poor run reach

GIB = 2**30


@dataclass(frozen=True)
class Kind:
    """One kind of device."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # where it is read

    description: str
    peak_flops: float  # FLOP/s of one device
    platform: Literal["cpu", "gpu", "tpu"]  # as JAX calls it
    memory_gib: float | None = None  # of one device; None: the machine's own, whatever that is
    ray_cpus: float = 0  # whole cores; without ray_gpus, those a run trains on
    ray_gpus: float = 0
    price: float | None = None
    spot_price: float | None = None  # of one that may be taken away again at any time
    ray_tpu: str = ""  # the generation, as `ray.util.tpu` calls it
    topologies: Mapping[int, str] = field(default_factory=dict)  # none: any number of devices
    devices_per_host: int = 1  # that one process of a run on many has; of TPUs, Ray knows

    @property
    def memory(self) -> int | None:
        """Bytes of one device; None: the machine's own."""
        return None if self.memory_gib is None else round(self.memory_gib * GIB)

    @property
    def on_ray(self) -> bool:
        """Whether experiments may ask for it: Ray is asked for something."""
        return bool(self.ray_cpus or self.ray_gpus or self.ray_tpu)

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> "Kind":
        """As JSON keeps its fields, whose keys are texts."""
        return cls(**{**said, "topologies": {int(n): at for n, at in said["topologies"].items()}})


def takes_gang(kind: Kind, count: int) -> bool:
    """Whether so many devices are for a gang of processes (`runner.worker.host_group`), and not for
    one."""
    return count > 1 or bool(kind.ray_tpu)


def listed(kinds: Iterable[str]) -> str:
    """Kinds as complaints name them. Those that are spelt alike are not what is meant: `gpu` is
    near `cpu`, and `a100` near `h100`."""
    return ", ".join(f"`{kind}`" for kind in kinds)


def misfit(
    kinds: Mapping[str, Kind], kind: str, count: int, *, trains: bool
) -> tuple[str, str] | None:
    """What is wrong with these resources in a lab with these kinds, as the key (`kind` or `count`)
    and words, of a `train` step or (not `trains`) of anything else; None if nothing is."""
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
    if shapes and count not in shapes:
        sizes = ", ".join(map(str, shapes))
        return "count", f"{kind} comes in slices of {sizes} devices, not of {count}"
    if count > each and count % each:
        words = f"{count} devices are no whole number of hosts, which have {each} of {kind} each"
        return "count", words
    return None


@dataclass(frozen=True)
class Slice:
    """So many devices of one kind, such as `h100x8`."""

    kind: str
    count: int
    device: Kind = field(hash=False)

    def __str__(self) -> str:
        return f"{self.count} × {self.device.description}"


def slice_named(kinds: Mapping[str, Kind], name: str) -> Slice:
    """The slice that `h100x8` stands for: eight devices, chips for a TPU (Google's `v5p-64` counts
    cores, two on a chip). Raises ValueError in words."""
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
