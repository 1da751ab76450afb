"""The figure that boards compare: bits per byte on the validation split. It reads a checkpoint's
parameters as arrays, and only if they have the model's names, shapes and dtypes: the checkpoint is
a claim by the job that wrote it."""

import math
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from engine import checkpoint
from engine import model as decoder
from engine.config import ModelConfig
from engine.data import validation_windows
from engine.loss import cross_entropy


class Evaluation(NamedTuple):
    bpb: float  # bits per byte; a byte tokenizer's token is one byte
    loss: float  # nats per token
    targets: int  # how many tokens were scored


def bits_per_byte(
    model: ModelConfig,
    params: decoder.Params,
    validation: np.ndarray,
    num_targets: int,
    batch_size: int = 16,
) -> Evaluation:
    """Score `num_targets` targets of the split `validation` ((N,) uint8) in windows of the model's
    seq_len, spread evenly, each without context. `batch_size` changes speed only, up to rounding:
    the sum over tokens is in float64. Raises WrongTokens if the split is too small."""
    windows, mask = validation_windows(validation, model.seq_len, num_targets)
    total = 0.0
    for start in range(0, len(windows), batch_size):
        part, scored = windows[start : start + batch_size], mask[start : start + batch_size]
        missing = batch_size - len(part)  # fill up, so that all batches share one compilation
        losses_BS = _losses(model, params, np.pad(part, ((0, missing), (0, 0))))
        total += float(np.asarray(losses_BS, np.float64)[: len(part)][scored].sum())
    loss = total / num_targets
    return Evaluation(bpb=loss / math.log(2), loss=loss, targets=num_targets)


def load_params(path: Path, model: ModelConfig) -> decoder.Params:
    """The parameters in the checkpoint `<folder>/<step>`. Raises BadCheckpoint if it cannot be
    read or is of another model."""
    like = jax.eval_shape(partial(decoder.init, model), jax.random.key(0))
    return checkpoint.restore(path, "params", like)


@partial(jax.jit, static_argnames="model")
def _losses(model: ModelConfig, params: decoder.Params, windows_BW: jax.Array) -> jax.Array:
    targets_BS = windows_BW[:, 1:]
    logits_TV = decoder.logits(model, params, windows_BW[:, :-1])
    return cross_entropy(logits_TV, targets_BS.reshape(-1)).reshape(targets_BS.shape)
