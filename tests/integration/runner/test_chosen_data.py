"""Labels by an own function, a classifier, and the documents that it finds best: made in processes,
as an execution does it."""

import json
from pathlib import Path

from runner.planning import planner
from runner.schema import step_graph
from runner.store import artifacts
from runner.store.store import Store
from runner.worker import executor
from tests.integration.runner.test_execute import HEAD, planned

OWN = """
import json

def prepare(config, inputs, out):
    for split, count in (("train", 400), ("validation", 20)):
        rows = [{"id": f"{split} {n}", "text": text(n)} for n in range(count)]
        (out / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))

def text(n):
    return f"def f{n}(x): return x" if n % 4 == 0 else f"The cat {n} sat on a mat."

def quality(document):
    return 5 if document["text"].startswith("def") else 1
"""
DECLARED = f"""{HEAD}steps:
  prepare: {{do: own:prepare}}
  labels:
    {{do: label, inputs: {{text: prepare}}, config: {{documents: 300, function: own:quality}}}}
  judge: {{do: classify, inputs: {{text: prepare, labels: labels}}}}
  best: {{do: select, inputs: {{text: prepare, scores: judge}}, config: {{fraction: 0.25}}}}
  bert:
    do: classify
    inputs: {{text: prepare, labels: labels}}
    config:
      transformer:
        {{hidden_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16, vocab_size: 300, epochs: 2}}
  tokens: {{do: tokenize, inputs: {{text: best}}}}
  train:
    do: train
    inputs: {{tokens: tokens}}
    config:
      model: {{hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2, seq_len: 16}}
      train: {{train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}}
  ridge:
    do: classify
    inputs: {{text: prepare, labels: labels, model: train, tokens: tokens}}
    config: {{ridge: {{}}}}
  table: {{do: compare, inputs: {{judge: judge, bert: bert, ridge: ridge}}}}
"""


def test_from_labels_to_the_best_documents(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plan = planned(tmp_path, store, DECLARED, own=OWN)
    code = store.local(planner.code_folder(plan))
    made = {}
    for name in step_graph.order({name: step.needs for name, step in plan.steps.items()}):
        executor.make(store, name, plan.steps, plan.kinds, code, "x1", terms=executor.OWN_MACHINE)
        step = plan.steps[name]
        found = artifacts.find(store, step.store, step.fingerprint)
        assert found
        made[name] = found.folder
    best = (made["best"] / "train.jsonl").read_text().splitlines()
    assert len(best) == 100
    assert all(json.loads(line)["text"].startswith("def") for line in best)
    table = (made["table"] / "table.md").read_text()
    assert "`labels/auc` | `judge` | 1.0000 | 1 " in table
    assert "`labels/auc` | `bert` | 1.0000 | 1 " in table
    assert "`labels/auc` | `ridge` | 1.0000 | 1 " in table
