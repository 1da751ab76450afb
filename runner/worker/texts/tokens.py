"""The step that makes token stores from a text: in one process, or in several for the shards, whose
tokens are then concatenated, with the same bytes."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.data.documents import documents
from engine.data.lab_texts import BadText, Text, read_text
from engine.data.token_store import TokenStore, smallest_dtype, together
from engine.data.tokenize import (
    BadTokenizer,
    Tokenizer,
    byte_tokenizer,
    load_tokenizer,
    train_bpe,
)
from runner.schema.corpora import TOKENIZER_FILE
from runner.spec.step_types import KEPT
from runner.store import digests
from runner.worker.texts.filter_and_join import read_split
from runner.worker.texts.shards import SPLITS, corpus_files, of_split

TOKENIZER = "learned.json"  # also that of an imported model
LENGTHS = np.dtype("<u8")


def tokenize(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Make the token stores `train` and `validation`. A BPE learns from the train split only."""
    texts, tokenizer = _texts(config, inputs), _tokenizer(config, inputs)
    for split in SPLITS:
        TokenStore.build(out / split, texts(split), tokenizer)


def _tokenizer(config: Mapping[str, Any], inputs: Mapping[str, Path]) -> Tokenizer:
    if config["tokenizer"] == "bpe":
        special = config.get("special_tokens", ())
        return train_bpe(_texts(config, inputs)("train"), config["vocab_size"], special)
    if config["tokenizer"] == "given":
        given = inputs["tokenizer"]
        return written_tokenizer(given) or TokenStore.open(given / "train").tokenizer()
    return byte_tokenizer()


# ── In several processes ─────────────────────────────────────────────────────────────────────


def learn(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Make the tokenizer that all shards use."""
    write_tokenizer(_tokenizer(config, inputs), out)


def take_tokenizer(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Take the tokenizer that the store keeps under its digest. Raises BadTokenizer."""
    path = inputs[KEPT] / TOKENIZER_FILE
    if name := config.get("corpus"):
        path = _fetched(name, config["found"]["sha256"], inputs[KEPT])
    elif digests.digest(path).sha256 != config["sha256"]:
        raise BadTokenizer(f"{path} is not the file of the plan; remove it and plan again")
    write_tokenizer(load_tokenizer(path, config["end_of_document"]), out)


def _fetched(name: str, sha256: str, folder: Path) -> Path:
    """The file of the tokenizer that was fetched under this name. Raises BadTokenizer."""
    files = {path: file for path, file in corpus_files(folder).items() if file.is_file()}
    if digests.sha256({path: digests.digest(file) for path, file in files.items()}) != sha256:
        raise BadTokenizer(
            f"{folder} has other files than those that were fetched; `regatta corpus check {name}` "
            "says what is damaged, and what to do"
        )
    if len(files) != 1:
        raise BadTokenizer(
            f"{name} has {len(files):,} files, and a tokenizer is one; add it as another version, "
            "whose `files` names that one"
        )
    return next(iter(files.values()))


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the tokenizer for `written_tokenizer`."""
    fields = {"definition": tokenizer.definition, "end_of_document": tokenizer.end_of_document}
    (folder / TOKENIZER).write_text(json.dumps(fields))


def written_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer that `write_tokenizer` wrote; None if there is none."""
    path = folder / TOKENIZER
    return Tokenizer(**json.loads(path.read_bytes())) if path.is_file() else None


def _learned(folder: Path) -> Tokenizer:
    tokenizer = written_tokenizer(folder)
    assert tokenizer is not None, "`learn` ran before"
    return tokenizer


def encode_shards(_: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """The tokens of the input `shards`, {name: file}, and the number of tokens per document, with
    the tokenizer that `learn` wrote to the input `first`."""
    tokenizer = _learned(inputs["first"])
    for name, path in inputs["shards"].items():
        with (out / f"{name}.ids").open("wb") as ids, (out / f"{name}.lengths").open("wb") as file:
            for texts in together(documents(path)):
                encoded = tokenizer.encode_batch(texts)
                file.write(np.array([len(x) for x in encoded], LENGTHS).tobytes())
                ids.write(np.concatenate(encoded).astype(_dtype(tokenizer)).tobytes())


def join(config: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """Token stores from the results of `encode_shards` in the folders of the input `parts`."""
    tokenizer, texts = _learned(inputs["first"]), _texts(config, inputs)
    found = {path.stem: path for part in inputs["parts"].values() for path in part.glob("*.ids")}
    for split in SPLITS:
        paths = [found[name] for name in sorted(found) if of_split(split, name)]
        encoded = (ids for path in paths for ids in _encoded(path, _dtype(tokenizer)))
        TokenStore.build(out / split, texts(split), tokenizer, encoded)


def _encoded(path: Path, dtype: np.dtype) -> Iterator[np.ndarray]:
    """The tokens of each document of a shard."""
    lengths = np.fromfile(path.with_suffix(".lengths"), LENGTHS)
    ids = np.memmap(path, dtype, "r") if lengths.any() else np.empty(0, dtype)
    end = 0
    for length in lengths.tolist():
        start, end = end, end + length
        yield ids[start:end]


def _dtype(tokenizer: Tokenizer) -> np.dtype:
    return np.dtype(smallest_dtype(tokenizer.vocab_size)).newbyteorder("<")


# ── Texts ────────────────────────────────────────────────────────────────────────────────────


def _texts(config: Mapping[str, Any], inputs: Mapping[str, Path]) -> Callable[[str], Iterator[str]]:
    if config["source"] is None:
        return lambda split: read_split(inputs["text"], split)
    source = config["source"]
    if folder := inputs.get(KEPT):
        text = Text(source, *((folder / split).read_bytes() for split in SPLITS))
    else:
        text = read_text(source, None)
    for split, found in (("train", text.train_sha256), ("validation", text.validation_sha256)):
        if found != config["sha256"][split]:
            raise BadText(
                f"the {split} split of {source} is another one on this machine than in "
                "the plan; use the plan's Python, or plan again here"
            )
    return lambda split: iter([getattr(text, split).decode()])
