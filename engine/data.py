"""Tokens on disk and the windows that are cut from them. A store holds a text's two splits as
TensorStore arrays and is opened by the digests it must have. A batch is a function of (seed, step)
and nothing else, so a resumed run sees what it would have seen."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import tensorstore as ts

from engine.tokenize import Text, shortest_train, shortest_validation

CHUNK = 2**22  # tokens in one file


class WrongTokens(Exception):
    """These are not the tokens that were asked for, or too few; the message says which."""


@dataclass(frozen=True)
class TokenStore:
    """The two splits of a text, one uint8 token a byte, held in memory."""

    train: np.ndarray
    validation: np.ndarray

    @staticmethod
    def build(text: Text, path: Path) -> None:
        """Write `text` to the folder `path` as zarr3 arrays `train` and `validation`."""
        for split, data in (("train", text.train), ("validation", text.validation)):
            array = ts.open(
                _spec(path / split),
                create=True,
                delete_existing=True,
                dtype=ts.uint8,
                shape=[len(data)],
                chunk_layout=ts.ChunkLayout(chunk_shape=[CHUNK]),
            ).result()
            array.write(np.frombuffer(data, np.uint8)).result()

    @staticmethod
    def open(path: Path, train_sha256: str, validation_sha256: str) -> "TokenStore":
        """Read the store at `path`. Raises WrongTokens unless what was read has these digests."""
        return TokenStore(
            train=_read(path / "train", train_sha256),
            validation=_read(path / "validation", validation_sha256),
        )


def batch(tokens: np.ndarray, seed: int, step: int, batch_size: int, seq_len: int) -> np.ndarray:
    """The windows of one step, drawn evenly from all of the split, as (B, S + 1) int32: inputs are
    the first S columns, targets the last S. The same (seed, step) always draws the same."""
    if len(tokens) < shortest_train(seq_len):
        raise WrongTokens(
            f"the train split has {len(tokens):,} tokens and a window of seq_len {seq_len} needs "
            f"{shortest_train(seq_len):,}; use a longer text or a lower seq_len"
        )
    draw = np.random.Generator(np.random.Philox(key=[seed, step]))
    starts_B = draw.integers(0, len(tokens) - seq_len, size=batch_size)
    return tokens[starts_B[:, None] + np.arange(seq_len + 1)].astype(np.int32)


def validation_windows(
    tokens: np.ndarray, seq_len: int, num_targets: int
) -> tuple[np.ndarray, np.ndarray]:
    """Windows that score exactly `num_targets` targets, spread evenly from the split's first token
    to its last and sharing no target. Each starts without context.

    Returns windows (N, S + 1) int32 and a mask (N, S) bool, false for what the last window has
    too many. Raises WrongTokens if the split is too small.
    """
    if len(tokens) < shortest_validation(seq_len, num_targets):
        raise WrongTokens(
            f"the validation split has {len(tokens):,} tokens and {num_targets:,} targets in "
            f"windows of {seq_len} need {shortest_validation(seq_len, num_targets):,}; use a "
            "longer text or evaluate fewer tokens"
        )
    count = -(-num_targets // seq_len)
    last_start = len(tokens) - seq_len - 1
    starts_N = np.arange(count) * last_start // max(count - 1, 1)
    windows = tokens[starts_N[:, None] + np.arange(seq_len + 1)].astype(np.int32)
    return windows, (np.arange(count * seq_len) < num_targets).reshape(count, seq_len)


def _read(path: Path, expected_sha256: str) -> np.ndarray:
    try:
        array = ts.open(_spec(path), open=True, read=True, dtype=ts.uint8, rank=1).result()
        tokens = np.asarray(array.read().result())
    except ValueError as error:
        raise WrongTokens(f"no tokens can be read at {path}: {error}; build the store") from error
    found = sha256(tokens.data).hexdigest()
    if found != expected_sha256:
        raise WrongTokens(
            f"the tokens at {path} have SHA-256 {found} and not {expected_sha256} as asked for; "
            "build the store from the planned text, or plan again"
        )
    return tokens


def _spec(path: Path) -> dict[str, object]:
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path.absolute())}}
