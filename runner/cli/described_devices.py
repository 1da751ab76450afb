"""Devices that are described on the command line, and how a model would be laid out on them."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import typer

from engine.config import memory
from engine.config.schema import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from runner.cli.ending import stop, stopping
from runner.lib.problems import near
from runner.schema.devices import DESCRIBED, Slice, slice_named

TheSlice = Annotated[
    str, typer.Option("--slice", help="So many devices of a kind, described as h100x8 or v5px64.")
]
TheMesh = Annotated[
    str, typer.Option("--mesh", help="Its mesh, such as data=2,fsdp=4; fsdp takes all if left out.")
]
Remat = Annotated[
    Literal["none", "block"], typer.Option(help="What is computed again instead of being kept.")
]


def described(
    devices: str, mesh: str, remat: Literal["none", "block"], default: Slice
) -> tuple[Slice, ComputeConfig]:
    """The slice and how it computes, from the words of the command line."""
    with stopping(ValueError):
        sizes = MeshConfig(**dict(_sizes(mesh))) if mesh else None
        on = slice_named(devices) if devices else default
    if sizes and not devices:
        on = Slice(default.kind, sizes.devices)
    sizes = sizes or MeshConfig(fsdp=on.count)
    if found := memory.misfits(sizes, devices=on.count):
        stop(f"`--mesh`: {found[0].words}.")
    on_cpu = DESCRIBED[on.kind].platform == "cpu"
    return on, ComputeConfig(mesh=sizes, remat=remat, dtype="float32" if on_cpu else "bfloat16")


def check_mesh(arms: Iterable[tuple[ModelConfig, TrainConfig]], mesh: MeshConfig) -> None:
    """End the command where one of these cannot be laid out on the mesh."""
    found = {
        f"`{misfit.field}`: {misfit.words}."
        for model, train in arms
        for misfit in memory.misfits(mesh, model=model, train=train)
    }
    if found:
        stop("\n".join(sorted(found)))


def _sizes(mesh: str) -> Iterator[tuple[str, int]]:
    for part in mesh.split(","):
        axis, _, size = part.partition("=")
        if axis not in MeshConfig.model_fields or not (size.isdecimal() and 0 < int(size) < 10**6):
            known = ", ".join(MeshConfig.model_fields)
            raise ValueError(
                f"`--mesh`: `{part}` is no part of a mesh; write sizes of {known}, such as "
                f"data=2,fsdp=4{near(axis, MeshConfig.model_fields)}"
            )
        yield axis, int(size)
