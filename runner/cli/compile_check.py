"""`compile-check`: one training step, compiled for devices that need not be there."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from runner.cli import described_devices, terminal
from runner.cli.described_devices import Remat, TheMesh, TheSlice
from runner.cli.ending import FAILED, print_json, stop, stopping
from runner.cli.options import AsJson
from runner.lib.problems import near
from runner.planning import compile_check, planner
from runner.schema.devices import Slice


def command(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="An experiment; an 8B Llama if left out."),
    ] = None,
    arm: Annotated[str, typer.Option(help="Which arm of the experiment.")] = "",
    devices: TheSlice = "v5px64",
    mesh: TheMesh = "",
    remat: Remat = "block",
    as_json: AsJson = False,
) -> None:
    """Compile one training step for described devices, and say what each would hold.

    Nothing is allocated and none of the devices is needed.
    """
    on, compute = described_devices.described(devices, mesh, remat, Slice("v5p", 64))
    model, train = compile_check.llama_8b(compute.mesh)
    if path is not None:
        arms = {name: arm for name, arm in planner.plan_folder(path).arms.items() if arm.labs}
        if not arms:
            stop(f"{path} trains no model of the lab's, whose step could be compiled.")
        if len(arms) > 1 and not arm:
            stop(f"--arm says which one: {', '.join(arms)}.")
        if arm and arm not in arms:
            stop(f"there is no arm `{arm}`{near(arm, arms)}.")
        chosen = arms[arm or next(iter(arms))]
        model, train = chosen.labs or model, chosen.train
    described_devices.check_mesh([(model, train)], compute.mesh)
    with (
        stopping(compile_check.DoesNotCompile, code=FAILED),
        Console(stderr=True).status(f"compiling for {on}"),
    ):
        check = compile_check.check(model, train, compute, on)
    if as_json:
        print_json(check._asdict())
        return
    Console().print(terminal.check_view(check, model, train, on, compute))
