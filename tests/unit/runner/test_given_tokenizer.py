"""The step that takes a tokenizer from a file of the experiment's folder."""

from pathlib import Path

import pytest

from engine.data.token_store import TokenStore
from engine.data.tokenize import BadTokenizer, train_bpe
from runner.lib.problems import BadExperiment
from runner.planning import planned_steps, planner
from runner.spec import declaration
from runner.spec.step_types import KEPT
from runner.store.store import Store
from runner.worker.builtin import tokens

DECLARED = """title: A tokenizer
resources: {kind: cpu}
steps:
  words: {do: tokenizer, config: {file: mine.json}}
  tokens:
    do: tokenize
    inputs: {tokenizer: words}
    config: {source: stdlib, tokenizer: given}
"""
TEXT = "the more the merrier, the more the better " * 50


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "experiments/a"
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text(DECLARED)
    (folder / "mine.json").write_text(train_bpe(iter([TEXT]), 300).definition)
    return folder


def test_a_tokenizer_of_the_experiments_folder_is_kept_and_taken(
    folder: Path, tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    step = planner.plan_folder(folder, store).steps["words"]
    place = planner.kept_folder(step)
    assert place
    (out := tmp_path / "out").mkdir()
    tokens.take_tokenizer(step.config, {KEPT: store.fetch(place)}, out)
    given = tokens.written_tokenizer(out)
    assert given
    assert given.sha256 == train_bpe(iter([TEXT]), 300).sha256
    (text := tmp_path / "text").mkdir()
    for split in ("train", "validation"):
        (text / f"{split}.jsonl").write_text('{"text": "the more the merrier"}\n')
    (stores := tmp_path / "stores").mkdir()
    config = {"source": None, "tokenizer": "given", "sha256": {}}
    tokens.tokenize(config, {"text": text, "tokenizer": out}, stores)
    assert TokenStore.open(stores / "train").manifest.tokenizer_sha256 == given.sha256
    (store.local(place) / "tokenizer.json").write_text("{}")
    with pytest.raises(BadTokenizer, match="is not the file of the plan"):
        tokens.take_tokenizer(step.config, {KEPT: store.local(place)}, out)


def test_its_name_does_not_matter_but_its_content_does(folder: Path) -> None:
    first = planner.plan_folder(folder).steps["words"].fingerprint
    (folder / "mine.json").rename(folder / "yours.json")
    (folder / "experiment.yaml").write_text(DECLARED.replace("mine", "yours"))
    assert planner.plan_folder(folder).steps["words"].fingerprint == first
    (folder / "yours.json").write_text(train_bpe(iter([TEXT]), 260).definition)
    assert planner.plan_folder(folder).steps["words"].fingerprint != first


def test_a_tokenizer_that_is_missing_is_named_with_its_line(folder: Path) -> None:
    graph = declaration.load(folder)
    assert planned_steps.files_of(graph.nodes["words"]) == ["mine.json"]
    (folder / "mine.json").unlink()
    with pytest.raises(BadExperiment, match=r"line 4, `steps.words.config.file`: .*mine.json"):
        planner.plan_folder(folder)
