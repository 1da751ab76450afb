"""All that needs an accelerator, in one go: `python -m tests.bench.gpu --seconds 540`, which is
`make bench-gpu`. It installs nothing and needs no network: it takes the Python that runs it with
what that has, names what is missing, and leaves that out. Jobs come in the order of their worth,
each in a process of its own; each result is written at once, and the next call goes on where this
one stopped. After a change of the engine, all is done again. Without an NVIDIA GPU all is tried in
a toy size.

MFU is of the dense bf16 peak, counted by `engine.config.flops`: attention as the full square, the
output matrix too, embeddings' look-up not. "causal" counts half of the square, as many do."""

import argparse
import hashlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "gpu"
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # FLOP/s, dense bf16, SXM models
GOALS = {"130m": 0.45, "350m": 0.50, "1.4b": 0.55}  # of the peak, at 1,024 tokens
FULL = {"vocab_size": 50_304, "tokens": 65_536, "skip": 10}  # 50,257 filled up to 128s
SMOKE = {"vocab_size": 512, "tokens": 256, "skip": 2}
STEPS = {"130m": 60, "350m": 40, "1.4b": 25, "smoke": 6}
PEERS = {"flash": "torch", "cudnn": "torch", "levanter": "levanter"}  # what they need
PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "tensorstore", "pydantic", "torch",
            "transformers", "marin-levanter")  # fmt: skip
ENGINE = ("jax", "flax", "optax", "orbax.checkpoint", "tensorstore", "pydantic")


class Job(NamedTuple):
    """One measurement. `about` is what `gpu_sides` reads; None for the tests."""

    name: str
    seconds: float  # that it may take; it is not begun with less
    needs: tuple[str, ...]
    about: dict[str, Any] | None


def jobs(smoke: bool, rounds: int) -> Iterator[Job]:
    """All jobs, the most worthwhile first."""
    sizes = ("smoke",) if smoke else tuple(GOALS)
    lengths = (32,) if smoke else (1024, 4096)
    job = SMOKE if smoke else FULL
    yield Job("tests", 150, (*ENGINE, "pytest"), None)
    for number in range(rounds):
        for length in lengths:
            for size in sizes:
                work = {**job, "size": size, "seq_len": length, "steps": STEPS[size]}
                for side in ("engine", *PEERS):
                    if smoke and side in ("cudnn", "levanter"):
                        continue
                    needs = (*ENGINE, *((PEERS[side],) if side in PEERS else ()))
                    name = f"{size}, {length}, {side}, {number + 1}"
                    yield Job(name, 100, needs, {**work, "side": side})
            if number == 0 and length == lengths[0]:
                yield from _others(smoke, job)


def _others(smoke: bool, job: dict[str, Any]) -> Iterator[Job]:
    small, length = ("smoke", 32) if smoke else ("130m", 1024)
    work = {**job, "size": small, "seq_len": length, "steps": STEPS[small]}
    yield Job(f"{small}, {length}, experts", 100, ENGINE, {**work, "side": "experts"})
    yield Job("kill and resume", 120, ENGINE, {**work, "side": "resume"})
    for side, needs in (("generation", ()), ("transformers", ("torch", "transformers"))):
        yield Job(f"{small}, {side}", 120, (*ENGINE, *needs), {**work, "side": side})


def do(job: Job, seconds: float, cache: Path) -> dict[str, Any]:
    """What it found, or {"failed": why}. Who runs out of memory works a step's batch through in
    twice the parts."""
    variables = {
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92",
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "HF_HUB_OFFLINE": "1",
    }
    ends = time.monotonic() + seconds
    alone = "--noconftest", "-o", "addopts=", "-p", "no:cacheprovider"  # Ray is not needed
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *alone, "tests/system/gpu"]
    parts = 1
    while True:
        if job.about:
            told = json.dumps({**job.about, "parts": parts, "cache": str(cache)})
            command = [sys.executable, "-m", "tests.bench.gpu_sides", told]
        child = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | variables, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            said, complained = child.communicate(timeout=max(1, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # its own children, too
            child.communicate()
            return {"failed": f"not done after {seconds:.0f} seconds"}
        lines = said.strip().splitlines() or [""]
        if not job.about:
            return (
                {"tests": lines[-1], "failed": lines[-20:]}
                if child.returncode
                else {"tests": lines[-1]}
            )
        try:
            found: dict[str, Any] = json.loads(lines[-1])
        except ValueError:
            return {"failed": f"ended with {child.returncode}: {complained[-500:]}"}
        if found.get("memory") and 2 * parts * job.about["seq_len"] <= job.about["tokens"]:
            parts *= 2
            continue
        return found | {"parts": parts}


# ── The machine ──────────────────────────────────────────────────────────────────────────────


def nvidia(query: str) -> str:
    """What nvidia-smi says of the first GPU; "" without one."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def code() -> str:
    """A digest of what is measured: the engine, the sides, and the versions of all packages."""
    files = [*(ROOT / "engine").rglob("*.py"), *(ROOT / "tests" / "bench").glob("*_sides.py")]
    digest = hashlib.sha256(json.dumps(versions()).encode())
    for path in sorted([*files, ROOT / "tests" / "bench" / "torch_model.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def missing(needs: tuple[str, ...]) -> list[str]:
    def there(name: str) -> bool:
        try:
            return find_spec(name) is not None
        except ModuleNotFoundError:
            return False

    return [name for name in needs if not there(name)]


# ── What it comes to ─────────────────────────────────────────────────────────────────────────


def table(results: dict[str, Any]) -> str:
    """The figures of training, in Markdown: medians over the rounds."""
    name = results["machine"]["gpu"].partition(",")[0]
    peak = next((flops for chip, flops in PEAKS.items() if chip in name), None)
    done: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for key, found in results["jobs"].items():
        if "tokens_per_second" in found and len(parts := key.split(", ")) >= 3:
            done.setdefault((parts[0], parts[1], parts[2]), []).append(found)
    lines = ["| model | sequence | side | tokens a second | MFU (causal) | goal | memory, GiB |",
             "| --- | --: | --- | --: | --: | --: | --: |"]  # fmt: skip
    for (size, length, side), turns in done.items():
        pace, last = statistics.median(turn["tokens_per_second"] for turn in turns), turns[-1]
        used = [
            f"{pace * last[key] / peak:.1%}" if peak else "–" for key in ("flops", "causal_flops")
        ]
        goal = GOALS.get(size) if (side, length) == ("engine", "1024") else None
        cells = (size, length, side, f"{pace:,.0f}", f"{used[0]} ({used[1]})",
                 f"{goal:.0%}" if goal else "", f"{last['peak_bytes'] / 2**30:.1f}")  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    for size, length in dict.fromkeys((size, length) for size, length, _ in done):
        paces = {
            side: statistics.median(turn["tokens_per_second"] for turn in turns)
            for (one, other, side), turns in done.items()
            if (one, other) == (size, length)
        }
        rivals = [pace for side, pace in paces.items() if side in ("flash", "cudnn")]
        if "engine" in paces and rivals:
            ratio = paces["engine"] / max(rivals)
            lines.append(f"\nAt {size} and {length} tokens: {ratio:.2f} times `torch.compile`.")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=540, help="that this call may take")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="results/gpu.json, on a CPU build/gpu/")
    given = parser.parse_args()
    ends, gpu = time.monotonic() + given.seconds, nvidia("name,driver_version,power.limit")
    smoke = not gpu
    out: Path = given.out or (BUILD if smoke else Path(__file__).parent / "results") / "gpu.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(out.read_text()) if out.exists() else {"machine": {"gpu": gpu}, "jobs": {}}
    if results["machine"]["gpu"].partition(",")[0] != gpu.partition(",")[0]:
        sys.exit(f"{out} is of {results['machine']['gpu']}, and this is {gpu}; name another --out")
    results["machine"] = {"gpu": gpu or "none", "kernel": platform.release(), **versions()}
    print(gpu or "no NVIDIA GPU: a toy size on the CPU, without cuDNN and Levanter", flush=True)
    told, left = code(), []
    (BUILD / "cache").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD / "cache") as cache:
        for job in jobs(smoke, given.rounds):
            before = results["jobs"].get(job.name)
            if before and before["code"] == told and "failed" not in before:
                continue
            if lacks := missing(job.needs):
                print(f"{job.name}: not measured, {', '.join(lacks)} is not here", flush=True)
                continue
            if (seconds := ends - time.monotonic()) < job.seconds:
                left.append(job.name)
                continue
            found = do(job, min(seconds, 2 * job.seconds), Path(cache))
            clocks = nvidia("clocks.sm,clocks.max.sm,temperature.gpu,power.draw")
            results["jobs"][job.name] = {**found, "clocks": clocks, "code": told}
            out.write_text(json.dumps(results, indent=1) + "\n")
            out.with_suffix(".md").write_text(table(results))
            print(f"{job.name}: {json.dumps(found)[:300]}", flush=True)
    print(table(results))
    if left:
        print(f"{len(left)} jobs are left for the next call: {', '.join(left[:8])} …")


if __name__ == "__main__":
    main()
