"""Fixes what figures depend on besides the code (cores, threads and flags), and names it in a
receipt.

Equal parameters and moments, bit for bit, are guaranteed for attempts with equal receipts: the same
code, devices, versions, flags, options, number of threads, and number of available cores
(`affinity`; which cores does not matter). Call `settle` before JAX is imported, `receipt` after
it.
"""

import hashlib
import os
import platform
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

from runner.lib import accelerators
from runner.schema.devices import Kind

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "tensorstore", "numpy")
ACCELERATORS = (  # packages that a GPU or TPU adds
    *(f"{name}{cuda}" for cuda in (12, 13) for name in ("nvidia-cudnn-cu", "nvidia-cublas-cu")),
    *("nvidia-cublas", "jax-cuda12-plugin", "jax-cuda13-plugin", "libtpu"),
)
OPTIONS = (  # options of JAX that change figures
    "jax_default_matmul_precision",
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_disable_jit",
)
READ_BY_LIBRARIES = ("XLA_", "JAX_", "LIBTPU_", "NCCL_", "NVIDIA_TF32_", "CUDNN_", "CUBLAS_")
DETERMINISTIC = "--xla_gpu_exclude_nondeterministic_ops=true"
MOST_WORDS = 500  # per line
PEAK_FLOPS = "REGATTA_PEAK_FLOPS"  # `set_flags` stores the peak FLOP/s of one device here

_told: dict[str, str] = {}  # by a process that has already looked
_held: list[socket.socket] = []  # names of the cores that this process holds until it ends


class WrongDevice(Exception):
    """The machine is not what the plan requests."""


def settle(kind: Kind, count: int, *, taken: bool = False) -> None:
    """Fix cores, threads and flags for this process, on so many devices of this kind; `taken`:
    the parent has already taken its cores. Raises WrongDevice."""
    if not taken:
        take(kind, count)
    set_flags(kind)
    look(kind)


def set_flags(kind: Kind) -> None:
    """Set JAX's environment for such devices and deterministic results, before it is imported."""
    os.environ[PEAK_FLOPS] = repr(kind.peak_flops)
    if kind.platform == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
        # NumPy starts its threads at import, which may come before this process takes its cores.
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, int(kind.ray_cpus))))
    if kind.platform == "gpu":
        flags = os.environ.get("XLA_FLAGS", "").split()
        os.environ["XLA_FLAGS"] = " ".join(dict.fromkeys([*flags, DETERMINISTIC]))


def look(kind: Kind) -> None:
    """Initialise JAX's devices; after that this process can no longer be forked. Raises WrongDevice
    if there is none of the kind."""
    if kind.platform == "cpu":  # JAX finds it on first use
        return
    import jax

    if jax.default_backend() == "cpu":
        words = f"the plan asks for {kind.description}, and JAX finds a CPU only"
        found = accelerators.unusable(kind.platform)
        raise WrongDevice(f"{words}: {found.words} {found.mend}" if found else words)


def take(kind: Kind, count: int) -> None:
    """Take the cores that a plan on CPUs requests, for this process and everything it starts."""
    if kind.platform == "cpu":
        cores = _take_cores(int(kind.ray_cpus) * count)
        os.environ["NPROC"] = os.environ["OMP_NUM_THREADS"] = str(cores)  # XLA's pool reads NPROC


def _take_cores(wanted: int) -> int:
    """Pin this process to `wanted` cores that no other worker of this machine holds, if there are
    so many. Returns how many it may use."""
    allowed = sorted(os.sched_getaffinity(0))
    if wanted >= len(allowed):  # no choice
        return len(allowed)
    free = [core for core in allowed if len(_held) < wanted and _hold(core)]
    others = [core for core in allowed if core not in free]
    cores = (free + others)[:wanted]
    os.sched_setaffinity(0, cores)
    return len(cores)


def _hold(core: int) -> bool:
    """Bind a socket name: needs no file, and the kernel frees it when the holder ends."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0regatta-core-{core}")
    except OSError:
        name.close()
        return False
    _held.append(name)
    return True


def surroundings() -> dict[str, str]:
    """The part of a receipt that is the same for all steps on this machine with this code."""
    return {**_libraries(), "cpu": _cpu_model(), "code_sha256": _code_sha256()}


def believe(said: dict[str, str]) -> None:
    """Use these surroundings for this process and its forks."""
    _told.update(said)


def receipt(*, jax: bool = True) -> dict[str, str]:
    """What reproducibility depends on. Without `jax`, whose import takes a second, without its
    devices and options."""
    words = {
        **(_told or surroundings()),
        **(_of_jax() if jax else {}),
        "threads": os.environ.get("NPROC", ""),
        "affinity": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "environment": ", ".join(_environment()),
    }
    return {name: " ".join(said.split())[:MOST_WORDS] for name, said in words.items()}


def _of_jax() -> dict[str, str]:
    import jax
    from jax.extend import backend

    device = jax.devices()[0]
    return {
        "platform": device.platform,
        "driver": backend.get_backend().platform_version,
        "device": f"{jax.device_count()} × {device.device_kind}",
        "options": ", ".join(f"{name[4:]} {jax.config.values[name]}" for name in OPTIONS),
    }


@cache
def _libraries() -> dict[str, str]:
    """Versions of Python and of the libraries that affect figures."""
    # Not needed where the surroundings are given.
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in (*PACKAGES, *ACCELERATORS):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _environment() -> list[str]:
    """Environment variables that libraries read, besides XLA_FLAGS; without paths."""
    return [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith(READ_BY_LIBRARIES) and name != "XLA_FLAGS" and "/" not in value
    ]


@cache
def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(": ")[2] for line in lines if "model name" in line), platform.machine()
    )


def figures_code() -> list[Path]:
    """The lab's files that affect figures: the engine, its built-in steps and this one."""
    here = Path(__file__).parent
    folders = here.parents[1] / "engine", here / "builtin"
    return [*(x for of in folders for x in sorted(of.rglob("*.py"))), Path(__file__)]


def _code_sha256() -> str:
    """SHA-256 of these files."""
    whole = hashlib.sha256()
    for path in figures_code():
        whole.update(f"{path.name}\0{_sha256(path, path.stat().st_mtime_ns)}\n".encode())
    return whole.hexdigest()


@cache
def _sha256(path: Path, _: int) -> str:
    """SHA-256 of a file, cached until it changes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
