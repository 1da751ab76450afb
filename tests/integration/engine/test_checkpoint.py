"""Of `test_checkpoint.py` what needs a process, a socket or a compilation."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from engine.training import checkpoint
from engine.training.checkpoint import latest, restore, tree_sha256
from tests.unit.engine.test_checkpoint import PARAMS, REST
from tests.unit.engine.test_checkpoint import saved as saved  # a fixture


def test_a_checkpoint_restores_what_was_saved(saved: Path) -> None:
    assert latest(saved) == 11
    assert tree_sha256(restore(saved / "11", "params", PARAMS)) == tree_sha256(PARAMS)
    assert restore(saved / "11", "rest", REST)["count"] == 7


def test_a_save_does_not_see_what_is_done_to_the_arrays_afterwards(tmp_path: Path) -> None:
    big = {"a": jax.jit(lambda: jnp.ones((512, 1024)))()}
    spoil = jax.jit(lambda tree: jax.tree.map(lambda x: x * 0 - 1, tree), donate_argnums=0)
    with checkpoint.manager(tmp_path) as saver:
        checkpoint.save(saver, 1, big, REST)
        jax.block_until_ready(spoil(big))
    assert (np.asarray(restore(tmp_path / "1", "params", big)["a"]) == 1).all()
