"""Models leave as Hugging Face folders and come in from them: the steps `export` and `import`, and
the commands `export`, `import` and `chat`."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hugging_face
import numpy as np
import pytest
from typer.testing import CliRunner

from engine.config.schema import ModelConfig
from engine.data.tokenize import train_bpe
from engine.model.decoder import Decoder
from engine.training import pretrained
from runner.cli import main
from runner.lib.problems import BadExperiment
from runner.lib.untrusted_files import printable
from runner.planning import planner
from runner.store import artifacts
from runner.store.store import Store
from runner.worker.models import trained
from tests.integration.runner.test_execute import made
from tests.integration.runner.test_generate import TEXT

TRAINED = """\
title: A model that goes home
resources: {kind: cpu}
steps:
  tokens: {do: tokenize, config: {source: text.txt}}
  train:
    do: train
    inputs: {tokens: tokens}
    config:
      model: {hidden_dim: 16, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 64}
      train: {train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}
  scores: {do: evaluate, inputs: {models: train, tokens: tokens}, config: {tokens: 256}}
  home:
    do: export
    inputs: {models: train, tokens: tokens, scores: scores}
    config: {licence: mit}
"""
TAKEN = """\
title: A model that comes in
resources: {kind: cpu}
steps:
  model: IMPORT
  tokens: {do: tokenize, inputs: {tokenizer: model}, config: {source: text.txt, tokenizer: given}}
  scores: {do: evaluate, inputs: {models: model, tokens: tokens}, config: {tokens: 256}}
  said:
    do: generate
    inputs: {models: model, tokens: tokens}
    config: {prompts: ["import "], tokens: 8, temperature: 0}
  tuned:
    do: train
    inputs: {tokens: tokens, init: model}
    config: {model: MODEL, train: {train_batch_size: 2, num_train_steps: 3, learning_rate: 0.001}}
  home: {do: export, inputs: {models: tuned, tokens: tokens}}
"""
TOKENS = np.random.default_rng(1).integers(0, 256, (2, 40)).astype(np.int32)


def ask(*words: object) -> Any:
    return CliRunner().invoke(main.app, [str(word) for word in words])


def run(folder: Path, store: Store, declared: str) -> Mapping[str, artifacts.Made]:
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(declared)
    (folder / "text.txt").write_text(TEXT)
    return made(store, planner.plan_folder(folder, store))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, artifacts.Made]:
    """A model that was trained and exported."""
    place = tmp_path_factory.mktemp("home")
    return run(place / "goes-home", Store(place / "store"), TRAINED)


def written(folder: Path, kind: str, **more: Any) -> Path:
    """A model and its tokenizer, as `transformers` writes them."""
    tokenizer = train_bpe(["import os, import sys, def a(b): return c"] * 9, 270)
    fields = {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 48, "eos_token_id": 0}
    hugging_face.fresh(kind, **(fields | more)).save_pretrained(folder)
    tokenizer.save(folder / "tokenizer.json")
    (folder / "train.py").write_text("raise SystemExit('code of a stranger')")
    return folder


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("theirs"), "qwen3")


LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}


def test_transformers_loads_what_export_writes_with_our_logits(
    home: Mapping[str, artifacts.Made],
) -> None:
    folder, source = home["home"].folder, home["train"].folder
    decoder = Decoder(ModelConfig(**trained.planned(source).config))
    ours = np.asarray(decoder.logits(trained.params_of(source, decoder), TOKENS))
    theirs = hugging_face.logits_of(hugging_face.load(folder))(TOKENS)
    assert np.abs(ours - theirs).max() < 1e-4
    tokenizer = hugging_face.tokenizer(folder)
    assert tokenizer.decode(tokenizer("def äö")["input_ids"]) == "def äö"


def test_the_card_has_the_scores_that_the_lab_measured(home: Mapping[str, artifacts.Made]) -> None:
    card = (home["home"].folder / "README.md").read_text()
    bpb = json.loads((home["scores"].folder / "scores.json").read_text())[""]["bpb"]
    assert f"| `eval/bpb` | {bpb:.4f} |" in card
    assert "A model that goes home" in card
    assert 'license: "mit"' in card


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("qwen3", {}),
        ("olmo2", {"pad_token_id": None}),
        *(
            pytest.param(*of, marks=pytest.mark.slow)
            for of in (
                ("qwen2", {"tie_word_embeddings": True}),
                ("llama", {"rope_parameters": LLAMA3}),
                ("mistral", {"sliding_window": 8}),
            )
        ),
    ],
)
def test_a_model_of_transformers_is_imported_scored_asked_tuned_and_exported(
    kind: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    at, theirs = tmp_path / "store", written(tmp_path / "theirs", kind, **fields)
    said = ask("import", theirs, "--store", at)
    assert said.exit_code == 0, said.output
    outputs = run(tmp_path / "taken", Store(at), taken(_step(said.stdout), theirs))
    decoder = Decoder(ModelConfig(**trained.planned(outputs["model"].folder).config))
    tokens = TOKENS % decoder.config.vocab_size
    params = trained.params_of(outputs["model"].folder, decoder)
    expected = hugging_face.logits_of(hugging_face.load(theirs))(tokens)
    assert np.abs(np.asarray(decoder.logits(params, tokens)) - expected).max() < 1e-4
    [score] = json.loads((outputs["scores"].folder / "scores.json").read_text()).values()
    assert score["targets"] == 256
    assert len((outputs["said"].folder / "completions.jsonl").read_text().splitlines()) == 1
    tuned = trained.params_of(outputs["tuned"].folder, decoder)
    moved = np.abs(tuned["embedding"] - params["embedding"])
    assert 0 < moved.max() < 0.02  # it began with the imported parameters
    back = hugging_face.load(outputs["home"].folder)
    assert back.config.model_type == kind
    ours = np.asarray(decoder.logits(tuned, tokens))
    assert np.abs(hugging_face.logits_of(back)(tokens) - ours).max() < 1e-4


def taken(step: str, theirs: Path) -> str:
    """The experiment with an `import` step of the model `theirs`, and its shape as a declaration
    has it."""
    model = pretrained.read(theirs, None)[0].model_dump(mode="json", exclude_defaults=True)
    return TAKEN.replace("IMPORT", step).replace("MODEL", json.dumps(model))


def shown(text: str) -> str:
    """As a terminal may show it."""
    return "\n".join(map(printable, text.split("\n")))


def _step(printed: str) -> str:
    key, _, step = printed.strip().splitlines()[-1].partition(": ")
    assert key == "import"
    return step


def test_a_model_that_the_store_lacks_starts_nothing(theirs: Path, tmp_path: Path) -> None:
    step = f"{{do: import, config: {{model: theirs, sha256: {'ab' * 32}}}}}"
    with pytest.raises(BadExperiment, match=r"`regatta import theirs`, which prints the digest"):
        run(tmp_path / "taken", Store(tmp_path / "store"), taken(step, theirs))


def test_a_model_whose_files_were_changed_in_the_store_is_refused(
    theirs: Path, tmp_path: Path
) -> None:
    at = tmp_path / "store"
    declared = taken(_step(ask("import", theirs, "--store", at).stdout), theirs)
    [weights] = (at / "models").glob("*/model.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(artifacts.MakingFailed, match="are not those with this digest"):
        run(tmp_path / "taken", Store(at), declared)


def test_what_is_no_model_is_not_imported(tmp_path: Path, theirs: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = ask("import", tmp_path / "empty", "--store", tmp_path / "store")
    assert said.exit_code == 1
    assert "config.json cannot be read" in said.stderr
    said = ask("import", "nonsense", "--store", tmp_path / "store")
    assert said.exit_code == 2
    assert "ORG/NAME" in said.stderr
    other = tmp_path / "other"
    shutil.copytree(theirs, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"mlp_bias": True}))
    said = ask("import", other, "--store", tmp_path / "store")
    assert "`mlp_bias` is true, and only false is read" in said.stderr
    shutil.copy(theirs / "config.json", other)
    (other / "chat_template.jinja").write_text("{{ messages[0].content | nofilter }}")
    said = ask("import", other, "--store", tmp_path / "store")
    assert "cannot be used: the chat template fails: No filter named 'nofilter'" in said.stderr
    assert "repair it, or remove it" in said.stderr
    (other / "config.json").rename(tmp_path / "elsewhere.json")
    (other / "config.json").symlink_to(tmp_path / "elsewhere.json")
    said = ask("import", other, "--store", tmp_path / "store")
    assert said.exit_code == 2
    assert "is a link to" in said.stderr
    assert not (tmp_path / "store/models").exists()


def test_the_hub_that_cannot_be_reached_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    said = ask("import", "nobody/nothing@v1", "--store", tmp_path / "store")
    assert said.exit_code == 1
    assert "nobody/nothing@v1 could not be fetched from http://127.0.0.1:9" in said.stderr


def test_one_talks_to_an_exported_model(home: Mapping[str, artifacts.Made]) -> None:
    asked = ("chat", home["home"].folder, "--temperature", 0, "--tokens", 6)
    said = ask(*asked, "--prompt", "def ")
    assert said.exit_code == 0, said.output
    import torch

    tokenizer, model = (f(home["home"].folder) for f in (hugging_face.tokenizer, hugging_face.load))
    ids = torch.tensor([tokenizer("def ")["input_ids"]])
    theirs = model.generate(ids, max_new_tokens=6, do_sample=False)[0][ids.shape[1] :]
    assert said.stdout == shown(tokenizer.decode(theirs)) + "\n"
    said = ask(*asked, "--prompt", "x" * 64)
    assert said.exit_code == 2
    assert "has 64 tokens, and the model's context is 64; write less" in said.stderr
    said = CliRunner().invoke(main.app, [str(word) for word in asked], input="a\n\nb\n")
    assert said.exit_code == 0
    assert len(said.stdout.splitlines()) >= 2
    assert "it has no chat template, so it continues each line that you write" in said.stderr
