"""A machine's GPUs and TPUs, as the kernel shows them, and what JAX needs for them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.lib import accelerators
from runner.worker import environment
from tests.decided import KINDS
from tests.machines import a_gpu, a_tpu, node, on_pci


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that has nothing yet, where nothing for accelerators is installed."""
    monkeypatch.setattr(accelerators, "ROOT", tmp_path)
    monkeypatch.setattr(accelerators, "_is_installed", lambda _: False)
    return tmp_path


def install(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setattr(accelerators, "_is_installed", lambda name: name == package)


@pytest.mark.parametrize(
    ("make", "platform", "extra"), [(a_gpu, "gpu", "cuda"), (a_tpu, "tpu", "tpu")]
)
def test_a_device_that_jax_cannot_see_names_the_extra_that_installs_its_code(
    machine: Path, make: Callable[[Path], None], platform: str, extra: str
) -> None:
    make(machine)
    assert accelerators.present() == [platform]
    found = accelerators.unusable(platform)
    assert found
    assert found.words.endswith("but JAX cannot use it.")
    assert found.mend == f"`pip install 'regatta[{extra}]'`"


@pytest.mark.parametrize(
    ("make", "platform", "package"),
    [
        (a_gpu, "gpu", "jax-cuda13-plugin"),
        (a_gpu, "gpu", "jax-cuda12-plugin"),
        (a_tpu, "tpu", "libtpu"),
    ],
)
def test_no_advice_if_the_extra_is_installed(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
    platform: str,
    package: str,
) -> None:
    make(machine)
    install(monkeypatch, package)
    assert accelerators.unusable(platform) is None


def test_a_gpu_without_a_driver_wants_that_first(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_pci(machine, "0000:18:00.0", "0x10de", "0x030200", "0x2330")
    found = accelerators.unusable("gpu")
    assert found
    assert "its driver is missing" in found.words
    assert found.mend.endswith("; then `pip install 'regatta[cuda]'`")
    install(monkeypatch, "jax-cuda13-plugin")
    found = accelerators.unusable("gpu")
    assert found
    assert "pip install" not in found.mend


def test_a_container_that_sees_no_pci_still_sees_its_gpu(machine: Path) -> None:
    node(machine, "nvidia3")
    assert accelerators.present() == ["gpu"]


def test_a_vendors_other_devices_are_no_accelerators(machine: Path) -> None:
    on_pci(machine, "0000:18:00.1", "0x10de", "0x040300", "0x22bd")  # a GPU's sound
    on_pci(machine, "0000:00:04.0", "0x1ae0", "0x020000", "0x0042")  # Google's network card
    on_pci(machine, "0000:00:02.0", "0x8086", "0x030000", "0x3e92")  # another vendor's display
    node(machine, "vfio/0")
    assert accelerators.present() == []
    assert accelerators.unusable("gpu") is None
    assert accelerators.unusable("cpu") is None


def test_a_worker_that_finds_a_cpu_only_names_the_extra(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    with pytest.raises(environment.WrongDevice, match=r"JAX finds a CPU only$"):
        environment.look(KINDS["h100"])
    a_gpu(machine)
    with pytest.raises(environment.WrongDevice, match=r"pip install 'regatta\[cuda\]'"):
        environment.look(KINDS["h100"])
