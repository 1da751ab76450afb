"""One graph with every type of step, made by real jobs of a real Ray, as `regatta run` makes it:
what is found by a step at home is found by its job."""

import json
from pathlib import Path

import jax
import pytest

from engine.config.schema import ModelConfig
from engine.data.tokenize import train_bpe
from engine.model.decoder import Decoder
from engine.training.export import export
from runner.isolation import bubblewrap
from runner.schema.lab_config import CORPORA
from runner.spec.step_types import BUILT_IN
from runner.store.store import Store
from tests.reports.benchmark import hub_data
from tests.unit.runner.test_cli import ask

MODEL = (
    "{hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2, seq_len: 128,"
    " vocab_size: 320}"
)
DECLARED = f"""\
title: Does each type of step find in a job what it finds at home?
resources: {{kind: cpu}}
steps:
  web: {{do: corpus, config: {{corpus: web@1}}}}
  pages: {{do: extract, inputs: {{text: web}}}}
  loud: {{do: map, inputs: {{text: pages}}, config: {{function: own:loud}}}}
  both: {{do: join, inputs: {{pages: pages, loud: loud}}}}
  once: {{do: dedup, inputs: {{text: both}}}}
  long: {{do: filter, inputs: {{text: once}}, config: {{least_characters: 20}}}}
  clean: {{do: decontaminate, inputs: {{text: long}}, config: {{tasks: [sky.jsonl]}}}}
  labels: {{do: label, inputs: {{text: clean}}, config: {{documents: 40, rule: "[02468],"}}}}
  scores: {{do: classify, inputs: {{text: clean, labels: labels}}}}
  best: {{do: select, inputs: {{text: clean, scores: scores}}, config: {{fraction: 0.5}}}}
  words: {{do: tokenizer, config: {{file: tokenizer.json}}}}
  tokens: {{do: tokenize, inputs: {{text: best, tokenizer: words}}, config: {{tokenizer: given}}}}
  file:
    do: tokenize
    inputs: {{tokenizer: words}}
    config: {{source: text.txt, tokenizer: given}}
  mixed: {{do: mix, inputs: {{a: tokens, b: file}}, config: {{weights: {{a: 0.5, b: 0.5}}}}}}
  tuned:
    do: tune
    inputs: {{tokens: mixed}}
    config:
      model: {MODEL}
      train: {{train_batch_size: 2, num_train_steps: 3, learning_rate: 0.01}}
      search: {{search: coordinate, trials: 4, seeds: [8, 9], times: {{learning_rate: [0.5, 1]}}}}
      eval: {{tokens: 128}}
  train:
    do: train
    inputs: {{tokens: mixed, settings: tuned}}
    config:
      model: {MODEL}
      train: {{train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}}
  chats:
    do: conversations
    inputs: {{tokenizer: file}}
    config: {{source: chats.jsonl, template: chatml, max_tokens: 128}}
  chat:
    do: train
    inputs: {{tokens: chats, init: train}}
    config:
      model: {MODEL}
      train: {{train_batch_size: 2, num_train_steps: 2, learning_rate: 0.01}}
  brought: {{do: import, config: {{model: "MODEL", sha256: "DIGEST"}}}}
  evaluate: {{do: evaluate, inputs: {{models: train, tokens: file}}, config: {{tokens: 128}}}}
  theirs: {{do: evaluate, inputs: {{models: brought, tokens: file}}, config: {{tokens: 128}}}}
  said:
    do: generate
    inputs: {{models: chat, tokens: file}}
    config: {{prompts: [One], tokens: 4}}
  tasks:
    do: benchmark
    inputs: {{models: train, tokens: file}}
    config: {{lm_eval: [{{task: winogrande, shots: 0}}], items: 4}}
  export: {{do: export, inputs: {{models: train, tokens: file, scores: evaluate}}}}
  compare: {{do: compare, inputs: {{scores: evaluate, others: theirs}}}}
"""
OWN = "def loud(text):\n    return text.upper()\n"


def cached(folder: Path) -> None:
    """Fill a cache of `datasets` with WinoGrande, as its own writer lays it out."""
    import datasets
    from datasets.arrow_writer import ArrowWriter

    place = folder / "allenai___winogrande" / "winogrande_xl" / "0.0.0" / "0123abcd"
    place.mkdir(parents=True)
    splits = datasets.SplitDict(dataset_name="winogrande")
    for split in ("train", "validation"):
        path = str(place / f"winogrande-{split}.arrow")
        with ArrowWriter(path=path) as writer:
            for n in range(6):
                writer.write(hub_data.winogrande(n))
            count, size = writer.finalize()
            features = writer._features
        splits.add(datasets.SplitInfo(split, size, count))
    about = datasets.DatasetInfo(
        features=features,
        splits=splits,
        builder_name="parquet",
        dataset_name="winogrande",
        config_name="winogrande_xl",
        version="0.0.0",
    )
    about.write_to_directory(str(place))


@pytest.mark.long
@pytest.mark.skipif(bool(bubblewrap.probe()), reason=f"no isolation: {bubblewrap.probe()}")
def test_every_type_of_step_is_made_in_a_job_and_its_needs_are_looked_for_before_anything_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA-NeMo/NeMo-Retriever#1893, mozilla-ai/lumigator#935: HF_HOME does not reach Ray's
    workers. First the data of a benchmark are missing, then they are in the cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGATTA_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "experiments" / "all"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    texts = [f"This is page number {n}, which tells what {n} is.\n" for n in range(400)]
    (folder / "text.txt").write_text("".join(texts))
    (folder / "own.py").write_text(OWN)
    item = {"context": "The sky is", "choices": [" blue", " green"], "answer": 0}
    (folder / "sky.jsonl").write_text(json.dumps(item) + "\n")
    talk = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    chats = (json.dumps({"messages": talk}) + "\n" for _ in range(80))
    (folder / "chats.jsonl").write_text("".join(chats))
    tokenizer = train_bpe(texts, 300)
    (folder / "tokenizer.json").write_text(tokenizer.definition)
    pages = (
        {"id": f"p{n}", "text": f"<html><body><h1>{n}</h1><p>{text}</p></body></html>"}
        for n, text in enumerate(texts)
    )
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    (tmp_path / CORPORA).parent.mkdir(parents=True)
    (tmp_path / CORPORA).write_text("")
    for words in (
        "corpus add web@1 raw --format jsonl --licence mit --share 0.2",
        "corpus fetch web@1",
    ):
        answer = ask(*words.split())
        assert answer.exit_code == 0, answer.output
    config = ModelConfig(
        hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, seq_len=128, vocab_size=300
    )
    brought = tmp_path / "brought"
    decoder = Decoder(config)
    export(brought, decoder, decoder.init(jax.random.key(0)), tokenizer)
    answer = ask("import", brought, "--json")
    assert answer.exit_code == 0, answer.output
    step = json.loads(answer.stdout)["config"]
    declared = DECLARED.replace("MODEL", step["model"]).replace("DIGEST", step["sha256"])
    (folder / "experiment.yaml").write_text(declared)
    answer = ask("run", "all")
    assert answer.exit_code == 1
    assert "no task of lm_eval can be asked here, so nothing was trained" in answer.output
    assert not list(Path("store/steps").glob("*"))
    cached(tmp_path / "hf" / "datasets")
    answer = ask("run", "all")
    assert answer.exit_code == 0, answer.output
    [items] = Path("store/steps").rglob("items.jsonl")
    answers = [json.loads(line)["answer"] for line in items.read_text().splitlines()]
    assert answers == [0, 1, 0, 1]
    folders = (path.parent.name for path in Store("store").local("steps").glob("*/*/"))
    made = {name.rpartition(".")[2] for name in folders}  # those of own code are `all.map`
    assert made >= {*BUILT_IN}, {*BUILT_IN} - made
