"""Which mesh trains a model on a number of devices, where a declaration names none: what fits in
memory (`engine.config.memory`) and then sends the fewest bytes. Needs no JAX."""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from engine.config import memory
from engine.config.hardware import Hardware, Platform
from engine.config.schema import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from engine.config.shapes import shapes

# Bytes per second that a device sends: to others of its host, and to other hosts. H100: NVLink 450
# GB/s each way, and 400 Gbit/s of InfiniBand for each device (data sheet of the DGX H100). A TPU's
# links join the whole slice; 90 GB/s are two of a v4 or v5e, and half of what a v5p has.
NETWORK: dict[Platform, tuple[float, float]] = {
    "cpu": (1e10, 1e10),
    "gpu": (450e9, 50e9),
    "tpu": (90e9, 90e9),
}
MOST_TENSOR = 8  # parts of a matrix; smaller ones keep a device's multipliers waiting
ALIKE = 1.1  # times the least traffic; among such meshes the simplest is chosen


class Traffic(NamedTuple):
    """What one device sends in a training step."""

    bytes: float
    seconds: float  # if nothing is computed meanwhile


class Chosen(NamedTuple):
    """A mesh, perhaps with `remat`, and the reason."""

    compute: ComputeConfig
    why: str


def traffic(
    model: ModelConfig, train: TrainConfig, compute: ComputeConfig, hardware: Hardware
) -> Traffic:
    """Estimate what a device sends in a step, by ring algorithms: of n bytes, g devices each send
    n·(g − 1)/g to gather or to reduce and scatter them, and twice that for an all-reduce (Patarasu
    and Yuan 2009, Bandwidth optimal all-reduce algorithms). With the letters of
    `memory.footprint`, W weights of a device's part along tensor and expert, W' of these outside of
    experts, and each time for every part of an accumulated gradient:

        data    2·4·W/f                 an all-reduce of gradients
        fsdp    (2·a + 4)·W             weights for both passes, and gradients
        expert  2·4·W'/f                an all-reduce of gradients
                4·a·e·T·D               per layer: rows of all, to the experts and back, twice
        tensor  4·2·a·T·D               per layer: four all-reduces (Shoeybi et al. 2019, Megatron)

    `remat: block` adds a third pass: a·W to fsdp, and half as much again to expert's rows and to
    tensor. A group that reaches beyond a host has the slow network of each of its devices there.
    """
    mesh, parts = compute.mesh, train.gradient_accumulation_steps
    d, f, e, t = mesh.data, mesh.fsdp, mesh.expert, mesh.tensor
    a = memory.bytes_of(compute, hardware.platform)
    L, D = model.num_layers, model.hidden_dim
    inner = (model.moe.latent_dim if model.moe else None) or D
    T = max(train.batch_sizes.sizes) * model.seq_len / (mesh.rows * parts)
    experts, dense = _weights(model)
    outside = dense / t
    whole = outside + experts / (e * t)
    passes = 3 if compute.remat == "block" else 2
    gradients = 2 * memory.FLOAT32
    sent = {  # by axis, from the outermost to the innermost: the bytes before (g − 1)/g
        "data": (d, gradients * whole / f),
        "fsdp": (f, (passes * a + memory.FLOAT32) * whole),
        "expert": (e, gradients * outside / f + passes * 2 * L * a * e * T * inner),
        "tensor": (t, passes * 2 * L * 2 * a * T * D),
    }
    fast, slow = NETWORK[hardware.platform]
    bytes_, seconds, inside = 0.0, 0.0, mesh.devices
    for size, most in sent.values():
        inside //= size
        here = max(1, min(size, hardware.host // inside))  # devices of a group on one host
        speed = fast if here == size else min(fast, slow * here)
        of_axis = parts * most * (size - 1) / size
        bytes_ += of_axis
        seconds += of_axis / speed
    return Traffic(bytes_, seconds)


def _weights(model: ModelConfig) -> tuple[float, float]:
    """Weights of experts, and all others that a mesh cuts."""
    found = {True: 0.0, False: 0.0}
    for path, shape in shapes(model).items():
        if path in ("embedding", "lm_head") or path.endswith("_proj"):
            found[len(shape) == memory.EXPERTS] += math.prod(shape)
    return found[True], found[False]


@lru_cache(maxsize=4096)  # arms and seeds share their choice
def choose(
    model: ModelConfig,
    train: TrainConfig,
    compute: ComputeConfig,
    hardware: Hardware,
    may_remat: bool,
) -> Chosen | None:
    """The mesh for these devices, in the place of that of `compute`; None if none divides the model
    and the batch.

    Copies of the model (`data`) are kept wherever they fit. Otherwise it is the mesh with the least
    `traffic` among all that fit, and the simplest of those within a tenth of it. If none fits and
    `may_remat`, it is chosen again with `remat: block`; if still none fits, it is the mesh with
    which a device holds least."""
    copies = MeshConfig(data=hardware.devices)
    dividing = [
        mesh
        for mesh in _meshes(hardware)
        if not memory.misfits(mesh, slices=hardware.slices, model=model, train=train)
    ]
    if not dividing:
        return None
    room = math.inf if hardware.memory is None else memory.USABLE * hardware.memory

    def held(compute: ComputeConfig) -> int:
        return memory.footprint(model, train, compute, hardware.platform).total

    def sends(compute: ComputeConfig) -> float:
        return traffic(model, train, compute, hardware).seconds

    whole = compute.model_copy(update={"mesh": copies})
    if copies in dividing and held(whole) <= room:
        why = "each device has a copy of the model" if hardware.devices > 1 else "it is one device"
        return Chosen(whole, f"{why}, which fits")
    because = f"a copy of the model would need {memory.size(held(whole))} on each device"
    if copies not in dividing:
        because = f"{hardware.devices} devices cannot share the batch as copies of the model"
    candidates: list[ComputeConfig] = []
    for remat in ("none", "block") if may_remat and compute.remat == "none" else (compute.remat,):
        candidates = [
            compute.model_copy(update={"mesh": mesh, "remat": remat}) for mesh in dividing
        ]
        if fitting := [one for one in candidates if held(one) <= room]:
            least = min(map(sends, fitting))
            found = min((x for x in fitting if sends(x) <= ALIKE * least), key=_complexity)
            sent = memory.size(traffic(model, train, found, hardware).bytes)
            one_of = f"of {len(fitting):,} meshes that fit, it sends the least: {sent} a step"
            reasons = [because, one_of if len(fitting) > 1 else "no other mesh fits"]
            if remat != compute.remat:
                reasons.append(f"nothing fits without `remat: {remat}`")
            return Chosen(found, "; ".join(reasons))
    smallest = min(candidates, key=lambda one: (held(one), *_complexity(one)))
    return Chosen(
        smallest, f"none of {len(candidates):,} fits, and this one needs the least memory"
    )


def _meshes(hardware: Hardware) -> Iterator[MeshConfig]:
    """Every mesh of these devices; tensor stays inside of a host."""
    devices = hardware.devices
    for tensor in _divisors(devices):
        if tensor > min(MOST_TENSOR, hardware.host):
            break
        for expert in _divisors(devices // tensor):
            for fsdp in _divisors(devices // tensor // expert):
                data = devices // tensor // expert // fsdp
                yield MeshConfig(data=data, fsdp=fsdp, tensor=tensor, expert=expert)


def _divisors(n: int) -> list[int]:
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    return sorted({*small, *(n // k for k in small)})


def _complexity(compute: ComputeConfig) -> tuple[int, ...]:
    """Fewer axes are simpler, then data before fsdp before expert before tensor."""
    mesh = compute.mesh
    axes = sum(size > 1 for size in (mesh.data, mesh.fsdp, mesh.expert, mesh.tensor))
    return axes, mesh.tensor, mesh.expert, mesh.fsdp
