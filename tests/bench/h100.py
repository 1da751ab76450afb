"""Speed on one NVIDIA H100, the engine beside `torch.compile` and Levanter. NOT YET RUN ON AN H100
(as of 2026-11-21): there was none. `python tests/bench/h100.py` on a machine with Python 3.11 and
the driver makes its environments and measures; `--smoke` tries the script on a CPU.

What the sides do is in `h100_sides.py`. They take turns in rounds, each turn in a fresh process;
who runs out of memory works a step's batch through in twice the parts from then on. MFU is of
989 TFLOP/s, dense bf16 on the SXM model, counted by `engine.config.flops`: attention as the full
square, the output matrix too, embeddings' look-up not. "causal" counts half of the square, as many
do."""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "h100"
PEAK = 989e12
GOALS = {"130m": 0.45, "350m": 0.50}  # of PEAK
LEAST_DRIVER = 580  # CUDA 13
FULL = {"vocab_size": 50_304, "tokens": 65_536, "steps": 60, "skip": 10}  # 50,257 filled up to 128s
SMOKE = {"vocab_size": 512, "tokens": 256, "steps": 6, "skip": 2}
ENVIRONMENTS = {"engine": "engine", "flash": "torch", "cudnn": "torch", "levanter": "levanter"}
# For pip, one call after the other. Levanter's releases are published as marin-levanter now; this
# one forgets to ask for gitpython. Without Transformer Engine, which is built on the spot and needs
# nvcc, it still runs, with slower attention.
PACKAGES = {
    "engine": ["--require-hashes -r requirements.lock", "jax[cuda13]"],
    "torch": ["torch==2.13.0 numpy pydantic"],
    "levanter": ["--pre marin-levanter[gpu] gitpython setuptools wheel pybind11 flax"],
}
BETTER = {"levanter": "--no-build-isolation transformer-engine[core_cu13,jax]"}


def gpu() -> str:
    """The first GPU: "name, driver, limit of power", or that there is none."""
    query = "--query-gpu=name,driver_version,power.limit"
    command = ["nvidia-smi", "--id=0", query, "--format=csv,noheader"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no NVIDIA GPU"


def environment(name: str) -> Path | None:
    """The Python of a virtual environment, made if there is none. None if that failed."""
    python, ready = BUILD / name / "bin" / "python", BUILD / name / "ready"
    if ready.exists():
        return python
    print(f"installing {name} …", flush=True)
    subprocess.run([sys.executable, "-m", "venv", BUILD / name], check=True)
    pip = [python, "-m", "pip", "install", "--quiet"]
    for packages in PACKAGES[name]:
        if subprocess.run([*pip, *packages.split()], cwd=ROOT).returncode:
            print(f"{name} cannot be installed (pip's words are above); going on without it")
            return None
    if name in BETTER and subprocess.run([*pip, *BETTER[name].split()]).returncode:
        print(f"{BETTER[name]} cannot be installed; {name} runs without it")
    ready.touch()
    return python


def turn(python: Path, job: dict[str, Any]) -> dict[str, Any]:
    """One process. What it reports, or {"failed": why}."""
    variables = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "0",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92",
        "TORCHINDUCTOR_CACHE_DIR": job["cache"],
    }
    command = [python, "-m", "tests.bench.h100_sides", json.dumps(job)]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True
    )
    try:
        return json.loads(ended.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        why = f"ended with {ended.returncode}: {ended.stderr[-500:]}"
        return {"failed": why, "memory": False}


def measure(pythons: dict[str, Path], works: list[tuple[str, int]], rounds: int, job: Any) -> Any:
    """{(size, seq_len): {side: its turns}}."""
    turns: dict[Any, Any] = {work: {side: [] for side in pythons} for work in works}
    parts = dict.fromkeys(itertools.product(works, pythons), 1)
    sides = list(pythons)
    for number, work in itertools.product(range(rounds), works):
        size, seq_len = work
        for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
            asked = {**job, "side": side, "size": size, "seq_len": seq_len}
            found = turn(pythons[side], {**asked, "parts": parts[work, side]})
            while found.get("memory") and 2 * parts[work, side] * seq_len <= job["tokens"]:
                parts[work, side] *= 2
                turns[work][side].clear()
                found = turn(pythons[side], {**asked, "parts": parts[work, side]})
            turns[work][side].append(found | {"parts": parts[work, side]})
            said = found.get("failed") or f"{found['tokens_per_second']:,.0f} tokens/s"
            print(f"round {number + 1}, {size}, {seq_len}, {side}: {said}", flush=True)
    return turns


def summary(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """A side's figures on one model; only `failed` where a turn failed."""
    for found in turns:
        if "failed" in found:
            return {"failed": found["failed"]}
    paces = [found["tokens_per_second"] for found in turns]
    last = turns[-1]
    return {
        **{name: last[name] for name in ("version", "attention", "parameters", "parts", "loss")},
        "median": statistics.median(paces),
        "min": min(paces),
        "mfu": statistics.median(paces) * last["flops"] / PEAK,
        "causal_mfu": statistics.median(paces) * last["causal_flops"] / PEAK,
        "compile_seconds": turns[0]["compile_seconds"],
        "compile_seconds_cached": last["compile_seconds"],
        "peak_gib": max(found["peak_bytes"] for found in turns) / 2**30,
    }


def verdict(size: str, sides: dict[str, Any]) -> list[str]:
    """Whether the goals were reached, in sentences."""
    ours = sides["engine"]
    if "failed" in ours:
        return ["the engine failed, so no goal is reached"]
    reached = "reached" if ours["mfu"] >= GOALS[size] else "NOT reached"
    words = [f"goal of {GOALS[size]:.0%}: {reached} with {ours['mfu']:.1%}"]
    for name, rivals in {"torch.compile": ("flash", "cudnn"), "levanter": ("levanter",)}.items():
        paces = [s["median"] for r in rivals if "median" in (s := sides.get(r, {}))]
        lead = ours["median"] / max(paces) if paces else None
        led = (
            f"{'reached' if lead > 1 else 'NOT reached'} ({lead:.2f}×)" if lead else "not measured"
        )
        words.append(f"lead over {name}: {led}")
    return words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="5, or 2 for --smoke")
    parser.add_argument("--smoke", action="store_true", help="tiny, on a CPU, without Levanter")
    parser.add_argument(
        "--python", type=Path, default=sys.executable, help="that --smoke runs with"
    )
    parser.add_argument("--out", type=Path, default=BUILD / "results.json")
    given = parser.parse_args()
    device = gpu()
    print(f"found: {device}", flush=True)
    if given.smoke:
        print("smoke: tiny shapes; Levanter and cuDNN are left out, and no goal is judged")
        pythons = dict.fromkeys(("engine", "flash"), given.python.absolute())
        works, rounds = [("smoke", 32)], given.rounds or 2
    else:
        if "NVIDIA H100" not in device:
            sys.exit("this compares on an NVIDIA H100; elsewhere try the script with --smoke")
        if int(device.split(", ")[1].split(".")[0]) < LEAST_DRIVER:
            sys.exit(f"CUDA 13 needs a driver of at least {LEAST_DRIVER}; update it")
        if "HBM3" not in device:
            print("the peak of 989 TFLOP/s is the SXM model's; this one has less")
        made = {name: environment(name) for name in PACKAGES}
        pythons = {side: python for side, name in ENVIRONMENTS.items() if (python := made[name])}
        works, rounds = [(s, length) for s in GOALS for length in (1024, 4096)], given.rounds or 5
    if "engine" not in pythons:
        sys.exit("without the engine there is nothing to compare")
    with tempfile.TemporaryDirectory() as cache:  # empty: the first round compiles everything
        job = {**(SMOKE if given.smoke else FULL), "cache": cache}
        turns = measure(pythons, works, rounds, job)
    report: dict[str, Any] = {"device": device, "rounds": rounds, "peak": PEAK, "job": job}
    for (size, seq_len), sides in turns.items():
        found = {side: summary(of_side) for side, of_side in sides.items()}
        words = [] if given.smoke else verdict(size, found)
        report[f"{size}, {seq_len}"] = {"summary": found, "verdict": words, "turns": sides}
        print(f"\n{size}, sequence {seq_len}, {job['tokens']:,} tokens a step; median (least)")
        for side, s in found.items():
            print(f"  {side:9}", s.get("failed") or LINE.format(**s))
        for sentence in words:
            print(f"  {sentence}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nall of it is in {given.out}")


LINE = (
    "{median:,.0f} ({min:,.0f}) tokens/s, MFU {mfu:.1%} (causal {causal_mfu:.1%}), "
    "compile {compile_seconds:.0f} s (cached {compile_seconds_cached:.0f} s), {peak_gib:.1f} GiB, "
    "loss {loss:.3f}, {parts} parts, {parameters:,} parameters, {attention}, {version}"
)

if __name__ == "__main__":
    main()
