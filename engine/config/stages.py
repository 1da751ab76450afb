"""A model in stages: `compute: {mesh: {pipeline: 2}}`. How its layers are shared out, and what
cannot be cut. Needs no JAX. Apart from `engine.config.schema`, so that only steps with a pipeline
depend on it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import Field

from engine.config import memory
from engine.config.memory import Misfit
from engine.config.schedules import CHUNKS, SCHEDULES, Schedule
from engine.config.schema import (
    ComputeConfig,
    LayerKind,
    MeshConfig,
    ModelConfig,
    Parts,
    TrainConfig,
)
from engine.config.shapes import stack

MAX_ACTIONS = 2**15  # stages × parts of a schedule, which is simulated part by part


class StagedMesh(MeshConfig):
    """A mesh in each of the stages of a pipeline."""

    pipeline: Parts = Field(
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

    def with_inside(self, inside: ComputeConfig) -> "StagedCompute":
        """The same stages and schedule, with another computation inside of each."""
        mesh = StagedMesh(**inside.mesh.model_dump(), pipeline=self.mesh.pipeline)
        rest = inside.model_dump(exclude={"mesh"})
        return StagedCompute(**rest, mesh=mesh, schedule=self.schedule)


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
    compute: StagedCompute,
    devices: int,
    slices: int,
    model: ModelConfig | None,
    train: TrainConfig | None,
) -> list[Misfit]:
    """Everything that does not divide, as `memory.misfits`, or that a pipeline cannot train, with
    what to write instead."""
    mesh = compute.mesh
    if mesh.pipeline == 1:
        found = memory.misfits(mesh, devices=devices, slices=slices, model=model, train=train)
        found = found if mesh.devices > 1 or devices > 1 else []  # one device divides all
        return [*found, *(_misfits(compute, model, train) if compute.schedule else ())]
    found = memory.misfits(mesh.inside, model=model, train=train)
    if mesh.devices != devices:
        each = mesh.inside.devices
        words = (
            f"pipeline {mesh.pipeline} with {each} device{'s' * (each > 1)} in each stage needs "
            f"{mesh.devices} devices, and count is {devices}; write count: {mesh.devices}, or "
            "another mesh"
        )
        found.append(Misfit("compute.mesh", words))
    if slices > 1:
        words = f"a pipeline is inside of one slice so far; write slices: 1, not {slices}"
        found.append(Misfit("compute.mesh", words))
    return [*found, *_misfits(compute, model, train)]


def _misfits(
    compute: StagedCompute, model: ModelConfig | None, train: TrainConfig | None
) -> Iterator[Misfit]:
    stages, at = compute.mesh.pipeline, "compute.mesh"
    if stages == 1:
        words = (
            "schedule is for the stages of a pipeline; write `mesh: {pipeline: 2}`, or remove it"
        )
        yield Misfit("compute.schedule", words)
        return
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
    parts = train.gradient_accumulation_steps if train is not None else 1
    if isinstance(parts, int) and stages * parts > MAX_ACTIONS:
        words = (
            f"{stages:,} stages with {parts:,} parts (gradient_accumulation_steps) are too many to"
        )
        yield Misfit(
            at, f"{words} schedule; {MAX_ACTIONS:,} together is the most; lower one of them"
        )
    if train is not None and train.max_update_sigma is not None:
        words = "max_update_sigma compares updates of the whole model, and a stage has its own; "
        yield Misfit("train.max_update_sigma", f"{words}remove it, or write pipeline: 1")
    if compute.schedule == "interleaved" and model and train and not model.num_layers % stages:
        parts = train.gradient_accumulation_steps
        if not isinstance(parts, int):
            return  # it is reported already
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


def of_stage(model: ModelConfig, compute: StagedCompute) -> ModelConfig:
    """A model with the layers of one stage, to choose a mesh for."""
    layers = max(1, model.num_layers // compute.mesh.pipeline)
    if compute.mesh.pipeline == 1:
        return model
    pattern = {"layer_pattern": model.kinds[:layers], "last_layer": None}
    return model.model_copy(update={"num_layers": layers, **pattern})


def is_staged(config: Mapping[str, Any]) -> bool:
    """Whether a step's configuration, which may be any, has a pipeline."""
    found: Any = config
    for key in ("compute", "mesh"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return isinstance(found, Mapping) and found.get("pipeline", 1) != 1


def without_stages(config: Mapping[str, Any]) -> dict[str, Any]:
    """A step's configuration, with a pipeline or without one, as it is inside of a stage."""
    if not is_staged(config):
        return dict(config)
    compute = StagedCompute.model_validate(config["compute"])
    return {**config, "compute": compute.inside.model_dump(mode="json")}
