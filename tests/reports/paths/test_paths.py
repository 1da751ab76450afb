"""An experiment is the same wherever it is named from, and by whatever path: its task files, its
texts and its code are found.

EleutherAI/lm-evaluation-harness#3424 and UKGovernmentBEIS/inspect_ai#5267 (relative paths);
gruntwork-io/runbooks#33 (below a link, as /tmp is on a Mac), facebook/usort#53 (from outside) and
facebookexperimental/object-introspection#500 (a link to it)."""

import json
import os
from pathlib import Path

import pytest

from tests.unit.runner.test_cli import ask

DECLARED = """\
title: What is found from where?
data: {source: texts/text.txt, tokenizer: byte}
model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2, seq_len: 32}
train: {train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}
eval: {tokens: 64}
samples: {prompts: [One], tokens: 4}
benchmarks: {tasks: [tasks/sky.jsonl], lm_eval: [{task: sums.yaml}], data: rows}
resources: {kind: cpu}
"""
FILES = {
    "texts/text.txt": "One and two are three.\n" * 400,
    "tasks/sky.jsonl": '{"context": "The sky is", "choices": [" blue", " green"], "answer": 0}\n',
    "sums.yaml": "task: sums\ndataset_path: sums\noutput_type: multiple_choice\n"
    "validation_split: validation\ndoc_to_text: q\ndoc_to_choice: [a, b]\ndoc_to_target: 0\n"
    "metric_list: [{metric: acc}]\n",
    "rows/sums/validation.jsonl": '{"q": "Which?"}\n',
}
# Where somebody stands below the root, and what is typed there.
WAYS = {
    "above": (".", "lab/experiments/x"),
    "in the lab": ("lab", "experiments/x"),
    "by name": ("lab", "x"),
    "beside": ("lab/experiments", "x"),
    "beside another": ("lab/experiments/y", "../x"),
    "inside": ("lab/experiments/x", "."),
    "its file": ("lab/experiments/x", "experiment.yaml"),
    "roundabout": ("lab", "experiments/../experiments/./x"),
    "absolute": ("lab", "ROOT/lab/experiments/x"),
    "a link to it": (".", "link"),
    "below a link": (".", "lab-link/experiments/x"),
    "inside a link": ("lab-link/experiments/x", "."),
    "absolute through a link": (".", "ROOT/lab-link/experiments/x"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "lab" / "experiments" / "x"
    (tmp_path / "lab" / "experiments" / "y").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "experiment.yaml").write_text(DECLARED)
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "lab-link").symlink_to(tmp_path / "lab")
    return tmp_path


def fingerprint(root: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> str:
    at, path = WAYS[way]
    monkeypatch.chdir(root / at)
    monkeypatch.setenv("PWD", os.fspath(root / at))
    said = path.replace("ROOT", str(root))
    for words in (["check", said], ["run", said, "--dry-run"], ["plan", said, "--json"]):
        answer = ask(*words)
        assert answer.exit_code == 0, f"{words}: {answer.output}"
    return str(json.loads(answer.stdout)["fingerprint"])


@pytest.mark.parametrize("way", WAYS)
def test_the_plan_does_not_depend_on_how_the_folder_is_named(
    way: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = fingerprint(root, "in the lab", monkeypatch)
    assert fingerprint(root, way, monkeypatch) == once
