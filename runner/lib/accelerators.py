"""The GPUs and TPUs of this machine as the kernel shows them, and whether JAX can use them. Does
not import JAX, because that takes a second and takes the devices."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")


class Accelerator(NamedTuple):
    """A platform of JAX (not the CPU), and what it needs."""

    name: str
    vendor: str  # its PCI number
    told_by: str  # the file of a PCI device that distinguishes it from the vendor's other devices
    begins: tuple[str, ...]  # the beginning of that file
    nodes: tuple[str, ...]  # its device files, which the driver creates
    driver: str  # what to do without these
    packages: tuple[str, ...]  # JAX needs one of them
    install: str  # the command that installs one


KNOWN = {  # by JAX's name of the platform
    "gpu": Accelerator(
        name="an NVIDIA GPU",
        vendor="0x10de",
        told_by="class",
        begins=("0x03",),  # a display controller
        nodes=("dev/nvidia[0-9]*", "dev/dxg"),
        driver="Install NVIDIA's driver, or start the container with `--gpus all`",
        packages=("jax-cuda13-plugin", "jax-cuda12-plugin"),
        install="`pip install 'regatta[cuda]'`",
    ),
    "tpu": Accelerator(
        name="a TPU",
        vendor="0x1ae0",
        told_by="device",  # these numbers are in jax/_src/hardware_utils.py
        begins=("0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"),
        nodes=("dev/accel[0-9]*", "dev/vfio/[0-9]*"),
        driver="Start the container with `--privileged`",
        packages=("libtpu",),
        install="`pip install 'regatta[tpu]'`",
    ),
}


class Unusable(NamedTuple):
    """Why JAX cannot use a device of this machine, as a sentence, and what to do."""

    words: str
    mend: str


def present() -> list[str]:
    """The platforms of this machine's accelerators, by JAX's names."""
    return [platform for platform, one in KNOWN.items() if _is_here(one)]


def unusable(platform: str) -> Unusable | None:
    """Why JAX cannot use this machine's devices of a platform; None if it can, or if there are
    none."""
    if platform not in present():
        return None
    one = KNOWN[platform]
    installed = any(map(_is_installed, one.packages))
    if not _has_nodes(one):
        words = f"this machine has {one.name}, but programs cannot use it: its driver is missing."
        return Unusable(words, one.driver + (f"; then {one.install}" * (not installed)))
    if installed:
        return None
    return Unusable(f"this machine has {one.name}, but JAX cannot use it.", one.install)


def _is_here(one: Accelerator) -> bool:
    """Whether the kernel shows it: on PCI or, in a container without PCI, by its device files. In a
    virtual machine, devices of any kind are below /dev/vfio."""
    files = (node for node in one.nodes if "vfio" not in node)
    return any(any(ROOT.glob(node)) for node in files) or any(
        _read(folder / "vendor") == one.vendor
        and _read(folder / one.told_by).startswith(one.begins)
        for folder in ROOT.glob("sys/bus/pci/devices/*")
    )


def _has_nodes(one: Accelerator) -> bool:
    return any(any(ROOT.glob(node)) for node in one.nodes)


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
