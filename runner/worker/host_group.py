"""A gang: the hosts of one run, a process a host, that begin and end together. The rules, pure;
`runner.worker.host_group_ray` has Ray do it.

The processes wait for each other in every step, so that one that is lost leaves the others hanging:
when one ends before its time all are ended. Whoever wanted the gang may then begin another one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class TpuSlice:
    """The shape of one TPU slice, in Ray's words."""

    version: str  # v5p
    topology: str  # chips along each side: 2x2x4


@dataclass(frozen=True)
class Gang:
    """`slices` groups of hosts, on TPUs a slice each; elsewhere a slice is what the run takes for
    one: processes between which the axes `fsdp` and `tensor` may lie."""

    hosts_per_slice: int
    slices: int = 1
    resources: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1.0})  # of one host
    environment: Mapping[str, str] = field(default_factory=dict)  # of each process from its start
    tpu: TpuSlice | None = None

    @property
    def hosts(self) -> int:
        """How many hosts, and processes."""
        return self.slices * self.hosts_per_slice


def strategy(nodes: int) -> str:
    """How Ray is to place hosts on so many nodes: each on a node of its own, or all on the only
    one there is."""
    return "PACK" if nodes <= 1 else "STRICT_SPREAD"


def ranked(gang: Gang, numbers: Sequence[int]) -> list[int]:
    """The bundle of each rank. Bundles lie slice by slice, and so do ranks; inside of a slice they
    go by the number that a bundle's host has there (a TPU's JAX counts processes so too)."""
    return sorted(range(gang.hosts), key=lambda at: (at // gang.hosts_per_slice, numbers[at]))


@dataclass(frozen=True)
class End:
    """How the process of a rank ended."""

    rank: int
    how: Literal["returned", "raised", "lost"]
    why: str = ""
    result: Any = None  # what the program returned in rank 0


def decide(ends: Sequence[End], hosts: int, *, settled: bool) -> End | None:
    """The end that decides how the gang ended, of the ends so far in the order in which they came:
    of rank 0 where all have returned. None: wait. `settled`: no further one has come for some
    seconds.

    A lost host is nobody's fault, and another gang would go on. An error of the program would come
    again; but it may be how a neighbour felt a loss, so it counts once no loss was heard of.
    """
    everyone = len(ends) == hosts
    for end in ends:
        if end.how == "lost":
            return end
    for end in ends:
        if end.how == "raised":
            return end if settled or everyone else None
    return min(ends, key=lambda end: end.rank) if everyone else None
