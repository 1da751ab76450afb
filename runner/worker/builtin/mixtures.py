"""Inputs for training and scoring: a token store, or a mixture as the step `mix` writes it
(`mixture.json` with the weights, and each part's store below its name)."""

from collections.abc import Mapping
from pathlib import Path

from engine.config.schema import TrainConfig
from engine.data.sampling import Sampler
from engine.data.token_store import TokenStore, WrongTokens
from runner.spec.step_types import Mix

MIXTURE = "mixture.json"


def parts_of(folder: Path, split: str) -> dict[str, tuple[TokenStore, float]]:
    """{part: (its store, its weight)}; a single store is one part with an empty name."""
    if not (folder / MIXTURE).is_file():
        return {"": (TokenStore.open(folder / split), 1.0)}
    weights = Mix.model_validate_json((folder / MIXTURE).read_bytes()).weights
    return {
        name: (TokenStore.open(folder / name / split), weight) for name, weight in weights.items()
    }


def sampler(config: TrainConfig, seed: int, seq_len: int, inputs: Mapping[str, Path]) -> Sampler:
    """The batches of a run on its input `tokens`, and from each phase on those that it names.

    Stores are identified by content: one that a later phase also has continues where it was, even
    under another name. Raises WrongTokens.
    """
    stores: dict[tuple[str, str], TokenStore] = {}

    def shares(name: str, weights: Mapping[str, float] | None) -> dict[tuple[str, str], float]:
        parts, found = parts_of(inputs[name], "train"), dict[tuple[str, str], float]()
        if weights and weights.keys() != parts.keys():
            raise WrongTokens(
                f"a phase has weights for {', '.join(weights)}, and the parts of `{name}` are "
                f"{', '.join(parts) or 'none'}; give each part its weight, and nothing else"
            )
        for part, (store, weight) in parts.items():
            content = store.manifest.tokens_sha256, store.manifest.offsets_sha256
            stores.setdefault(content, store)
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
    return Sampler(sources, seed, config.train_batch_size, seq_len, phases=later)
