"""Where a step's time goes on a CPU: `python -m tests.bench.profile_step [WORKLOAD]`. The engine
traces a few steps of its normal loop; each operation of the trace is found in the compiled program,
which says from which function of the engine it came, and those are added up by what they are for.
Writes `results/profile.json` and `profile.md`."""

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results"
FIRST, LAST = 8, 17  # the steps that are traced

OPTIMIZER = "clipping and AdamW"
# The engine's functions and what an operation that comes from them is for. Of the functions that
# led to an operation the innermost that is named here counts.
PURPOSES = {
    "kernels.py": "attention: scores, softmax, mixing",
    "attention.py": "attention: scores, softmax, mixing",
    "rms_norm": "norms",
    "rotate": "rotary positions",
    "Attention.heads": "attention: projections and layout",
    "Attention.__call__": "attention: projections and layout",
    "SwiGLU.__call__": "MLP",
    "Block.__call__": "residual sums",
    "loss.py": "output matrix and loss",
    "optim.py": OPTIMIZER,
    "train_step": OPTIMIZER,
    "Decoder.features": "embedding, slices of stacked layers",
    "Decoder.output_matrix": "output matrix and loss",
}
OTHER = "not attributed"
CONTAINERS = ("while", "conditional", "call")  # what is in them is in the trace by itself


class Instruction(NamedTuple):
    """An operation of the compiled program: its purpose, and whether it is a matrix product."""

    purpose: str
    product: bool


def instructions(hlo: str) -> dict[str, Instruction]:
    """Every instruction of a compiled program's text, by name."""
    tables = {
        name: dict(re.findall(r"^(\d+) (.*)$", part, re.MULTILINE))
        for name, part in re.findall(
            r"^(FileNames|FunctionNames|FileLocations|StackFrames)\n((?:\d+ .*\n)+)",
            hlo,
            re.MULTILINE,
        )
    }

    def number(field: str, text: str) -> str:
        found = re.search(rf"{field}=(\d+)", text)
        return found[1] if found else ""

    def purpose(frame: str) -> str:
        while frame in tables["StackFrames"]:
            location = tables["FileLocations"][
                number("file_location_id", tables["StackFrames"][frame])
            ]
            file = Path(tables["FileNames"][number("file_name_id", location)].strip('"'))
            function = tables["FunctionNames"][number("function_name_id", location)].strip('"')
            if "optax" in file.parts:
                return OPTIMIZER
            if file.parent.name == "engine":
                for key in (function.partition(".<locals>")[0], file.name):
                    if key in PURPOSES:
                        return PURPOSES[key]
            parent = number("parent_frame_id", tables["StackFrames"][frame])
            if parent == frame:
                break
            frame = parent
        return OTHER

    bodies, body = {}, ""  # which computations hold a product
    found: dict[str, Instruction] = {}
    for line in hlo.splitlines():
        if start := re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            body = start[1]
            bodies[body] = False
        if match := re.match(r"\s+(?:ROOT )?%?([\w.\-]+) = .*? ([a-z\-]+)\(", line):
            calls = re.search(r"calls=%?([\w.\-]+)", line)
            product = match[2] == "dot" or bool(calls and bodies.get(calls[1]))
            bodies[body] = bodies.get(body, False) or product
            frame = re.search(r"stack_frame_id=(\d+)", line)
            what_for = purpose(frame[1]) if frame else OTHER
            if not frame:  # XLA made it of others and does not say whose it is
                operands = re.findall(r"%([\w.\-]+)", line[match.end() :].partition(")")[0])
                known = (found[name].purpose for name in operands if name in found)
                what_for = next((x for x in known if x != OTHER), OTHER)
            if match[2] not in CONTAINERS:
                found[match[1]] = Instruction(what_for, product)
    return found


def seconds(trace: Path, known: dict[str, Instruction]) -> Counter[Instruction]:
    """Seconds in the trace by what they were for."""
    spent: Counter[Instruction] = Counter()
    for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]:
        instruction = known.get(event.get("name", ""))
        if event.get("ph") == "X" and instruction:
            spent[instruction] += event["dur"] / 1e6
    return spent


def measure(workload: str, folder: Path) -> dict[str, Any]:
    """Runs in a process of its own that has the heap kept, like a worker."""
    from engine.model import mesh as meshes
    from engine.model.decoder import Decoder
    from engine.model.loss import cross_entropy
    from engine.training import step
    from engine.training.train import Profile, train
    from tests.bench.workloads import SEED, WORKLOADS, build_store, sampler

    model, config, compute = WORKLOADS[workload]
    build_store(WORKLOADS[workload], folder / "tokens")
    batches = sampler(WORKLOADS[workload], folder / "tokens")
    decoder, size = Decoder(model, compute), (config.train_batch_size, model.seq_len)
    profile = Profile(folder / "trace", FIRST, LAST)
    losses = train(decoder, config, batches, SEED, folder / "checkpoints", profile=profile)
    for metrics in losses:
        if metrics.step == LAST + 1:
            break
    losses.close()
    program = step.compiled(
        step.recipe(decoder, config, cross_entropy), meshes.make(decoder.compute.mesh), *size, False
    )
    (trace,) = (folder / "trace").rglob("*.trace.json.gz")
    spent = seconds(trace, instructions(program.as_text()))
    total, steps = spent.total(), LAST - FIRST + 1
    purposes = sorted({x.purpose for x in spent}, key=lambda p: -_of(spent, p))
    return {
        "workload": workload,
        "milliseconds_in_operations": round(total / steps * 1e3, 1),
        "temporary_memory_mib": program.memory_analysis().temp_size_in_bytes / 2**20,
        "parts": [
            {
                "purpose": purpose,
                "percent": round(100 * _of(spent, purpose) / total, 1),
                "percent_in_products": round(100 * spent[Instruction(purpose, True)] / total, 1),
            }
            for purpose in purposes
        ],
    }


def _of(spent: Counter[Instruction], purpose: str) -> float:
    return spent[Instruction(purpose, True)] + spent[Instruction(purpose, False)]


def table(found: list[dict[str, Any]]) -> str:
    lines = []
    for one in found:
        lines += [
            f"**{one['workload']}**: {one['milliseconds_in_operations']} ms a step in operations",
            "",
            "| what for | of the step | of that, matrix products |",
            "| --- | ---: | ---: |",
        ]
        lines += [
            f"| {part['purpose']} | {part['percent']} % | {part['percent_in_products']} % |"
            for part in one["parts"]
        ]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=["1M", "10M"])
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.child:
        found = measure(options.workloads[0], options.child)
        (options.child / "found.json").write_text(json.dumps(found))
        return
    from tests.bench.cpu import CORES, environment
    from tests.bench.workloads import WORKLOADS

    if unknown := set(options.workloads) - set(WORKLOADS):
        parser.error(f"there is no workload {', '.join(unknown)}, only {', '.join(WORKLOADS)}")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    found = []
    for workload in options.workloads:
        with tempfile.TemporaryDirectory() as folder:
            start = "from engine.training.heap import keep_heap; keep_heap(); "
            start += "from tests.bench.profile_step import main; main()"
            subprocess.run(
                [sys.executable, "-c", start, workload, "--child", folder],
                check=True,
                env=environment(Path(folder)),
            )
            found.append(json.loads((Path(folder) / "found.json").read_text()))
    options.into.mkdir(exist_ok=True)
    (options.into / "profile.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.into / "profile.md").write_text(table(found))
    print(table(found))


if __name__ == "__main__":
    main()
