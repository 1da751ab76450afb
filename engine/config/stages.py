"""A model cut into stages: `compute: {mesh: {pipeline: 2}}`. How its layers are shared out, what
cannot be cut, what a device of each stage holds, and which schedule is expected to be the fastest.
Needs no JAX. Apart from `engine.config.schema`, so that only steps with a pipeline depend on it."""

import math
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from pydantic import Field

from engine.config import flops, memory, mesh_choice
from engine.config.hardware import Hardware, Platform
from engine.config.memory import Footprint, Misfit
from engine.config.schedules import (
    CHUNKS,
    SCHEDULES,
    Kind,
    Schedule,
    Simulated,
    Times,
    chunks_of,
    fastest,
    simulate,
    table,
)
from engine.config.schema import (
    ComputeConfig,
    Count,
    LayerKind,
    MeshConfig,
    ModelConfig,
    TrainConfig,
)
from engine.config.shapes import shapes, stack

USED = 0.5  # of a device's peak, where times are estimated
SHORT = 0.2  # the largest bubble about which the plan says nothing more


class StagedMesh(MeshConfig):
    """A mesh in each of the stages of a pipeline."""

    pipeline: Count = Field(
        default=1,
        exclude_if=lambda stages: stages == 1,  # old records have no such key
        description="stages of neighbouring layers, each on devices of its own with the mesh of "
        "the other axes; a batch goes through them in gradient_accumulation_steps parts",
    )

    @property
    def devices(self) -> int:
        return self.pipeline * self.rows * self.tensor

    @property
    def inside(self) -> MeshConfig:
        """The mesh of one stage."""
        return MeshConfig(**self.model_dump(exclude={"pipeline"}))


class StagedCompute(ComputeConfig):
    """How training is computed, with or without a pipeline."""

    mesh: StagedMesh = StagedMesh()
    schedule: Schedule | None = Field(
        default=None,
        exclude_if=lambda schedule: schedule is None,  # old records have no such key
        description="of a pipeline: the order in which stages compute. 1f1b, gpipe (which keeps "
        "most), zero-bubble (which computes the gradients of weights while it would wait) or "
        "interleaved (two groups of layers on each stage); if left out, the one that is expected "
        "to be the fastest among those that fit. Results are the same",
    )

    @property
    def inside(self) -> ComputeConfig:
        """The same for the devices of one stage."""
        rest = self.model_dump(exclude={"mesh", "schedule"})
        return ComputeConfig(**rest, mesh=self.mesh.inside)


class Layout(NamedTuple):
    """Which layers are where."""

    model: ModelConfig
    stages: int
    chunks: int  # on each stage

    @property
    def depth(self) -> int:
        """The layers of a chunk."""
        return self.model.num_layers // (self.stages * self.chunks)

    def kinds(self, chunk: int) -> tuple[LayerKind, ...]:
        """The layers of a chunk."""
        return self.model.kinds[chunk * self.depth : (chunk + 1) * self.depth]

    def chunks_on(self, stage: int) -> range:
        """The chunks of a stage."""
        return range(stage, self.stages * self.chunks, self.stages)

    def rows(self, stage: int, name: str) -> list[int]:
        """Where a stage's layers are in a stack of parameters (`engine.config.shapes.stack`)."""
        each = [stack(kind) for kind in self.kinds(0)].count(name)
        return [chunk * each + row for chunk in self.chunks_on(stage) for row in range(each)]


# ── What cannot be cut ───────────────────────────────────────────────────────────────────────


def misfits(
    compute: StagedCompute, model: ModelConfig | None, train: TrainConfig | None
) -> list[Misfit]:
    """Everything that a pipeline with these stages cannot train, with what to write instead."""
    return list(_misfits(compute, model, train)) if compute.mesh.pipeline > 1 else []


def _misfits(
    compute: StagedCompute, model: ModelConfig | None, train: TrainConfig | None
) -> Iterator[Misfit]:
    stages, at = compute.mesh.pipeline, "compute.mesh"
    if model is not None:
        layers = model.num_layers
        fitting = [str(n) for n in range(1, min(stages, layers) + 1) if layers % n == 0][-4:]
        instead = f"write pipeline: {' or '.join(fitting)}"
        if stages > layers:
            yield Misfit(
                at, f"pipeline {stages} has more stages than num_layers {layers}; {instead}"
            )
        elif layers % stages:
            words = f"pipeline {stages} does not divide num_layers {layers}; {instead}"
            yield Misfit(at, f"{words}, or make num_layers a multiple of {stages}")
        elif not _alike(layout := Layout(model, stages, 1)):
            words = (
                f"pipeline {stages} gives stages of {layout.depth} layers, and layer_pattern and "
                "last_layer make these unlike each other; make each stage whole periods of linear "
                "and other layers"
            )
            yield Misfit(at, words)
        if model.moe:
            yield Misfit(
                at, "a mixture of experts has no pipeline so far; write expert in place of it"
            )
        if model.tie_word_embeddings:
            words = "is on the first and the last stage of a pipeline; write false"
            yield Misfit("model.tie_word_embeddings", f"the embedding {words}, or pipeline: 1")
    if train is not None and train.max_update_sigma is not None:
        words = "max_update_sigma compares updates of the whole model, and a stage has its own; "
        yield Misfit("train.max_update_sigma", f"{words}remove it, or write pipeline: 1")
    if compute.schedule == "interleaved" and model and train and not model.num_layers % stages:
        parts = train.gradient_accumulation_steps
        if parts % stages:
            words = f"schedule interleaved needs a multiple of pipeline {stages} parts; write "
            more = f"gradient_accumulation_steps: {-(-parts // stages) * stages}"
            yield Misfit("compute.schedule", f"{words}{more}, or schedule: 1f1b")
        elif "interleaved" not in possible(model, train, stages):
            words = f"schedule interleaved needs {CHUNKS} × {stages} groups of alike layers, and "
            more = f"num_layers is {model.num_layers}; write schedule: 1f1b"
            yield Misfit("compute.schedule", words + more)


def _alike(layout: Layout) -> bool:
    """Whether each chunk has as many layers of each stack."""
    chunks = range(layout.stages * layout.chunks)
    first, *rest = (Counter(map(stack, layout.kinds(chunk))) for chunk in chunks)
    return all(one == first for one in rest)


def possible(model: ModelConfig, train: TrainConfig, stages: int) -> list[Schedule]:
    """The schedules of a pipeline that cuts the model."""
    whole = model.num_layers % (CHUNKS * stages) == 0
    even = train.gradient_accumulation_steps % stages == 0
    interleaves = whole and even and _alike(Layout(model, stages, CHUNKS))
    return [one for one in SCHEDULES if one != "interleaved" or interleaves]


# ── What a stage holds ───────────────────────────────────────────────────────────────────────


def footprints(
    model: ModelConfig, train: TrainConfig, compute: StagedCompute, platform: Platform
) -> list[Footprint]:
    """What a device of each stage holds, by `memory.footprint` of the stage's layers.

    The embedding is on the first stage, the output matrix and the loss on the last. For each part
    that a stage keeps at the peak of its schedule (`Simulated.peaks`) it has the activations of a
    chunk, or with `remat: block` what goes into each layer, and once the work space of the current
    one. Layers have a copy each in the compute dtype, float32 included, and gradients are summed
    over parts."""
    stages, schedule = compute.mesh.pipeline, compute.schedule or "1f1b"
    chunks, inside = chunks_of(schedule), compute.inside
    depth = model.num_layers // stages
    peaks = simulate(
        table(schedule, stages, train.gradient_accumulation_steps),
        Times.alike(stages * chunks, forward=1.0, inputs=1.0, weights=1.0),
    ).peaks

    def held(vocabulary: int) -> Footprint:
        of = {"num_layers": depth, "layer_pattern": model.kinds[:depth], "last_layer": None}
        how = inside.model_copy(update={"remat": "none"})
        cut = model.model_copy(update={**of, "vocab_size": vocabulary})
        return memory.footprint(cut, train, how, platform)

    without, both = held(0), held(model.vocab_size)
    layer = without.activations / (depth + 0.5)  # half as much as one layer is work space
    kept, space, a = layer, layer / 2, memory.bytes_of(inside, platform)
    if inside.remat == "block":
        kept = a * model.hidden_dim * _tokens(model, train, compute)
        space += depth / chunks * layer if platform == "cpu" else layer
    copies = without.parameters if a == memory.FLOAT32 else 0

    def of_stage(stage: int) -> Footprint:
        ends = (stage == 0) + (stage == stages - 1)
        last = stage == stages - 1

        def part(name: str) -> int:
            one, two = (getattr(x, name) for x in (without, both))
            return round(one + (two - one) * ends / 2)

        return Footprint(
            parameters=part("parameters"),
            moments=part("moments"),
            gradients=part("gradients") + copies,
            activations=round(peaks[stage] * depth / chunks * kept + space),
            loss=both.loss if last else 0,
        )

    return [of_stage(stage) for stage in range(stages)]


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

    def held(schedule: Schedule) -> int:
        found = footprints(model, train, with_(schedule), hardware.platform)
        return max(one.total for one in found)

    def times(schedule: Schedule) -> Times:
        return estimated(model, train, with_(schedule), hardware, peak_flops)

    parts = train.gradient_accumulation_steps
    fitting = [one for one in asked if held(one) <= room]
    found = fastest(fitting or asked, compute.mesh.pipeline, parts, times)
    best = next(iter(found)) if fitting else min(asked, key=held)
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
