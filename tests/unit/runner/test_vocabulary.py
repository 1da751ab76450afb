"""A model needs a row for each token of what it is trained on."""

from pathlib import Path

import pytest

from runner.lib.problems import BadExperiment
from runner.planning import planner

STEPS = """
title: "Enough rows?"
resources: {kind: cpu}
steps:
  bpe: {do: tokenize, config: {source: stdlib, tokenizer: bpe, vocab_size: 512}}
  as_well: {do: tokenize, inputs: {tokenizer: bpe}, config: {source: stdlib, tokenizer: given}}
  both: {do: mix, inputs: {one: bpe, two: as_well}, config: {weights: {one: 1, two: 1}}}
  train:
    do: train
    inputs: {tokens: %s}
    config:
      model: {depth: 1, seq_len: 16%s}
      train: {train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}
"""


def planned(folder: Path, of: str, more: str) -> None:
    (folder / "experiment.yaml").write_text(STEPS % (of, more))
    planner.plan_folder(folder)


@pytest.mark.parametrize("of", ["bpe", "as_well", "both"])
@pytest.mark.parametrize("rows", ["", ", vocab_size: 511"])
def test_too_few_rows_are_refused_when_planned(tmp_path: Path, of: str, rows: str) -> None:
    with pytest.raises(BadExperiment) as it:
        planned(tmp_path, of, rows)
    (problem,) = it.value.problems
    assert problem.line == 12
    assert f"`{of}` has a vocabulary of up to 512 tokens" in problem.message
    assert problem.message.endswith("write `vocab_size: 512`")


@pytest.mark.parametrize("of", ["bpe", "both"])
def test_enough_rows_are_not(tmp_path: Path, of: str) -> None:
    planned(tmp_path, of, ", vocab_size: 512")
