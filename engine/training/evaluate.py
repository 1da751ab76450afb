"""The score that leaderboards compare: bits per byte on the validation split. The input is only a
function from tokens to logits, so our models, models in another framework and own code are scored
alike. The logits are normalised here. The first batch tests whether the second half of a window
changes the logits of its first half; a function that looks ahead only elsewhere is not detected.
At sampled positions, on random tokens too, the probabilities that the score is made of sum to 1.

Parameters of our models come from a checkpoint. They are read as arrays, and only if they have the
model's names, shapes and dtypes: the checkpoint is a claim of the job that wrote it."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from engine.data.scored_windows import validation_windows
from engine.data.token_store import TokenStore
from engine.model.decoder import Model, Params
from engine.model.log_likelihood import nats_of_targets, sum_to_one

MOST_LOGITS = 2**26  # at a time; 256 MB in float32
MAX_FORESIGHT = 0.01  # nats by which rounding may change a token's loss
MAX_MEAN_FORESIGHT = 1e-5  # nats, on average over tokens, with signs
SAMPLED = 8  # positions of a batch whose probabilities are summed

LogitsOf = Callable[[np.ndarray], Any]  # tokens (B, S) int32 → logits (B, S, V), any array


NO_PROBABILITIES = (
    "the logits give no probabilities: one is not a number or infinite, they do not sum to 1, or "
    "what came was given none at all"
)


class CannotScore(Exception):
    """The function's outputs are no predictions of these tokens; the message says why."""


class Evaluation(NamedTuple):
    bpb: float  # bits per byte of the scored tokens' text
    loss: float  # nats per token
    targets: int  # number of scored tokens
    bytes: int  # number of bytes of their text
    windows: int = 0  # number of windows with a scored token
    standard_error: float | None = None  # of bpb, over windows; None for fewer than two


def score(
    logits_of: LogitsOf,
    windows_NW: np.ndarray,
    scored_NS: np.ndarray,
    bytes_NS: np.ndarray | None = None,
    batch_size: int = 16,
    seen: Callable[[int, Any], object] = lambda *_: None,
    *,
    exact: bool = False,
    random_too: bool = True,
) -> Evaluation:
    """Score windows of W = S + 1 tokens: position i of the logits for a window's first S tokens
    predicts its token i + 1, and counts if `scored_NS` is true.

    `bytes_NS` is how many bytes of text each target represents; None: a token is a byte.
    `logits_of` always gets `batch_size` windows; the last batch is padded with zeros. The batch
    size changes speed only, up to rounding: the sum over tokens is in float64. `seen` is called for
    each batch with its first window's number and its logits. `exact`: equal programs give equal
    bits where it computes, as on a CPU, so that what comes later may change no bit.

    The figures are nan if a logit is nan or +inf, or if at a sampled position, unless `random_too`
    is false on random tokens too, the probabilities do not sum to 1. Raises CannotScore.
    """
    inputs_NS, targets_NS = windows_NW[:, :-1], windows_NW[:, 1:]
    nats, nats_N, normalised = 0.0, np.zeros(len(windows_NW)), True
    rng = np.random.default_rng()
    for start in range(0, len(windows_NW), batch_size):
        rows = slice(start, start + batch_size)
        fill = ((0, batch_size - len(inputs_NS[rows])), (0, 0))
        tokens_BS = np.pad(inputs_NS[rows], fill).astype(np.int32)
        logits_BSV = _array(logits_of(tokens_BS))
        if start == 0:
            is_sound = _check(logits_of, windows_NW, tokens_BS, logits_BSV, rng, exact)
            normalised = is_sound or not random_too
        seen(start, logits_BSV)
        normalised &= _sum_to_one(logits_BSV, scored_NS[rows], rng)
        nats_BS = _nats(logits_BSV, np.pad(targets_NS[rows], fill))[: len(targets_NS[rows])]
        nats += float(nats_BS[scored_NS[rows]].sum())
        nats_N[rows] = np.where(scored_NS[rows], nats_BS, 0.0).sum(axis=1)
    if not normalised:
        nats = math.nan
    bytes_N = np.where(scored_NS, 1 if bytes_NS is None else bytes_NS, 0).sum(axis=1)
    num_bytes = int(bytes_N.sum())
    if not num_bytes:
        raise CannotScore("no byte of text is scored; evaluate more tokens")
    is_scored_N = scored_NS.any(axis=1)
    error = _error_of_ratio(nats_N[is_scored_N] / math.log(2), bytes_N[is_scored_N])
    return _evaluation(nats, int(scored_NS.sum()), num_bytes, int(is_scored_N.sum()), error)


def _error_of_ratio(bits_N: np.ndarray, bytes_N: np.ndarray) -> float | None:
    """The standard error of Σ bits / Σ bytes over N windows, by linearisation (Cochran, Sampling
    Techniques, 6.4): that of the sum of bits − ratio · bytes, over all bytes. It treats windows as
    independent, so it is a little too small where one document fills several."""
    if len(bits_N) < 2:
        return None
    rest_N = bits_N - bits_N.sum() / bytes_N.sum() * bytes_N
    return math.sqrt(len(rest_N) * float(rest_N.var(ddof=1))) / float(bytes_N.sum())


def together(parts: Sequence[Evaluation]) -> Evaluation:
    """The score of several texts together: the sum of their bits over the sum of their bytes. Each
    text's share of the bytes is fixed, so the variances of their scores add by its square."""
    nats = sum(part.loss * part.targets for part in parts)
    num_bytes, targets = sum(x.bytes for x in parts), sum(x.targets for x in parts)
    errors = [x.standard_error * x.bytes for x in parts if x.standard_error is not None]
    error = math.hypot(*errors) / num_bytes if len(errors) == len(parts) else None
    return _evaluation(nats, targets, num_bytes, sum(x.windows for x in parts), error)


def _evaluation(
    nats: float, targets: int, num_bytes: int, windows: int, error: float | None
) -> Evaluation:
    bpb = nats / math.log(2) / num_bytes
    return Evaluation(bpb, nats / targets, targets, num_bytes, windows, error)


def bits_per_byte(
    decoder: Model,
    params: Params,
    validation: TokenStore | np.ndarray,
    num_targets: int,
) -> Evaluation:
    """Score `num_targets` targets of the split `validation` (an array holds bytes) in windows of
    the model's seq_len, spread evenly, each without context. Raises WrongTokens if the split is too
    small or its tokens do not give its text back, CannotScore if it has tokens beyond the model's
    vocabulary."""
    config = decoder.config
    windows = validation_windows(validation, config.seq_len, num_targets)
    batch_size = rows_of_a_batch(config.seq_len, config.vocab_size)
    params = jax.device_put(params)
    return score(
        lambda tokens_BS: _logits(decoder, params, tokens_BS),
        *windows,
        batch_size,
        exact=jax.default_backend() == "cpu",
    )


def rows_of_a_batch(seq_len: int, vocab_size: int) -> int:
    """How many windows to score at a time."""
    return max(1, min(16, MOST_LOGITS // (seq_len * vocab_size)))


def load_params(path: Path, decoder: Model) -> Params:
    """The parameters in the checkpoint `<folder>/<step>`. Raises BadCheckpoint if it cannot be read
    or belongs to another model."""
    from engine.training import checkpoint  # imports Orbax, which is slow and only needed here

    like = jax.eval_shape(decoder.init, jax.random.key(0))
    return checkpoint.restore(path, "params", like)


def _check(
    logits_of: LogitsOf,
    windows: np.ndarray,
    tokens_BS: np.ndarray,
    logits_BSV: Any,
    rng: np.random.Generator,
    exact: bool,
) -> bool:
    """Raises CannotScore if the logits are not of these tokens or see what is ahead. Returns
    whether they are probabilities in windows with a random second half, too."""
    shape = logits_BSV.shape
    if len(shape) != 3 or shape[:2] != tokens_BS.shape:
        raise CannotScore(
            f"for tokens of shape {tokens_BS.shape} the logits have shape {shape}; make them "
            "(batch, position, vocabulary)"
        )
    if windows.min() < 0 or windows.max() >= shape[2]:
        raise CannotScore(
            f"the tokens go from {windows.min()} to {windows.max()} and the logits are for a "
            f"vocabulary of {shape[2]}; score it with the tokenizer that it was trained with"
        )
    half = tokens_BS.shape[1] // 2
    other_BS = tokens_BS.copy()
    other_BS[:, half:] = rng.integers(0, shape[2], other_BS[:, half:].shape)
    other_BSV = _array(logits_of(other_BS))
    first, again = logits_BSV[:, :half], other_BSV[:, :half]
    if exact:
        first, again = np.asarray(first, np.float32), np.asarray(again, np.float32)
        same = np.array_equal(first, again, equal_nan=True)
    else:
        first, again = (_nats(logits, tokens_BS[:, 1 : half + 1]) for logits in (first, again))
        same = alike(first, again)
    is_broken = bool(np.isnan(again).any())  # 0 · nan of what comes later is nan
    if not (same or is_broken):
        raise CannotScore(
            "the logits at a position change with the tokens after it, so that they tell what they "
            "should predict; let each position see only itself and what is before it"
        )
    return not is_broken and _sum_to_one(other_BSV, np.ones(tokens_BS.shape, bool), rng)


def alike(nats_N: np.ndarray, again_N: np.ndarray) -> bool:
    """Whether the nats of the same tokens differ by no more than rounding, each and on average."""
    same_N = (nats_N == again_N) | (np.isnan(nats_N) & np.isnan(again_N))
    gain_N = np.subtract(again_N, nats_N, out=np.zeros_like(nats_N), where=~same_N)
    mean = float(gain_N.sum()) / max(1, gain_N.size)  # nan or infinite where one of two is
    return bool((np.abs(gain_N) <= MAX_FORESIGHT).all() and abs(mean) <= MAX_MEAN_FORESIGHT)


@partial(jax.jit, static_argnums=0)  # the runs of an arm share one compilation
def _logits(decoder: Model, params: Params, tokens_BS: jax.Array) -> jax.Array:
    return decoder.logits(params, tokens_BS)


def _array(logits: Any) -> Any:
    """A NumPy array stays one and is scored without JAX. So a process that scores what another has
    computed starts no JAX threads and can still fork."""
    return logits if isinstance(logits, np.ndarray) else jnp.asarray(logits)


def _nats(logits_BSV: Any, targets_BS: np.ndarray) -> np.ndarray:
    """−log softmax(logits)[target], float64."""
    return np.asarray(nats_of_targets(logits_BSV, targets_BS[:, :, None]), np.float64)[:, :, 0]


def _sum_to_one(logits_BSV: Any, where_BS: np.ndarray, rng: np.random.Generator) -> bool:
    """Whether the probabilities sum to 1 at a few of these positions."""
    places = np.argwhere(where_BS)
    if not len(places):
        return True
    rows, positions = rng.choice(places, SAMPLED).T
    return bool(sum_to_one(logits_BSV[rows, positions]).all())
