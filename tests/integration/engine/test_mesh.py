"""A mesh changes where arrays lie and nothing else. Eight devices are simulated in child processes
(`on_devices.py`); one device is this process itself."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import on_devices
import pytest
from jax.sharding import PartitionSpec as P
from on_devices import CONFIG, MODEL, ask

from engine.config import memory
from engine.config.schema import GUARD_WINDOW, ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from engine.data.token_store import Batch
from engine.model import mesh
from engine.model.decoder import Decoder
from engine.training.train import train

# Sizes of data, fsdp and tensor.
EVERYDAY = ((8, 1, 1), (1, 8, 1), (2, 2, 2))
OTHERS = ((1, 1, 8), (4, 2, 1), (1, 4, 2), (2, 1, 4))

# Of the first loss, relative: the same parameters and batch, summed in another order.
FIRST = 1e-5

# Of the 50th loss, relative. Measured: to permute the rows of every batch on one device, which only
# changes the order of sums, moves this model's 50th loss by at most 1.7e-6 in 16 permutations, by
# 1.0e-6 in the median; the seven meshes, which also cut the sums inside matmuls, moved it by at
# most 3.5e-6. A rule that is wrong by one part in a thousand, say the learning rate, moves it by
# more than 1e-4.
FIFTIETH = 2e-5


@pytest.fixture(scope="module")
def one_device(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of 50 steps on one device."""
    folder = tmp_path_factory.mktemp("one")
    return [metrics.loss for metrics in on_devices.run(folder, (1, 1, 1))]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(EVERYDAY, id="everyday"),
        pytest.param(OTHERS, id="others", marks=pytest.mark.slow),
    ],
)
def eight(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What came of training on meshes of eight devices."""
    every = request.param
    folder = tmp_path_factory.mktemp("eight")
    [found] = ask(folder, meshes=every, batches=every, restore=every, relay=every, held=every)
    assert found["devices"] == 8
    return found


# ── What a mesh does not change ──────────────────────────────────────────────────────────────


def test_every_mesh_sees_the_batches_that_one_device_sees(eight: dict[str, Any]) -> None:
    assert set(eight["batches"].values()) == {on_devices.digest_of_batches((1, 1, 1))}


def test_every_mesh_begins_with_the_loss_of_one_device(
    eight: dict[str, Any], one_device: list[float]
) -> None:
    for sizes, losses in eight["losses"].items():
        assert losses[0] == pytest.approx(one_device[0], rel=FIRST), sizes


def test_every_mesh_learns_what_one_device_learns(
    eight: dict[str, Any], one_device: list[float]
) -> None:
    assert one_device[-1] < one_device[0] / 4, "so little was learned that it shows nothing"
    for sizes, losses in eight["losses"].items():
        assert len(losses) == 50
        assert losses[-1] == pytest.approx(one_device[-1], rel=FIFTIETH), sizes


def test_the_tolerance_is_above_the_noise_of_another_order_of_sums(
    one_device: list[float], tmp_path: Path
) -> None:
    noise = []
    for seed in range(3):
        losses = [
            m.loss for m in train(Decoder(MODEL), CONFIG, Permuted(seed), 3, tmp_path / f"{seed}")
        ]
        assert losses[0] == pytest.approx(one_device[0], rel=FIRST / 10)
        noise.append(abs(losses[-1] / one_device[-1] - 1))
    assert 0 < max(noise) < FIFTIETH / 5


def test_the_tolerance_is_below_what_a_small_mistake_changes(
    one_device: list[float], tmp_path: Path
) -> None:
    wrong = CONFIG.model_copy(update={"learning_rate": CONFIG.learning_rate * 1.001})
    *_, last = on_devices.run(tmp_path, (1, 1, 1), wrong)
    assert abs(last.loss / one_device[-1] - 1) > 5 * FIFTIETH


def test_a_checkpoint_of_any_mesh_is_restored_on_any_other_bit_for_bit(
    eight: dict[str, Any],
) -> None:
    for there, here in eight["restored"].items():
        assert len({tuple(digests) for digests in here.values()}) == 1, there
        assert len(here) == len(eight["losses"])


def test_a_run_goes_on_from_mesh_to_mesh(eight: dict[str, Any], one_device: list[float]) -> None:
    assert len(eight["relay"]) == 50
    assert eight["relay"][-1] == pytest.approx(one_device[-1], rel=FIFTIETH)


class Permuted:
    """The same batches with their rows in another order."""

    def __init__(self, seed: int) -> None:
        self._sampler, self._seed = on_devices.sampler(), seed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def rows(self, step: int, rows: np.ndarray) -> Batch:
        batch = self._sampler.rows(step, rows)
        order = np.random.Generator(np.random.Philox([self._seed, step])).permutation(len(rows))
        return Batch(batch.inputs_BS[order], batch.targets_BS[order], None)


# ── Where arrays lie ─────────────────────────────────────────────────────────────────────────


def test_no_device_holds_more_than_its_part_of_parameters_and_moments(
    eight: dict[str, Any],
) -> None:
    for sizes, held in eight["held"].items():
        config = on_devices.mesh_of([int(size) for size in sizes.split("x")])
        counted = memory.footprint(MODEL, CONFIG, ComputeConfig(mesh=config), "cpu")
        # Beside them there are only the optimizer's count of steps and the guard.
        small = 4 + 4 * (2 * GUARD_WINDOW + 2)
        assert held["here"] == counted.parameters + counted.moments + small, sizes
        gains = 3 * 4 * 5 * MODEL.hidden_dim + small
        cuts = config.fsdp * config.tensor
        assert held["here"] - gains == (held["whole"] - gains) / cuts, sizes


@pytest.fixture(scope="module")
def two_cubed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    [found] = ask(tmp_path_factory.mktemp("cuts"), cuts=(2, 2, 2), rows=[(2, 2, 2), (4, 1, 2)])
    return found


def test_moments_and_averages_lie_where_their_parameter_lies(two_cubed: dict[str, Any]) -> None:
    expected = {
        "embedding": P("tensor", "fsdp"),
        "lm_head": P("fsdp", "tensor"),
        "blocks/attention/q_proj": P(None, "fsdp", "tensor"),
        "blocks/attention/k_proj": P(None, "fsdp", "tensor"),
        "blocks/attention/v_proj": P(None, "fsdp", "tensor"),
        "blocks/attention/o_proj": P(None, "tensor", "fsdp"),
        "blocks/mlp/gate_proj": P(None, "fsdp", "tensor"),
        "blocks/mlp/up_proj": P(None, "fsdp", "tensor"),
        "blocks/mlp/down_proj": P(None, "tensor", "fsdp"),
        "blocks/attention_norm/gain": P(),
        "blocks/mlp_norm/gain": P(),
        "final_norm/gain": P(),
    }
    adamw, muonh = two_cubed["cuts"]
    assert adamw.keys() == muonh.keys() == expected.keys()
    for parameter, spec in expected.items():
        assert adamw[parameter] == 4 * [str(spec)], "parameter, two moments, average"
        moved_by_muon = parameter.endswith("_proj")
        assert muonh[parameter] == (3 if moved_by_muon else 4) * [str(spec)]


def test_each_device_has_the_rows_of_its_place(two_cubed: dict[str, Any]) -> None:
    whole = on_devices.sampler().rows(1, range(16)).inputs_BS
    for sizes, groups in (("2x2x2", 4), ("4x1x2", 4)):
        rows = two_cubed["rows"][sizes]
        assert rows["read"] == list(range(16))
        for device in range(8):
            group = device // 2  # two neighbours share rows: `tensor` is the last axis
            expected = whole[group * 16 // groups : (group + 1) * 16 // groups]
            assert rows["have"][str(device)] == expected.tolist()


def test_each_of_two_hosts_reads_only_the_rows_of_its_devices(tmp_path: Path) -> None:
    whole = on_devices.sampler().rows(1, range(16)).inputs_BS
    answers = ask(tmp_path, hosts=2, rows=[(2, 2, 2), (1, 2, 4), (1, 1, 8)])
    for sizes, read in (
        ("2x2x2", [range(8), range(8, 16)]),
        ("1x2x4", [range(8), range(8, 16)]),
        ("1x1x8", [range(16), range(16)]),
    ):
        for answer, expected in zip(answers, read, strict=True):
            assert answer["devices"] == 8
            assert answer["rows"][sizes]["read"] == list(expected)
            have = answer["rows"][sizes]["have"]
            assert len(have) == 4
            together = {tuple(row) for rows in have.values() for row in rows}
            assert together == {tuple(row) for row in whole[list(expected)].tolist()}


@pytest.mark.slow
def test_two_hosts_learn_what_one_device_learns(tmp_path: Path, one_device: list[float]) -> None:
    one, other = ask(tmp_path, hosts=2, meshes=[(2, 2, 2)])
    assert one["losses"] == other["losses"]
    [losses] = one["losses"].values()
    assert losses[0] == pytest.approx(one_device[0], rel=FIRST)
    assert losses[-1] == pytest.approx(one_device[-1], rel=FIFTIETH)


def test_a_leaf_follows_the_longest_path_that_is_a_parameters() -> None:
    on = mesh.make(MeshConfig())
    roles = {"inner": {"gain": "column"}, "gain": "gain"}
    x = jnp.zeros((3, 4, 4))
    found = mesh.shardings(on, roles, {"mu": {"inner": {"gain": x}, "gain": x}, "other": x})
    assert found["mu"]["inner"]["gain"].spec == P(None, "fsdp", "tensor")
    assert found["mu"]["gain"].spec == found["other"].spec == P()


def test_a_norm_for_each_layer_is_whole_everywhere() -> None:
    on = mesh.make(MeshConfig())
    found = mesh.shardings(on, {"w": "row"}, {"norms": {"w": jnp.zeros(3)}})
    assert found["norms"]["w"].spec == P()


def test_on_one_device_constrain_changes_nothing() -> None:
    x = jnp.ones((4, 2))
    assert mesh.constrain(x, "data", None) is x
    with jax.set_mesh(mesh.make(MeshConfig())):
        assert mesh.constrain(x, "data", None) is x


def test_the_platform_is_that_of_the_mesh() -> None:
    assert mesh.platform() == jax.default_backend() == "cpu"
    with jax.set_mesh(mesh.make(MeshConfig())):
        assert mesh.platform() == "cpu"


# ── What is refused ──────────────────────────────────────────────────────────────────────────


def test_a_mesh_of_more_devices_than_there_are_is_refused_in_words() -> None:
    with pytest.raises(
        mesh.BadMesh,
        match="data 2 × fsdp 1 × tensor 3 is a mesh of 6 and there is 1 device; make the product 1",
    ):
        mesh.make(MeshConfig(data=2, tensor=3))


def test_all_that_a_mesh_does_not_divide_is_said_at_once() -> None:
    model = ModelConfig(**{**MODEL.model_dump(), "vocab_size": 250})
    config = TrainConfig(**{**CONFIG.model_dump(), "train_batch_size": 12})
    with pytest.raises(mesh.BadMesh) as refused:
        mesh.check(model, config, MeshConfig(fsdp=8, tensor=4))
    assert "tensor 4 does not divide vocab_size 250" in str(refused.value)
    assert "train_batch_size 12 cannot be spread" in str(refused.value)


def test_training_refuses_a_mesh_before_it_compiles(tmp_path: Path) -> None:
    with pytest.raises(mesh.BadMesh, match="make the product 1"):
        next(on_devices.run(tmp_path, (2, 1, 1)))
    with pytest.raises(mesh.BadMesh, match="num_kv_heads 8; write tensor: 1 or 2 or 4 or 8"):
        next(on_devices.run(tmp_path, (1, 1, 16)))
