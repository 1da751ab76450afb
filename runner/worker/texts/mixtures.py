"""Inputs for training and scoring: a token store, or a mixture as the step `mix` writes it
(`mixture.json` with the weights, and each part's store below its name)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

import numpy as np

from engine.config.schema import TrainConfig
from engine.data.conversations import LABELS, SPOKEN
from engine.data.packing import PackedRows
from engine.data.sampling import Sampler
from engine.data.token_store import TokenStore, WrongTokens
from runner.spec.data_steps import Mix
from runner.worker.texts.conversations import labels_of

MIXTURE = "mixture.json"


def parts_of(folder: Path, split: str) -> dict[str, tuple[TokenStore, float]]:
    """{part: (its store, its weight)}; a single store is one part with an empty name."""
    if not (folder / MIXTURE).is_file():
        return {"": (TokenStore.open(folder / split), 1.0)}
    weights = _mixed(folder).weights
    return {
        name: (TokenStore.open(folder / name / split), weight) for name, weight in weights.items()
    }


def _mixed(folder: Path) -> Mix:
    return Mix.model_validate_json((folder / MIXTURE).read_bytes())


def scored_parts(folder: Path) -> dict[str, TokenStore]:
    """The validation splits that are scored, by name: one for each part of a mixture or for each
    label of conversations; one with an empty name of a single store. Raises WrongTokens."""
    parts = {name: store for name, (store, _) in parts_of(folder, "validation").items()}
    labels = labels_of(parts[""]) if set(parts) == {""} else None
    if labels is None:
        return parts
    codes = {LABELS[code - 1]: code for code in np.unique(labels).tolist() if code}
    return {name: replace(parts[""], scored=labels == code) for name, code in codes.items()}


def sampler(
    config: TrainConfig,
    seed: int,
    seq_len: int,
    inputs: Mapping[str, Path],
    loss_on: Sequence[str] | None = None,
    *,
    alone: bool = False,
) -> Sampler:
    """The batches of a run on its input `tokens`, and from each phase on those that it names.

    Rows of conversations are packed, or hold one each if they must be `alone`; their targets are
    the tokens with the labels `loss_on`, by default all that the assistant says. Stores are
    identified by content: one that a later phase also has continues where it was, even under
    another name. Raises WrongTokens.
    """
    stores: dict[tuple[str, str], TokenStore] = {}
    most: dict[tuple[str, str], float] = {}
    codes = [LABELS.index(label) + 1 for label in loss_on or SPOKEN]

    def as_scored(store: TokenStore) -> TokenStore:
        if (labels := labels_of(store)) is None:
            return store
        if not (scored := np.isin(labels, codes)).any():
            raise WrongTokens(
                f"no token of {store.name} has a label of loss_on, so that nothing would be "
                f"trained on; write one of {', '.join(LABELS)} that it has"
            )
        return replace(store.load(), folder=None, scored=scored)

    def shares(name: str, weights: Mapping[str, float] | None) -> dict[tuple[str, str], float]:
        parts, found = parts_of(inputs[name], "train"), dict[tuple[str, str], float]()
        if weights and weights.keys() != parts.keys():
            raise WrongTokens(
                f"a phase has weights for {', '.join(weights)}, and the parts of `{name}` are "
                f"{', '.join(parts) or 'none'}; give each part its weight, and nothing else"
            )
        is_mixture = (inputs[name] / MIXTURE).is_file()
        limits = _mixed(inputs[name]).most_epochs if is_mixture else {}
        for part, (store, weight) in parts.items():
            content = store.manifest.tokens_sha256, store.manifest.offsets_sha256
            if content not in stores:
                stores[content] = as_scored(store)
            most[content] = min(most.get(content, inf), limits.get(part, inf))
            found[content] = found.get(content, 0.0) + (weights[part] if weights else weight)
        return found

    now, turns = "tokens", [(0, shares("tokens", None))]
    for phase in config.phases:
        if phase.changes_data:
            now = phase.tokens or now
            turns.append((phase.at, shares(now, phase.weights)))
    (_, first), *later = [
        (before, [found.get(content, 0.0) for content in stores]) for before, found in turns
    ]
    sources = list(zip(stores.values(), first, strict=True))
    chats = [store.scored is not None for store in stores.values()]
    sampled = partial(
        Sampler,
        sources,
        seed,
        config.batch_sizes,
        seq_len,
        phases=later,
        steps=config.num_train_steps,
        most_epochs=[most[content] for content in stores],
        skip=config.skip_batches,
    )
    if not any(chats):
        if loss_on:
            words = "loss_on is for conversations, and the tokens are of a text; take it out"
            raise WrongTokens(words)
        return sampled()
    if not all(chats):
        raise WrongTokens("a run trains on texts or on conversations; name inputs of one kind")
    return sampled(packed=not alone, rows=partial(PackedRows, alone=alone))
