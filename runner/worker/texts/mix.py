"""The step that makes a mixture of token stores, which `train` and `evaluate` take like one store.
It interleaves nothing: the stores are copied below their names, and `engine.data.sampling` gives
each its share of every block of rows."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.data.token_store import TokenStore, WrongTokens
from runner.spec.data_steps import Mix
from runner.worker.texts.mixtures import MIXTURE
from runner.worker.texts.shards import SPLITS, link


def mix(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """`<input>/train` and `<input>/validation` of each input, and their weights. Raises WrongTokens
    for an input that is no token store, is already a mixture, or was made with another
    tokenizer."""
    weights = Mix.model_validate(config)
    one, tokenizer = "", ""
    for name, folder in sorted(inputs.items()):
        if (folder / MIXTURE).exists():
            raise WrongTokens(f"{name} is a mixture already; name its parts as inputs instead")
        for split in SPLITS:
            found = TokenStore.open(folder / split).manifest.tokenizer_sha256
            one, tokenizer = (one, tokenizer) if tokenizer else (name, found)
            if found != tokenizer:
                raise WrongTokens(
                    f"{one} and {name} were made by different tokenizers, so that one id means two "
                    "things; make both with one tokenizer"
                )
            shutil.copytree(folder / split, out / name / split, copy_function=link)
    (out / MIXTURE).write_text(weights.model_dump_json() + "\n")
