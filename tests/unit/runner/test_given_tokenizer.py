"""The step that takes a tokenizer, from a file of the experiment's folder or by its name in the
lab."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.data.token_store import TokenStore
from engine.data.tokenize import BadTokenizer, train_bpe
from runner.lib.problems import BadExperiment
from runner.planning import planned_steps, planner
from runner.publish import corpora
from runner.schema.corpora import Corpus
from runner.schema.lab_config import CORPORA
from runner.spec import corpus_steps, declaration
from runner.spec.step_types import KEPT
from runner.store.store import Store
from runner.worker.texts import tokens

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


# ── By name ──────────────────────────────────────────────────────────────────────────────────

NAMED = DECLARED.replace("file: mine.json", "corpus: words@1")
ENTRY = {"where": "hub", "format": "tokenizer", "licence": "MIT"}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("REGATTA_CACHE", str(tmp_path / "cache"))
    return Store(tmp_path / "store")


def fetched(folder: Path, store: Store, **more: Any) -> None:
    """Fetch the tokenizer of `folder` from a place, under a name; and declare that name."""
    lab = folder.parent.parent
    (lab / "hub").mkdir(exist_ok=True)
    (folder / "mine.json").rename(lab / "hub/tokenizer.json")
    (lab / "hub/weights").write_text("not wanted")
    entry = {**ENTRY, **more}
    found = corpora.fetch(store, "words@1", Corpus.model_validate(entry), lab)
    (lab / CORPORA).parent.mkdir(parents=True)
    (lab / CORPORA).write_text(json.dumps({"words@1": {**entry, "fetched": found.model_dump()}}))
    (folder / "experiment.yaml").write_text(NAMED)


def test_a_tokenizer_is_taken_by_the_name_under_which_it_was_fetched(
    folder: Path, store: Store, tmp_path: Path
) -> None:
    fetched(folder, store)
    plan = planner.plan_folder(folder, store)
    (line,) = corpus_steps.told(plan.steps)
    assert line.startswith("words@1: MIT, 1 file, ")
    step = plan.steps["words"]
    place = planner.kept_folder(step)
    assert place
    (out := tmp_path / "out").mkdir()
    tokens.take_tokenizer(step.config, {KEPT: store.fetch(place)}, out)
    given = tokens.written_tokenizer(out)
    assert given
    assert given.sha256 == train_bpe(iter([TEXT]), 300).sha256
    (store.local(place) / "files/tokenizer.json").write_text("{}")
    with pytest.raises(BadTokenizer, match="`regatta corpus check words@1` says what is damaged"):
        tokens.take_tokenizer(step.config, {KEPT: store.local(place)}, out)


def test_a_tokenizer_that_was_not_fetched_is_named_with_the_command(
    folder: Path, store: Store, tmp_path: Path
) -> None:
    fetched(folder, store)
    with pytest.raises(BadExperiment, match="fetches them with `regatta corpus fetch words@1`"):
        planner.plan_folder(folder, Store(tmp_path / "another"))


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (NAMED.replace("words@1", "word@1"), "no corpus `word@1`; did you mean `words@1`"),
        (NAMED.replace("do: tokenizer", "do: corpus"), "is not a corpus but a tokenizer; write"),
        (
            NAMED.replace("words@1", "words@1, file: a.json"),
            "comes from one place",
        ),
    ],
)
def test_a_name_that_is_no_tokenizers_is_refused(
    folder: Path, store: Store, declared: str, words: str
) -> None:
    fetched(folder, store)
    (folder / "experiment.yaml").write_text(declared)
    with pytest.raises(BadExperiment, match=words):
        planner.plan_folder(folder, store)


def test_several_files_are_no_tokenizer(folder: Path, store: Store, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub/b.json").write_text("{}")
    fetched(folder, store, files=["*.json"])
    step = planner.plan_folder(folder, store).steps["words"]
    place = planner.kept_folder(step)
    assert place
    with pytest.raises(BadTokenizer, match="words@1 has 2 files, and a tokenizer is one"):
        tokens.take_tokenizer(step.config, {KEPT: store.fetch(place)}, tmp_path)
