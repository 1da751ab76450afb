"""`compile-check`: compiles one training step for devices that need not exist; and how the command
line describes such devices."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from engine.config import memory
from engine.config.schema import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from runner.cli import options, terminal
from runner.cli.ending import FAILED, complaining, print_json, stop, stopping
from runner.cli.options import AsJson
from runner.lib.problems import near
from runner.planning import compile_check, mesh_words, planner
from runner.schema import lab_config
from runner.schema.devices import Slice, slice_named

OPTION = typer.Option("--slice", help="The devices: kind and count, such as h100x8 or v5px64.")
TheSlice = Annotated[str | None, OPTION]
TheMesh = Annotated[
    str | None,
    typer.Option(
        "--mesh", help="The mesh, such as data=2,fsdp=4. By default fsdp takes all devices."
    ),
]
Remat = Annotated[
    Literal["none", "block"],
    typer.Option(help="What to recompute instead of keeping it in memory."),
]


def command(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PATH]",
            help="An experiment. By default an 8B Llama on 64 TPU v5p.",
            callback=options.experiment,
        ),
    ] = None,
    arm: Annotated[str | None, typer.Option(help="Which arm of the experiment.")] = None,
    devices: TheSlice = None,
    mesh: TheMesh = None,
    remat: Remat = "block",
    as_json: AsJson = False,
) -> None:
    """Compile one training step and say what each device would hold.

    It compiles for the devices and the mesh of the experiment's plan, or for those you describe.
    Nothing is allocated and none of the devices is needed.
    """
    on, compute = described(path or Path(), devices or "v5px64", mesh, remat)
    model, train = compile_check.llama_8b(compute.mesh)
    if path is not None:
        planned = planner.plan_folder(path)
        arms = {name: arm for name, arm in planned.arms.items() if arm.labs}
        if not arms:
            stop(f"{path} trains no model of the lab's, whose step could be compiled.")
        if len(arms) > 1 and not arm:
            stop(f"--arm says which one: {', '.join(arms)}.")
        if arm and arm not in arms:
            stop(f"there is no arm `{arm}`{near(arm, arms)}")
        chosen = arms[arm or next(iter(arms))]
        model, train = chosen.labs or model, chosen.train
        if not (devices or mesh):
            groups = mesh_words.computed(planned).items()
            on, compute = next(key for key, of in groups if chosen in of.values())
            if compute.mesh.pipeline > 1:
                stop("a pipeline has programs of each stage; describe the mesh of one by `--mesh`.")
    check_mesh([(model, train)], compute.mesh)
    with (
        stopping(compile_check.DoesNotCompile, code=FAILED),
        Console(stderr=True).status(f"compiling for {on}"),
    ):
        check = compile_check.check(model, train, compute, on)
    if as_json:
        print_json(check._asdict())
        return
    Console().print(terminal.check_view(check, model, train, on, compute))


def described(
    at: Path,
    devices: str | None,
    mesh: str | None,
    remat: Literal["none", "block"],
    default: Slice | None = None,
) -> tuple[Slice, ComputeConfig]:
    """The slice and the computation that the options describe, in the lab in whose checkout `at`
    is. Without `devices` it is the `default`."""
    on = default
    with complaining() as wrong:
        read = list(_sizes(mesh)) if mesh else []
        wrong += [one for one in read if isinstance(one, str)]
        try:
            on = slice_named(lab_config.find(at).devices, devices) if devices else default
        except ValueError as error:
            wrong.append(str(error))
    assert on
    named = dict(one for one in read if not isinstance(one, str))
    sizes = MeshConfig(**named) if mesh else None
    if sizes and not devices:
        on = replace(on, count=sizes.devices)
    sizes = sizes or MeshConfig(fsdp=on.count)
    if found := memory.misfits(sizes, devices=on.count):
        stop(f"`--mesh`: {found[0].words}.")
    on_cpu = on.device.platform == "cpu"
    return on, ComputeConfig(mesh=sizes, remat=remat, dtype="float32" if on_cpu else "bfloat16")


def check_mesh(arms: Iterable[tuple[ModelConfig, TrainConfig]], mesh: MeshConfig) -> None:
    """End the command if the mesh does not fit one of these."""
    found = {
        f"`{misfit.field}`: {misfit.words}."
        for model, train in arms
        for misfit in memory.misfits(mesh, model=model, train=train)
    }
    if found:
        stop("\n".join(sorted(found)))


def _sizes(mesh: str) -> Iterator[tuple[str, int] | str]:
    """The sizes of a mesh; for each invalid part, the error."""
    for part in mesh.split(","):
        axis, _, size = part.partition("=")
        if axis not in MeshConfig.model_fields or not (size.isdecimal() and 0 < int(size) < 10**6):
            known = ", ".join(MeshConfig.model_fields)
            yield (
                f"`--mesh`: `{part}` is not a part of a mesh; write sizes of {known}, such as "
                f"data=2,fsdp=4{near(axis, MeshConfig.model_fields)}"
            )
        else:
            yield axis, int(size)
