"""The step that makes token stores of a text."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.data import TokenStore
from engine.tokenize import BadText, Tokenizer, byte_tokenizer, read_text, train_bpe
from runner.builtin.texts import SPLITS, read_split


def tokenize(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Token stores `train` and `validation`. A BPE learns from the train split alone."""
    texts = _texts(config, inputs)
    tokenizer: Tokenizer = byte_tokenizer()
    if config["tokenizer"] == "bpe":
        tokenizer = train_bpe(texts("train"), config["vocab_size"])
    if config["tokenizer"] == "given":
        tokenizer = TokenStore.open(inputs["tokenizer"] / "train").tokenizer()
    for split in SPLITS:
        TokenStore.build(out / split, texts(split), tokenizer)


def _texts(config: Mapping[str, Any], inputs: Mapping[str, Path]) -> Callable[[str], Iterator[str]]:
    if config["source"] is None:
        return lambda split: read_split(inputs["text"], split)
    text = read_text(config["source"], None)
    for split, found in (("train", text.train_sha256), ("validation", text.validation_sha256)):
        if found != config["sha256"][split]:
            raise BadText(
                f"the {split} split of {config['source']} is another one on this machine than in "
                "the plan; use the plan's Python, or plan again here"
            )
    return lambda split: iter([getattr(text, split).decode()])
