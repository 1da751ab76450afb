"""The classifier that is a small transformer encoder: trained from scratch to predict labels, which
have mean 0 and standard deviation 1, by the mean squared error."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from engine.config.schema import ModelConfig
from engine.data.tokenize import Tokenizer, train_bpe
from engine.model.decoder import Params
from engine.model.encoder import Encoder
from engine.training import regression
from engine.training.digest import path_of
from engine.training.regression import Documents, Recipe
from runner.worker.texts.tokens import write_tokenizer, written_tokenizer

Texts = Callable[[], Iterable[str]]

PARAMETERS = "params.safetensors"
TOGETHER = 32  # documents that are scored together


def learn(
    config: Mapping[str, Any],
    _: Mapping[str, Any],
    texts: Texts,
    labels: np.ndarray,
    out: Path,
    seed: int,
) -> None:
    """Train a tokenizer and an encoder, and write both."""
    tokenizer = train_bpe(texts(), config["vocab_size"])
    write_tokenizer(tokenizer, out)
    length = config["seq_len"]
    parts = [padded(tokenizer, length, batch) for batch in together(texts())]
    documents = Documents(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    spread = float(np.std(labels)) or 1.0
    targets = ((labels - labels.mean()) / spread).astype(np.float32)
    recipe = Recipe(
        epochs=config["epochs"],
        batch_size=config["train_batch_size"],
        learning_rate=config["learning_rate"],
        weight_decay=config["weight_decay"],
        seed=seed,
    )
    params = regression.fit(_encoder(config, tokenizer), documents, targets, recipe)
    leaves = jax.tree_util.tree_leaves_with_path(params)
    save_file({path_of(path): np.asarray(leaf) for path, leaf in leaves}, out / PARAMETERS)


def scorer(config: Mapping[str, Any], _: Mapping[str, Any], folder: Path) -> "Transformer":
    """The classifier that `learn` wrote."""
    tokenizer = written_tokenizer(folder)
    assert tokenizer is not None, "`learn` wrote it"
    encoder = _encoder(config, tokenizer)
    arrays = load_file(folder / PARAMETERS)
    shapes = jax.eval_shape(encoder.init, jax.random.key(0))
    params = jax.tree_util.tree_map_with_path(
        lambda path, _: jnp.asarray(arrays[path_of(path)]), shapes
    )
    return Transformer(tokenizer, encoder, params)


class Transformer:
    """Scores documents."""

    def __init__(self, tokenizer: Tokenizer, encoder: Encoder, params: Params) -> None:
        self._tokenizer, self._encoder, self._params = tokenizer, encoder, params

    def batches(self, texts: Iterable[str]) -> Iterable[list[str]]:
        """The texts in lists for `scores`."""
        return together(texts)

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """The score of each text, float64. The arrays have one shape, so that one program scores
        all."""
        given = padded(self._tokenizer, self._encoder.config.seq_len, texts, TOGETHER)
        found = regression.scores(self._encoder, self._params, *given)
        return np.asarray(found, np.float64)[: len(texts)]


def _encoder(config: Mapping[str, Any], tokenizer: Tokenizer) -> Encoder:
    return Encoder(
        ModelConfig(
            hidden_dim=config["hidden_dim"],
            intermediate_dim=3 * config["hidden_dim"],
            num_layers=config["num_layers"],
            num_heads=config["num_heads"],
            seq_len=config["seq_len"],
            vocab_size=tokenizer.vocab_size,
            tie_word_embeddings=True,  # there is no output matrix
        )
    )


def together(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in lists of TOGETHER; the last one may have fewer."""
    every = iter(texts)
    while batch := list(islice(every, TOGETHER)):
        yield batch


def padded(
    tokenizer: Tokenizer, length: int, texts: Sequence[str], rows: int | None = None
) -> Documents:
    """The first `length` tokens of each document, padded with 0, in so many rows."""
    encoded = [ids[:length] for ids in tokenizer.encode_batch(texts)]
    tokens = np.zeros((rows or len(texts), length), np.int32)
    lengths = np.zeros(len(tokens), np.int32)
    for number, ids in enumerate(encoded):
        tokens[number, : len(ids)], lengths[number] = ids, len(ids)
    return Documents(tokens, lengths)
