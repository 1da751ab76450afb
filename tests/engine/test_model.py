from collections.abc import Callable
from functools import partial

import jax
import numpy as np
import numpy_decoder
import pytest

from engine.config import ModelConfig
from engine.model import Params, init, logits, roles

TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]])


Fresh = Callable[[ModelConfig, int], Params]


def uneven(params: Params) -> Params:
    """The same with gains that differ from each other, so that a misplaced one is noticed."""
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda x: x + 0.1 * draw.standard_normal(x.shape, x.dtype), params)


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True, "num_kv_heads": 4}])
def test_the_decoder_is_the_one_written_in_numpy(
    tiny: ModelConfig, fresh: Fresh, changes: dict
) -> None:
    model = ModelConfig(**{**tiny.model_dump(), **changes})
    params = uneven(fresh(model, 1))
    ours = jax.jit(partial(logits, model))(params, TOKENS).reshape(2, 8, -1)
    for row, sequence in zip(ours, TOKENS, strict=True):
        theirs = numpy_decoder.logits(model, params, sequence)
        assert theirs.std() > 0.5
        np.testing.assert_allclose(row, theirs, rtol=1e-4, atol=1e-4)


def test_no_position_sees_a_later_one(tiny: ModelConfig, fresh: Fresh) -> None:
    params, changed = uneven(fresh(tiny, 1)), TOKENS.copy()
    changed[:, 5] += 1
    forward = jax.jit(partial(logits, tiny))
    before, after = (np.asarray(forward(params, t)).reshape(2, 8, -1) for t in (TOKENS, changed))
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert (before[:, 5:] != after[:, 5:]).any(axis=2).all()


def test_every_parameter_has_the_role_of_its_use(tiny: ModelConfig) -> None:
    declared = roles(tiny)
    params = jax.eval_shape(partial(init, tiny), jax.random.key(0))
    assert jax.tree.structure(declared) == jax.tree.structure(params)
    for path, role in jax.tree_util.tree_leaves_with_path(declared):
        name = path[-1].key
        expected = {"embedding": "embedding", "lm_head": "head"}.get(name)
        assert role == (expected or ("gain" if name.endswith("norm") else "matrix")), name


def test_weights_begin_as_stated(tiny: ModelConfig, fresh: Fresh) -> None:
    params = jax.tree.map(lambda x: x / 8, fresh(tiny, 0))
    blocks = params["blocks"]
    cut = 0.02 * 0.8796  # a normal cut at two deviations is this much narrower
    assert np.std(params["embedding"]) == pytest.approx(cut, rel=0.05)
    assert np.abs(params["embedding"]).max() <= 0.04
    assert np.std(blocks["gate_proj"]) == pytest.approx(cut, rel=0.1)
    for name in ("o_proj", "down_proj"):
        assert np.std(blocks[name]) == pytest.approx(cut / 2, rel=0.1)  # 1/√(2 · 2 layers)
    assert (blocks["attention_norm"] == 1).all()
    assert (blocks["q_proj"][0] != blocks["q_proj"][1]).all()
