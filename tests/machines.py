"""Made-up machines: what the kernel shows of their accelerators, below a folder."""

from pathlib import Path


def on_pci(machine: Path, slot: str, vendor: str, kind: str, device: str) -> None:
    folder = machine / "sys/bus/pci/devices" / slot
    folder.mkdir(parents=True)
    for name, value in (("vendor", vendor), ("class", kind), ("device", device)):
        (folder / name).write_text(f"{value}\n")


def node(machine: Path, name: str) -> None:
    """A file by which programs use a device."""
    file = machine / "dev" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def a_gpu(machine: Path) -> None:
    """An NVIDIA H100 with its driver."""
    on_pci(machine, "0000:18:00.0", "0x10de", "0x030200", "0x2330")
    node(machine, "nvidia0")


def a_tpu(machine: Path) -> None:
    """A chip of a TPU v5e, in a virtual machine whose network card is Google's, too."""
    on_pci(machine, "0000:00:04.0", "0x1ae0", "0x020000", "0x0042")
    on_pci(machine, "0000:00:05.0", "0x1ae0", "0x088000", "0x0063")
    node(machine, "vfio/0")
