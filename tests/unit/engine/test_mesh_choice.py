"""Which mesh is chosen where none is named, and what it sends."""

import pytest

from engine.config import memory, mesh_choice
from engine.config.hardware import Hardware
from engine.config.mesh_choice import Chosen
from engine.config.schema import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from tests.unit.engine.test_memory import EIGHT, GIB, LARGE, MODEL, SEQUENCES, TRAIN, changed

H100S = Hardware("gpu", 64, 80 * GIB, 8)
ONE = ComputeConfig()


def chosen(model: ModelConfig, train: TrainConfig, on: Hardware, may_remat: bool = True) -> Chosen:
    found = mesh_choice.choose(model, train, ONE, on, may_remat)
    assert found
    return found


def test_copies_of_the_model_are_kept_wherever_they_fit() -> None:
    for on in (Hardware("cpu", 8, None, 1), H100S._replace(devices=8)):
        found = chosen(MODEL, TRAIN, on)
        assert found == (ComputeConfig(mesh=MeshConfig(data=8)), found.why)
        assert found.why == "each device has a copy of the model, which fits"


def test_what_does_not_fit_is_cut_as_traffic_is_least() -> None:
    found = chosen(LARGE, SEQUENCES, H100S)
    assert found.compute.mesh == MeshConfig(fsdp=64)
    held = memory.footprint(LARGE, SEQUENCES, found.compute, "gpu")
    assert held.total <= memory.USABLE * 80 * GIB
    others = [
        found.compute.model_copy(update={"mesh": mesh})
        for mesh in (
            MeshConfig(fsdp=32, tensor=2),
            MeshConfig(data=2, fsdp=32),
            MeshConfig(data=64),
        )
    ]
    sends = [
        mesh_choice.traffic(LARGE, SEQUENCES, one, H100S).seconds
        for one in (found.compute, *others)
        if memory.footprint(LARGE, SEQUENCES, one, "gpu").total <= memory.USABLE * 80 * GIB
    ]
    assert len(sends) > 1
    assert sends[0] <= mesh_choice.ALIKE * min(sends)


def test_blocks_are_computed_again_only_where_nothing_else_fits() -> None:
    eight = H100S._replace(devices=8)
    again = chosen(LARGE, SEQUENCES, eight)
    assert again.compute.remat == "block"
    assert "nothing fits without `remat: block`" in again.why
    kept = chosen(LARGE, SEQUENCES, eight, may_remat=False)
    assert kept.compute.remat == "none"
    assert kept.why == "none of 10 fits, and this one needs the least memory"
    alone = chosen(changed(LARGE, num_layers=4), changed(SEQUENCES, train_batch_size=16),
                   H100S._replace(devices=1))  # fmt: skip
    assert alone.compute == changed(ONE, remat="block")


def test_a_batch_that_copies_cannot_share_is_spread_otherwise_or_refused() -> None:
    few = changed(SEQUENCES, train_batch_size=4)
    found = chosen(changed(LARGE, num_layers=1), few, H100S._replace(devices=8))
    assert found.compute.mesh.tensor > 1
    assert found.why.startswith("8 devices cannot share the batch as copies of the model")
    odd = Hardware("gpu", 7, 80 * GIB, 8)
    assert mesh_choice.choose(LARGE, SEQUENCES, ONE, odd, True) is None


def test_bytes_are_those_of_ring_algorithms() -> None:
    weights = sum(mesh_choice._weights(LARGE))
    rows = 64 * 4096 / 8  # tokens of a device

    def sent(**mesh: int) -> mesh_choice.Traffic:
        compute = changed(EIGHT, mesh=MeshConfig(**mesh))
        on = Hardware("gpu", MeshConfig(**mesh).devices, 80 * GIB, 8)
        return mesh_choice.traffic(LARGE, SEQUENCES, compute, on)

    assert sent(data=8).bytes == 2 * 4 * weights * 7 / 8
    assert sent(fsdp=8).bytes == (2 * 2 + 4) * weights * 7 / 8
    activations = 8 * rows * 4096 * 2  # of all rows, in bfloat16
    assert sent(tensor=8).bytes == 32 * 4 * 2 * activations * 7 / 8
    assert sent(data=1).bytes == 0
    # Within a host NVLink carries it; eight devices of a group on a host share eight adapters.
    assert sent(fsdp=8).seconds == pytest.approx(sent(fsdp=8).bytes / 450e9)
    assert sent(fsdp=16).seconds == pytest.approx(sent(fsdp=16).bytes / 400e9)
    beyond = sent(data=2, fsdp=8)
    assert beyond.seconds == pytest.approx(2 * 4 * weights / 8 / 2 / 50e9 + sent(fsdp=8).seconds)
