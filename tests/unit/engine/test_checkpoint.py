from hashlib import sha256
from pathlib import Path

import jax
import numpy as np
import pytest

from engine.training import checkpoint
from engine.training.checkpoint import BadCheckpoint, latest, restore, tree_sha256

PARAMS = {"b": {"c": np.arange(6, dtype=np.float32).reshape(2, 3)}, "a": np.ones(2, np.float32)}
REST = {"count": np.array(7, np.int32)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    with checkpoint.manager(folder) as saver:
        for step in (2, 10, 9, 11):
            checkpoint.save(saver, step, PARAMS, REST)
    return folder


def test_the_newest_two_stay(saved: Path) -> None:
    assert sorted(path.name for path in saved.iterdir()) == ["10", "11"]


def test_multiples_of_keep_every_stay_too(tmp_path: Path) -> None:
    with checkpoint.manager(tmp_path, keep=1, keep_every=[10, None]) as saver:
        for step in (5, 10, 15, 20, 25):
            checkpoint.save(saver, step, PARAMS, REST)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "20", "25"]


def test_without_a_save_there_is_no_newest_checkpoint(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    assert latest(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"a": PARAMS["a"]}, "b/c is not expected"),
        ({**PARAMS, "d": PARAMS["a"]}, "d is missing"),
        ({**PARAMS, "a": np.ones(3, np.float32)}, r"a is \(2,\) float32 and not \(3,\) float32"),
        ({**PARAMS, "a": np.ones(2, np.int32)}, r"a is \(2,\) float32 and not \(2,\) int32"),
    ],
)
def test_restoring_another_tree_is_refused_with_a_reason(
    saved: Path, other: dict, sentence: str
) -> None:
    with pytest.raises(BadCheckpoint, match=f"of another model: {sentence}"):
        restore(saved / "11", "params", other)


def test_a_missing_or_damaged_checkpoint_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match="has no params"):
        restore(saved / "3", "params", PARAMS)
    (tmp_path / "4/params").mkdir(parents=True)
    with pytest.raises(BadCheckpoint, match="cannot be read"):
        restore(tmp_path / "4", "params", PARAMS)


def test_a_lack_of_memory_is_not_taken_for_a_damaged_checkpoint(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(checkpoint.ocp.StandardCheckpointHandler, "restore", full)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        restore(saved / "11", "params", PARAMS)


def test_the_digest_is_over_path_dtype_shape_and_bytes() -> None:
    a, c = PARAMS["a"], PARAMS["b"]["c"]
    trees = [
        PARAMS,
        {"b": {"d": c}, "a": a},
        {"b": {"c": c.view(np.int32)}, "a": a},
        {"b": {"c": c.reshape(3, 2)}, "a": a},
        {"b": {"c": c + 1}, "a": a},
    ]
    assert len({tree_sha256(tree) for tree in trees}) == len(trees)
    listed = b"a- float32 (2,)\n" + a.tobytes() + b"a/z float32 (2, 3)\n" + c.tobytes()
    assert tree_sha256({"a": {"z": c}, "a-": a}) == sha256(listed).hexdigest()
    assert tree_sha256({"a": a, "b": {"c": np.asfortranarray(c)}}) == tree_sha256(PARAMS)
