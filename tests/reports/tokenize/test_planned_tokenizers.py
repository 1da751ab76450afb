"""What users of other tools reported of models with too few rows for their tokenizer, and of
validation texts that are too short: it is said when planned, of the tokenizer that is meant."""

from pathlib import Path

import pytest

from engine.data.tokenize import train_bpe
from runner.lib.problems import BadExperiment
from runner.planning import planner

DECLARED = """\
title: Few tokens
resources: {kind: cpu}
steps:
  words: {do: tokenizer, config: {file: words.json, end_of_document: "<|endoftext|>"}}
  tokens: {do: tokenize, GIVEN}
  train:
    do: train
    inputs: {tokens: tokens}
    config:
      model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2, seq_len: 8,
              vocab_size: ROWS}
      train: {train_batch_size: 1, num_train_steps: 1, learning_rate: 0.1}
  scores: {do: evaluate, inputs: {models: train, tokens: tokens}, config: {tokens: TARGETS}}
"""
GIVEN = "inputs: {tokenizer: words}, config: {source: text.txt, tokenizer: given}"
BYTES = "config: {source: text.txt}"
TEXT = "say hello to the tide\n" * 64  # the last two lines are for validation
SIZE = 270  # tokens of the tokenizer


def planned(folder: Path, rows: int, targets: int, tokens: str) -> list[tuple[str, str]]:
    """The problems: where, and what."""
    tokenizer = train_bpe([TEXT], 300)
    (folder / "words.json").write_text(tokenizer.definition)
    (folder / "text.txt").write_text(TEXT)
    parts = {"ROWS": rows, "TARGETS": targets, "GIVEN": tokens}
    text = DECLARED
    for was, now in parts.items():
        text = text.replace(was, str(now))
    (folder / "experiment.yaml").write_text(text)
    try:
        planner.plan_folder(folder)
    except BadExperiment as error:
        return [(one.field or "", one.message) for one in error.problems]
    return []


ROWS, TARGETS = "steps.train.config.model.vocab_size", "steps.scores.config.tokens"
CASES: dict[str, tuple[int, int, str, list[tuple[str, str]]]] = {
    "huggingface/transformers#12763 rows for the tokens without the added one": (
        SIZE - 1,
        8,
        GIVEN,
        [(ROWS, f"{SIZE} tokens of words.json, and the model has {SIZE - 1} rows; write {SIZE}")],
    ),
    "EuroEval/EuroEval#52 a tokenizer that is larger than the model": (
        100,
        8,
        GIVEN,
        [(ROWS, f"{SIZE} tokens of words.json, and the model has 100 rows")],
    ),
    "huggingface/tokenizers#1609 just as many": (SIZE, 8, GIVEN, []),
    "huggingface/transformers#4875 more rows than tokens": (512, 8, GIVEN, []),
    "AlignmentResearch/tuned-lens#116 more targets than tokens": (
        *(512, 100_000, GIVEN),
        [(TARGETS, "of words.json, and 100,000 targets in windows need 100,001")],
    ),
    "meta-llama/llama-cookbook#540 no window": (
        *(512, 64, GIVEN),
        [(TARGETS, "text.txt has 13 tokens of words.json, and 64 targets in windows need 65")],
    ),
    "rloganiv/kglm-model#48 bytes": (
        *(256, 64, BYTES),
        [(TARGETS, "text.txt has 44 tokens, and 64 targets in windows need 65; use a longer")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_tokenizer_makes_too_few_or_too_many_is_said_when_planned(
    name: str, tmp_path: Path
) -> None:
    rows, targets, tokens, said = CASES[name]
    found = planned(tmp_path, rows, targets, tokens)
    assert [where for where, _ in found] == [where for where, _ in said], found
    for (_, words), (_, part) in zip(found, said, strict=True):
        assert part in words
