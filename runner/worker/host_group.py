"""A gang: the hosts of one run, one process per host, which start and end together. The rules,
pure; `runner.worker.host_group_ray` applies them with Ray.

The processes wait for each other in every step, so a lost one would leave the others hanging: when
one ends early, all are ended. The caller may then start another gang.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from runner.store.artifacts import MakerLost


class PeerLost(MakerLost):
    """Another process of the gang is gone."""


@dataclass(frozen=True)
class TpuSlice:
    """The shape of one TPU slice, as Ray names it."""

    version: str  # v5p
    topology: str  # chips along each dimension: 2x2x4


@dataclass(frozen=True)
class Gang:
    """`slices` groups of hosts. On TPUs each is a slice; elsewhere a slice is a group of processes
    that the axes `fsdp` and `tensor` may span."""

    hosts_per_slice: int
    slices: int = 1
    resources: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1.0})  # per host
    environment: Mapping[str, str] = field(default_factory=dict)  # of each process from its start
    tpu: TpuSlice | None = None
    boxed: bool = False  # own code, whose processes join each other in boxes
    patience: float | None = None  # seconds to wait until enough hosts are free; None: for ever

    @property
    def hosts(self) -> int:
        """The number of hosts and processes."""
        return self.slices * self.hosts_per_slice


def strategy(nodes: int) -> str:
    """Ray's placement strategy on so many nodes: each host on a node of its own, or all on the only
    node."""
    return "PACK" if nodes <= 1 else "STRICT_SPREAD"


def ranked(gang: Gang, numbers: Sequence[int]) -> list[int]:
    """The bundle of each rank. Bundles and ranks are ordered by slice; within a slice by the host's
    number there (as JAX counts processes on a TPU)."""
    return sorted(range(gang.hosts), key=lambda at: (at // gang.hosts_per_slice, numbers[at]))


@dataclass(frozen=True)
class End:
    """How the process of a rank ended."""

    rank: int
    how: Literal["returned", "raised", "felt", "lost"]  # felt: another one is gone
    why: str = ""
    result: Any = None  # of the program in rank 0
    preempted: bool = False  # a lost one, whose machine was or will be taken away


def decide(ends: Sequence[End], hosts: int, *, settled: bool) -> End | None:
    """The end that decides how the gang ended, from the ends so far in order; that of rank 0 if all
    have returned. None: wait. `settled`: no further end has come for some seconds.

    A lost host is nobody's fault, and another gang may continue. An error of the program would
    happen again; but it may be a consequence of a loss elsewhere, so it counts only if no loss was
    reported or felt; what it said is added to the reason.
    """
    everyone = len(ends) == hosts
    raised = "".join(f"; host {end.rank} said: {end.why}" for end in ends if end.how == "raised")
    for how in ("lost", "felt", "raised"):
        for end in ends:
            if end.how == how:
                end = replace(end, why=end.why + raised) if how == "felt" else end
                return end if settled or everyone or how == "lost" else None
    return min(ends, key=lambda end: end.rank) if everyone else None
