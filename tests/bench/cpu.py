"""Tokens per second on a CPU, the engine in its normal training loop beside PyTorch: `python -m
tests.bench.cpu`. Each side is a process of its own; they wait while one of them trains, and take
turns in rounds. All start from the same parameters, read the same batches and use the same two
cores, so their losses have to agree too. Writes `results/cpu.json`, `cpu.md` and the curves."""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.bench import charts
from tests.bench.sides import SIDES, Side
from tests.bench.workloads import WORKLOADS

RESULTS = Path(__file__).parent / "results"
STEPS = {"1M": 16, "10M": 5}  # in a round
CORES = 2
REST = 0.5  # seconds between two turns, in which idle threads of the last one go to sleep
PATIENCE = 30.0  # seconds that a turn waits at most until the machine is quiet
QUIET = 0.05  # of a core: a turn in which other processes took more is taken again
AGAIN = 3  # times at most
GOALS = {"eager": 1.25, "compile": 1.1}  # how much faster the engine is to be than PyTorch
SAME = 0.02  # of a loss, by which two sides may differ at any step


class Runner:
    """A side's process."""

    def __init__(self, side: Side, workload: str, folder: Path, free_mkl: Path | None) -> None:
        command = [sys.executable, "-m", "tests.bench.sides", side.name, workload, str(folder)]
        cache = "inductor-" + "-".join(re.findall("[a-zA-Z]+", side.name))
        own = {"TORCHINDUCTOR_CACHE_DIR": str(folder / cache)}
        if side.free_mkl:
            own["LD_PRELOAD"] = str(free_mkl)
        self._process = subprocess.Popen(
            command,
            env=environment(folder) | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.side = side
        self.ready = self._answer()
        self.losses: list[float] = self.ready.pop("losses")

    def turn(self, steps: int) -> tuple[float, float]:
        """Train so many steps. Returns their seconds, and how much of a core other processes
        took meanwhile."""
        assert self._process.stdin
        busy, mine, began = _busy(), self._cpu_seconds(), time.perf_counter()
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        answer = self._answer()
        wall = time.perf_counter() - began
        others = _busy() - busy - (self._cpu_seconds() - mine)
        self.losses += answer["losses"]
        return answer["seconds"], max(0.0, others / wall)

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.side.name} ended; its words are above")
        return json.loads(line)

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(workload: str, sides: list[Side], rounds: int, folder: Path) -> dict[str, Any]:
    """Every round of every side, as it goes into the results."""
    folder.mkdir(parents=True)
    prepare = [sys.executable, "-m", "tests.bench.sides", "prepare", workload, str(folder)]
    subprocess.run(prepare, check=True, env=environment(folder))
    free = free_mkl(folder) if any(side.free_mkl for side in sides) else None
    config = WORKLOADS[workload].train
    tokens = STEPS[workload] * config.train_batch_size * WORKLOADS[workload].model.seq_len
    found: dict[str, Any] = {
        side.name: {"tokens_per_second": [], "others": [], "start": []} for side in sides
    }
    with ExitStack() as stack:
        runners = []
        for side in sides:
            runner = Runner(side, workload, folder, free)
            stack.callback(runner.end)
            runners.append(runner)
            found[side.name].update(runner.ready)
            print(f"{workload} {side.name}: first step {runner.ready['first_step_seconds']:.1f} s")
        for number in range(rounds):
            shift = number % len(runners)
            for runner in runners[shift:] + runners[:shift]:
                seconds, others = quiet_turn(runner, STEPS[workload])
                found[runner.side.name]["tokens_per_second"].append(round(tokens / seconds, 1))
                found[runner.side.name]["others"].append(round(others, 3))
            print(
                f"{workload} round {number + 1}: "
                + ", ".join(f"{found[s.name]['tokens_per_second'][-1]:,.0f}" for s in sides),
                flush=True,
            )
        for runner in runners:
            found[runner.side.name]["losses"] = [round(x, 6) for x in runner.losses]
            agree(runner, runners[0])
    return {
        "model": WORKLOADS[workload].model.model_dump(),
        "train": config.model_dump(),
        "steps_in_a_round": STEPS[workload],
        "sides": found,
    }


def quiet_turn(runner: Runner, steps: int) -> tuple[float, float]:
    """A turn in which nobody else computed, or the quietest of so many."""
    turns = []
    for _ in range(1 + AGAIN):
        wait_for_quiet()
        turns.append(runner.turn(steps))
        if turns[-1][1] < QUIET:
            break
    return min(turns, key=lambda turn: turn[1])


def agree(one: Runner, other: Runner) -> None:
    """Ends the comparison if two sides do not learn the same: speed at another loss is no speed."""
    for step, (a, b) in enumerate(zip(one.losses, other.losses, strict=False), start=1):
        if abs(a - b) > SAME * b:
            raise SystemExit(
                f"at step {step} {one.side.name} has loss {a:.4f} and {other.side.name} {b:.4f}: "
                "they do not train the same model, so their speeds are not compared"
            )


def environment(folder: Path) -> dict[str, str]:
    """Of a process that computes: so many threads, and a cache of its own."""
    return {
        **os.environ,
        "NPROC": str(CORES),  # XLA's pool reads it
        "OMP_NUM_THREADS": str(CORES),
        "JAX_PLATFORMS": "cpu",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }


def wait_for_quiet() -> None:
    """Rest, and go on resting while other processes work, but not for ever."""
    deadline = time.monotonic() + PATIENCE
    while True:
        before = _busy()
        time.sleep(REST)
        if (_busy() - before) / REST < 2 * QUIET or time.monotonic() > deadline:
            return


def free_mkl(folder: Path) -> Path | None:
    """A library that answers MKL's question whether this is an Intel CPU with yes.

    The MKL inside PyTorch's wheels takes its AVX-512 code on Intel's CPUs only, and on an AMD CPU
    that has AVX-512 multiplies at less than half the speed. Nobody installs PyTorch so; it is here
    because a lead that only comes from that would be no merit.
    """
    source, library = folder / "intel.c", folder / "intel.so"
    source.write_text("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "there is no C compiler, which torch.compile needs as well; install gcc"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def table(results: dict[str, Any]) -> str:
    """The figures in Markdown: tokens per second, and how much faster the engine is."""
    lines = []
    for workload, found in results["workloads"].items():
        engine = found["sides"]["engine"]["tokens_per_second"]
        common = min(len(side["losses"]) for side in found["sides"].values())
        lines += [
            f"**{workload}**: tokens per second over {len(engine)} rounds",
            "",
            "| side | least | median | engine is faster by (median) | first step | "
            f"loss at step {common} |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
        ]
        for name, side in found["sides"].items():
            paces = side["tokens_per_second"]
            ratio = statistics.median(engine) / statistics.median(paces)
            lines.append(
                f"| {name} | {min(paces):,.0f} | {statistics.median(paces):,.0f} | {ratio:.2f}× | "
                f"{side['first_step_seconds']:.1f} s | {side['losses'][common - 1]:.4f} |"
            )
        lines.append("")
    return "\n".join(lines)


def missed(results: dict[str, Any]) -> list[str]:
    """Which goals are not reached, in sentences. PyTorch with MKL freed is no goal."""
    found = []
    for workload, measured in results["workloads"].items():
        paces = {x: statistics.median(y["tokens_per_second"]) for x, y in measured["sides"].items()}
        for name, pace in paces.items():
            goal = GOALS.get(SIDES[name].who)
            if goal and not SIDES[name].free_mkl and (ratio := paces["engine"] / pace) < goal:
                found.append(f"{workload}: {ratio:.2f}× of {name}, and the goal is {goal}×")
    return found


def machine(*packages: str) -> dict[str, Any]:
    """What the figures depend on, with the versions of these packages."""
    cpu = Path("/proc/cpuinfo").read_text().splitlines()
    about = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in cpu)}
    return {
        "cpu": f"{about['model name']} (family {about['cpu family']}, model {about['model']})",
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def _busy() -> float:
    """CPU seconds that this machine has spent working."""
    fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:8]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workload", choices=WORKLOADS, action="append")
    parser.add_argument("--side", choices=SIDES, action="append")
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    sides = [side for name, side in SIDES.items() if name in (options.side or SIDES)]
    if sides[0].who != "engine":
        parser.error("the engine is what all sides are compared with: add --side engine")
    if "AuthenticAMD" not in Path("/proc/cpuinfo").read_text():
        sides = [side for side in sides if not side.free_mkl]
    results: dict[str, Any] = {
        "machine": machine("jax", "jaxlib", "torch"),
        "threads": CORES,
        "workloads": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        for name in options.workload or WORKLOADS:
            found = measure(name, sides, options.rounds, Path(folder) / name)
            results["workloads"][name] = found
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "cpu.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "cpu.md").write_text(table(results))
    for name, found in results["workloads"].items():
        chart = charts.losses(name, found)
        (options.into / f"cpu-{name}.svg").write_text(charts.svg(chart))
        (options.into / f"cpu-{name}.png").write_bytes(charts.png(chart))
    print(table(results))
    if found := missed(results):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
