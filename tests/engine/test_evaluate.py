import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy_decoder
import pytest

from engine import checkpoint
from engine.checkpoint import BadCheckpoint
from engine.config import ModelConfig
from engine.data import WrongTokens, validation_windows
from engine.evaluate import bits_per_byte, load_params
from engine.model import Params
from engine.tokenize import Text


@pytest.fixture(scope="module")
def params(tiny: ModelConfig, fresh: Callable[[ModelConfig, int], Params]) -> Params:
    return fresh(tiny, 4)


def test_the_score_is_the_one_computed_in_numpy(
    tiny: ModelConfig, params: Params, text: Text
) -> None:
    split = np.frombuffer(text.validation, np.uint8)
    found = bits_per_byte(tiny, params, split, num_targets=100, batch_size=3)

    windows, _ = validation_windows(split, tiny.seq_len, 100)
    nats = numpy_decoder.losses(tiny, params, windows).reshape(-1)[:100]
    assert abs(nats.mean() - math.log(256)) > 0.1  # not what any model would score
    assert found.loss == pytest.approx(nats.mean(), rel=1e-5)
    assert found.bpb == pytest.approx(nats.mean() / math.log(2), rel=1e-5)
    assert found.targets == 100


def test_a_split_too_small_to_score_is_refused(tiny: ModelConfig, params: Params) -> None:
    with pytest.raises(WrongTokens, match="evaluate fewer tokens"):
        bits_per_byte(tiny, params, np.zeros(100, np.uint8), num_targets=100)


def test_parameters_load_into_their_own_model_only(
    tiny: ModelConfig, params: Params, tmp_path: Path
) -> None:
    with checkpoint.manager(tmp_path) as saver:
        checkpoint.save(saver, 5, params, {"count": np.array(1)})
    loaded = load_params(tmp_path / "5", tiny)
    assert checkpoint.params_sha256(loaded) == checkpoint.params_sha256(params)
    tied = ModelConfig(**{**tiny.model_dump(), "tie_word_embeddings": True})
    with pytest.raises(BadCheckpoint, match="lm_head is not expected"):
        load_params(tmp_path / "5", tied)
