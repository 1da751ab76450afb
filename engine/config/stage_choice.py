"""What a device of each stage of a pipeline holds, and which schedule is expected to be the fastest
of those that fit. Needs no JAX."""

import math
from functools import lru_cache
from typing import NamedTuple

from engine.config import flops, memory, mesh_choice
from engine.config.hardware import Hardware, Platform
from engine.config.memory import Footprint
from engine.config.mesh_choice import Chosen
from engine.config.schedules import (
    Kind,
    Schedule,
    Simulated,
    Times,
    chunks_of,
    fastest,
    simulate,
    table,
)
from engine.config.schema import ComputeConfig, ModelConfig, TrainConfig
from engine.config.shapes import shapes
from engine.config.stages import Layout, StagedCompute, of_stage, possible

USED = 0.5  # of a device's peak, where times are estimated
SHORT = 0.2  # the largest bubble about which the plan says nothing more


def footprints(
    model: ModelConfig, train: TrainConfig, compute: StagedCompute, platform: Platform
) -> list[Footprint]:
    """What a device of each stage holds, by `memory.footprint` of the stage's layers.

    The embedding is on the first stage, the output matrix and the loss on the last; the final norm
    counts on all. For each part that a stage keeps at the peak of its schedule (`Simulated.peaks`)
    it has the activations of a chunk, or with `remat: block` what goes into each layer, and once
    the work space of the current one. Parts whose gradients of weights a zero-bubble schedule puts
    off have all activations. Stages keep up to a third less than is counted, because what follows
    from one number at a time is computed again. Layers have a copy each in the compute dtype,
    float32 included, and gradients are summed over parts."""
    stages, schedule = compute.mesh.pipeline, compute.schedule or "1f1b"
    chunks, inside = chunks_of(schedule), compute.inside
    depth = model.num_layers // stages
    peaks = simulate(
        table(schedule, stages, train.gradient_accumulation_steps),
        Times.alike(stages * chunks, forward=1.0, inputs=1.0, weights=1.0),
    ).peaks

    def with_(vocabulary: int) -> Footprint:
        cut = of_stage(model, compute).model_copy(update={"vocab_size": vocabulary})
        how = inside.model_copy(update={"remat": "none"})
        return memory.footprint(cut, train, how, platform)

    without, both = with_(0), with_(model.vocab_size)
    layer = without.activations / (depth + 0.5)  # half as much as one layer is work space
    kept, space, a = layer, layer / 2, memory.bytes_of(inside, platform)
    if inside.remat == "block":
        kept = a * model.hidden_dim * _tokens(model, train, compute)
        space += depth / chunks * layer if platform == "cpu" else layer
    copies = without.parameters if a == memory.FLOAT32 else 0

    def numbered(stage: int) -> Footprint:
        ends = (stage == 0) + (stage == stages - 1)
        last = stage == stages - 1
        late = min(stage + 1, train.gradient_accumulation_steps) * (schedule == "zero-bubble")
        activations = (peaks[stage] - late) * kept + late * layer

        def part(name: str) -> int:
            one, two = (getattr(x, name) for x in (without, both))
            return round(one + (two - one) * ends / 2)

        return Footprint(
            parameters=part("parameters"),
            moments=part("moments"),
            gradients=part("gradients") + copies,
            activations=round(depth / chunks * activations + space),
            loss=both.loss if last else 0,
        )

    return [numbered(stage) for stage in range(stages)]


def _tokens(model: ModelConfig, train: TrainConfig, compute: ComputeConfig) -> float:
    """Tokens of a part on one device."""
    parts = train.gradient_accumulation_steps * compute.mesh.rows
    return max(train.batch_sizes.sizes) * model.seq_len / parts


# ── Which schedule ───────────────────────────────────────────────────────────────────────────


def estimated(
    model: ModelConfig,
    train: TrainConfig,
    compute: StagedCompute,
    hardware: Hardware,
    peak_flops: float,
) -> Times:
    """The time of each chunk from its FLOPs at half of the devices' peak, and the time to send
    activations, from `mesh_choice.NETWORK`. Matrices cost as much in each of forward, inputs and
    weights; attention once forward and twice for inputs; the loss is in the last chunk's part for
    inputs. `remat: block` does the forward pass again."""
    stages = compute.mesh.pipeline
    layout = Layout(model, stages, chunks_of(compute.schedule or "1f1b"))
    whole = flops.forward_flops_per_token(model)
    head = 2 * model.hidden_dim * model.vocab_size
    inner = (math.prod(of) for path, of in shapes(model).items() if path.endswith("_proj"))
    chunks = stages * layout.chunks
    matrices = min(2 * sum(inner), whole - head) / chunks
    attention = (whole - head) / chunks - matrices
    devices = compute.mesh.inside.devices
    parts = train.gradient_accumulation_steps
    tokens = max(train.batch_sizes.sizes) * model.seq_len / parts

    def seconds(cost: float) -> float:
        return cost * tokens / (USED * peak_flops * devices)

    def chunk(last: bool) -> dict[Kind, float]:
        again = matrices + attention if compute.remat == "block" else 0.0
        inputs = matrices + 2 * attention + again + (3 * head if last else 0)
        both = {"inputs": seconds(inputs), "weights": seconds(matrices)}
        return {
            "forward": seconds(matrices + attention),
            "inputs": both["inputs"],
            "weights": both["weights"],
            "backward": sum(both.values()),
        }

    fast, slow = mesh_choice.NETWORK[hardware.platform]
    speed = fast if stages * devices <= hardware.host else slow
    sent = memory.bytes_of(compute, hardware.platform) * model.hidden_dim
    transport = sent * _tokens(model, train, compute) / speed
    return Times([chunk(number == chunks - 1) for number in range(chunks)], transport)


class Scheduled(NamedTuple):
    """A schedule, and what is expected of it."""

    compute: StagedCompute
    expected: Simulated
    why: str


@lru_cache(maxsize=1024)  # arms and seeds share their choice
def choose(
    model: ModelConfig,
    train: TrainConfig,
    compute: StagedCompute,
    hardware: Hardware,
    peak_flops: float,
) -> Scheduled:
    """The declared schedule, or the fastest one by simulation whose stages all fit; if none fits,
    the one with which they hold least."""
    asked = (
        [compute.schedule] if compute.schedule else possible(model, train, compute.mesh.pipeline)
    )
    room = math.inf if hardware.memory is None else memory.USABLE * hardware.memory

    def with_(schedule: Schedule) -> StagedCompute:
        return compute.model_copy(update={"schedule": schedule})

    def needs(schedule: Schedule) -> int:
        return held(model, train, with_(schedule), hardware.platform).total

    def times(schedule: Schedule) -> Times:
        return estimated(model, train, with_(schedule), hardware, peak_flops)

    parts = train.gradient_accumulation_steps
    fitting = [one for one in asked if needs(one) <= room]
    found = fastest(fitting or asked, compute.mesh.pipeline, parts, times)
    best = next(iter(found)) if fitting else min(asked, key=needs)
    if compute.schedule:
        why = "as declared"
    elif not fitting:
        why = "chosen: none fits, and with this one stages hold least"
    else:
        others = [f"{one} {100 * of.bubble:.0f} %" for one, of in found.items() if one != best]
        why = "chosen: the fastest of those that fit" + (
            f" ({', '.join(others)})" if others else ""
        )
    return Scheduled(with_(best), found[best], why)


def held(
    model: ModelConfig, train: TrainConfig, compute: ComputeConfig, platform: Platform
) -> Footprint:
    """What a device holds; of a pipeline, one of the stage that holds most."""
    if not isinstance(compute, StagedCompute) or compute.mesh.pipeline == 1:
        return memory.footprint(model, train, compute, platform)
    return max(footprints(model, train, compute, platform), key=lambda one: one.total)


def choose_inside(
    model: ModelConfig,
    train: TrainConfig,
    compute: StagedCompute,
    hardware: Hardware,
    may_remat: bool,
) -> Chosen | None:
    """The computation inside of a stage, in the place of that of `compute`, by
    `mesh_choice.choose`; None if no mesh divides. A stage keeps about as many parts as there are
    stages, so it is chosen for parts that are as many times larger."""
    stages, inside = compute.mesh.pipeline, compute.inside
    on = hardware._replace(devices=hardware.devices // stages)
    fewer = {"gradient_accumulation_steps": max(1, train.gradient_accumulation_steps // stages)}
    for parts in (train.model_copy(update=fewer), train):
        found = mesh_choice.choose(of_stage(model, compute), parts, inside, on, may_remat)
        if found and not memory.misfits(found.compute.mesh, model=model, train=train):
            return found
    return None


def choices(
    model: ModelConfig,
    train: TrainConfig,
    compute: ComputeConfig,
    platform: Platform,
    room: float,
) -> str:
    """What would bring a device to `room` bytes, in words; empty if nothing is known."""
    if isinstance(compute, StagedCompute) and compute.mesh.pipeline > 1:
        return "more stages, or a mesh in each"
    return memory.listed(memory.choices(model, train, compute, platform, room))
