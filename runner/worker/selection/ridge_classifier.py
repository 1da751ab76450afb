"""The classifier that is a ridge regression on embeddings: a document's is the mean of a trained
model's last hidden states over its first tokens."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from engine.data.lab_texts import BadText
from engine.data.tokenize import Tokenizer
from engine.model.decoder import Decoder, Params
from engine.model.encoder import mean_features
from runner.worker.models import trained
from runner.worker.selection.transformer_classifier import TOGETHER, padded, together
from runner.worker.texts.mixtures import parts_of

Texts = Callable[[], Iterable[str]]

WEIGHTS = "weights.npy"  # (D + 1,): of each feature, and what is added


def learn(
    config: Mapping[str, Any],
    inputs: Mapping[str, Any],
    texts: Texts,
    labels: np.ndarray,
    out: Path,
    _: int,
) -> None:
    """Fit the weights and write them, float64. Raises BadText."""
    embed = _embedder(config, inputs)
    features = np.concatenate([embed(batch) for batch in together(texts())])
    np.save(out / WEIGHTS, fit(features, labels, config["penalty"]))


def fit(features: np.ndarray, labels: np.ndarray, penalty: float) -> np.ndarray:
    """The weights w and b that minimise Σ (x·w + b − y)² + penalty · n · |w|² for features of mean
    0 and variance 1, as weights of the features as they are: (D + 1,). Pure."""
    mean, spread = features.mean(0), features.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    x, y = (features - mean) / spread, labels - labels.mean()
    gram = x.T @ x + penalty * len(x) * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, x.T @ y) / spread
    return np.append(weights, labels.mean() - mean @ weights)


def scorer(config: Mapping[str, Any], inputs: Mapping[str, Any], folder: Path) -> "Ridge":
    """The classifier that `learn` wrote."""
    return Ridge(_embedder(config, inputs), np.load(folder / WEIGHTS, allow_pickle=False))


class Ridge:
    """Scores documents."""

    def __init__(self, embed: Callable[[Sequence[str]], np.ndarray], weights: np.ndarray) -> None:
        self._embed, self._weights = embed, weights

    def batches(self, texts: Iterable[str]) -> Iterable[list[str]]:
        """The texts in lists for `scores`."""
        return together(texts)

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """The score of each text, float64."""
        found: np.ndarray = self._embed(texts) @ self._weights[:-1] + self._weights[-1]
        return found


def _embedder(
    config: Mapping[str, Any], inputs: Mapping[str, Any]
) -> Callable[[Sequence[str]], np.ndarray]:
    """A function from up to TOGETHER texts to their embeddings. Raises BadText, BadOwnCode."""
    this = trained.planned(inputs["model"])
    if this.own:
        raise BadText(
            f"the input `model` is the own model {this.own}, whose hidden states the lab does not "
            "know; name a model of the lab"
        )
    model = trained.model_of(this, {})
    assert isinstance(model, Decoder)
    store = next(iter(parts_of(inputs["tokens"], "validation").values()))[0]
    tokenizer, length = store.tokenizer(), min(config["seq_len"], model.config.seq_len)
    if tokenizer.vocab_size > model.config.vocab_size:
        raise BadText(
            f"the tokens of the input `tokens` have ids up to {tokenizer.vocab_size - 1}, and the "
            f"input `model` knows {model.config.vocab_size}; name the tokens that it learned from"
        )
    params = jax.tree.map(jnp.asarray, trained.params_of(inputs["model"], model))
    return partial(_embedded, model, params, tokenizer, length)


def _embedded(
    model: Decoder, params: Params, tokenizer: Tokenizer, length: int, texts: Sequence[str]
) -> np.ndarray:
    found = _means(model, params, *padded(tokenizer, length, texts, TOGETHER))
    return np.asarray(found, np.float64)[: len(texts)]


_means = jax.jit(mean_features, static_argnums=0)
