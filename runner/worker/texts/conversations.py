"""The step that makes token stores of conversations: `train` and `validation`, each with an array
`labels` beside its tokens (`engine.data.conversations`), `counts.json`, and the chat template."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.data.arrays import Folder, WrongTokens
from engine.data.arrays import read as read_array
from engine.data.chat_template import FILE, BadTemplate, with_tokens
from engine.data.chat_templates import TEMPLATES
from engine.data.conversations import LABELS, SPOKEN, Conversation, conversations, encoded
from engine.data.lab_texts import BadText
from engine.data.token_store import TokenStore
from engine.data.tokenize import Tokenizer
from runner.isolation import template_child
from runner.spec.step_types import KEPT
from runner.worker.texts.shards import SPLITS

COUNTS = "counts.json"
ARRAY = "labels"
MAX_BYTES = 1 << 30  # of one split of conversations
_ASSISTANT = LABELS[0]
_SPOKEN = [LABELS.index(label) + 1 for label in SPOKEN]

Row = tuple[str, np.ndarray, np.ndarray]  # text, ids, labels


def make(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Write the stores. Raises BadText and BadTemplate, which name the line."""
    tokenizer = TokenStore.open(inputs["tokenizer"] / "train").tokenizer()
    end = tokenizer.end_of_document
    special = {"bos_token": "", "eos_token": "" if end is None else tokenizer.decode([end])}
    template = with_tokens(TEMPLATES.get(config["template"], config["template"]), special)
    (out / FILE).write_text(template, encoding="utf-8")
    counts, before = dict[str, dict[str, int]](), 0
    for split in SPLITS:
        lines, source = _lines(config, inputs, split)
        first = 1 if KEPT not in inputs else before + 1
        before += len(lines.splitlines())
        counts[split] = dict.fromkeys(("conversations", "dropped", "cut", "cut_in_a_turn"), 0)
        given = conversations(lines, source, first)
        rows = list(_rows(given, config, tokenizer, template, counts[split]))
        _write(out / split, rows, tokenizer, config["labels"], counts[split], source)
    (out / COUNTS).write_text(json.dumps(counts, indent=1) + "\n")
    print(json.dumps(counts), flush=True)


def _lines(config: Mapping[str, Any], inputs: Mapping[str, Path], split: str) -> tuple[bytes, str]:
    """A split as JSON lines, and its name."""
    if folder := inputs.get(KEPT):
        return (folder / split).read_bytes(), str(config["source"])
    path = inputs["conversations"] / f"{split}.jsonl"
    if not path.is_file() or path.is_symlink() or path.stat().st_size > MAX_BYTES:
        raise BadText(
            f"the input `conversations` has no {path.name} of at most {MAX_BYTES:,} bytes"
        )
    return path.read_bytes(), path.name


def _rows(
    given: Iterator[Conversation],
    config: Mapping[str, Any],
    tokenizer: Tokenizer,
    template: str,
    counts: dict[str, int],
) -> Iterator[Row]:
    """The conversations that are kept; the others are counted."""
    most = config["max_tokens"]
    for one in given:
        counts["conversations"] += 1
        try:
            said = template_child.render(
                template, one.messages, one.tools, special=tokenizer.special
            )
        except BadTemplate as error:
            raise BadTemplate(f"{one.where}: {error}") from error
        text = said.text
        ids, labels = encoded(one, said, tokenizer, config["labels"])
        if len(ids) > most:
            if config["longer"] == "refuse":
                raise BadText(
                    f"{one.where} has {len(ids):,} tokens, and max_tokens is {most:,}; raise it, "
                    "or write `longer: drop` or `longer: cut`"
                )
            if config["longer"] == "drop":
                counts["dropped"] += 1
                continue
            counts["cut"] += 1
            counts["cut_in_a_turn"] += int(
                bool(np.isin(labels[most - 1 : most + 1], _SPOKEN).all())
            )
            text, ids = _cut(text, ids, most, tokenizer)
        yield text, ids, labels[: len(ids)]


def _cut(text: str, ids: np.ndarray, most: int, tokenizer: Tokenizer) -> tuple[str, np.ndarray]:
    """The first `most` tokens, fewer if they end within a character, and the text up to there."""
    content = text.encode()
    size = len(tokenizer.text_of(ids[:most]))
    while most > 1 and b"\x80" <= content[size : size + 1] < b"\xc0":
        most -= 1
        size = len(tokenizer.text_of(ids[:most]))
    return content[:size].decode(errors="ignore"), ids[:most]


def _write(
    place: Path,
    rows: list[Row],
    tokenizer: Tokenizer,
    labels: list[str],
    counts: dict[str, int],
    source: str,
) -> None:
    """Write a split. Raises BadText if one of the labels has no token."""
    joined = (
        np.concatenate([labels_N for _, _, labels_N in rows]) if rows else np.zeros(0, np.uint8)
    )
    counts["tokens"] = len(joined)
    for label in dict.fromkeys([_ASSISTANT, *labels]):
        counts[label] = int((joined == LABELS.index(label) + 1).sum())
    if not np.isin(joined, _SPOKEN).any():
        raise BadText(
            f"the template marks no token in the {place.name} split of {source} as the "
            "assistant's, so that nothing would be trained on; has it messages of the assistant, "
            "and does the template write them inside {% generation %}?"
        )
    if missing := [label for label in labels if not counts[label]]:
        raise BadText(
            f"no token in the {place.name} split of {source} has the label {' or '.join(missing)}; "
            "take it out of `labels`, or add conversations that have it"
        )
    ending = [] if tokenizer.end_of_document is None else [np.zeros(1, np.uint8)]
    TokenStore.build(place, (text for text, _, _ in rows), tokenizer, (ids for _, ids, _ in rows))
    array = Folder(place).create(ARRAY, "uint8")
    for _, _, labels_N in rows:
        array.append(np.concatenate([labels_N, *ending]))
    array.finish()


def labels_of(store: TokenStore) -> np.ndarray | None:
    """The label of each token of a store, (N,) uint8; None for a store of texts. Raises
    WrongTokens."""
    if store.folder is None or store.folder.read(f"{ARRAY}/zarr.json") is None:
        return None
    array = store.folder.open(ARRAY, "uint8", store.manifest.tokens)
    found = read_array(array, slice(0, store.manifest.tokens), f"the labels of {store.name}")
    if int(found.max(initial=0)) > len(LABELS):
        raise WrongTokens(f"{store.name} has labels that cannot be; make it again")
    return found
