"""Kinds of device: what Ray is asked for, how many FLOP/s one does at best, what it costs.

A lab extends this one table. Peaks are dense bfloat16 figures from the makers' data sheets; a
price is US dollars an hour for one device, None where the lab pays none.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of device."""

    description: str
    peak_flops: float  # FLOP/s of one device
    ray_cpus: float = 0  # whole cores; without ray_gpus, those a run trains on
    ray_gpus: float = 0
    price: float | None = None


KINDS: dict[str, Kind] = {
    # Two cores at 3 GHz, 32 float32 operations a cycle each (two 8-lane multiply-adds).
    "cpu": Kind("CPU, 2 cores", peak_flops=1.92e11, ray_cpus=2),
    "h100": Kind("NVIDIA H100 SXM", peak_flops=9.89e14, ray_gpus=1),
}
