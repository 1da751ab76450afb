"""Two, four and eight processes train what one trains, on meshes that use each axis alone and three
of them at a time, and any of them restores what any other has saved."""

from pathlib import Path

import many_processes
import pytest
from many_processes import MESHES, PROCESSES, ask, losses, model_of

from tests.integration.engine.test_mesh import FIFTIETH, FIRST

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("many") / "saved"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, list[float]]:
    """The losses of one device, of a mixture and of a dense model."""
    folder = tmp_path_factory.mktemp("alone")
    models = {True: many_processes.MIXTURE, False: many_processes.on_devices.MODEL}
    return {name: losses(folder / str(name), of, (1, 1, 1, 1)) for name, of in models.items()}


@pytest.fixture(scope="module")
def trained(saved: Path) -> dict[int, dict[str, list[float]]]:
    """The losses by number of processes and mesh."""
    saved.mkdir()
    return {count: ask(saved, count, "train")["losses"] for count in PROCESSES}


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("count", PROCESSES)
def test_so_many_processes_learn_what_one_device_learns(
    count: int,
    mesh: str,
    trained: dict[int, dict[str, list[float]]],
    alone: dict[bool, list[float]],
) -> None:
    found, one = trained[count][mesh], alone[model_of(mesh) is many_processes.MIXTURE]
    assert len(found) == len(one) == 50
    assert found[0] == pytest.approx(one[0], rel=FIRST)
    assert found[-1] == pytest.approx(one[-1], rel=FIFTIETH)


@pytest.mark.usefixtures("trained")
def test_a_checkpoint_of_any_is_restored_by_any_other_bit_for_bit(saved: Path) -> None:
    found: dict[str, set[str]] = {}
    for count in PROCESSES:
        for there, digests in ask(saved, count, "restore")["digests"].items():
            found.setdefault(there, set()).update(digests.values())
    assert len(found) == len(PROCESSES) * len(MESHES)
    assert all(len(digests) == 1 for digests in found.values()), found
