"""The step `generate`: the same completions of the lab's models and of own ones, in a box and out
of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.data.lab_texts import read_text
from engine.data.tokenize import byte_tokenizer, train_bpe
from engine.model.generation import Completion
from runner.lib.problems import BadExperiment
from runner.planning import planner
from runner.spec import declaration
from runner.store.artifacts import MakingFailed
from runner.store.store import Store
from runner.worker import executor
from runner.worker.scores import generate
from tests.integration.runner.test_execute import made

ARMS = """\
title: A model and what it says
data: {source: text.txt}
own: {model: "model:Table"}
model: {seq_len: 64}
train: {train_batch_size: 2, num_train_steps: 2, learning_rate: 0.01}
eval: {tokens: 64}
resources: {kind: cpu}
arms: {table: {}}
samples: {prompts: ["def ", "import os, "], tokens: 12, temperature: 0.7, top_k: 9, seeds: [0, 4]}
"""
LABS = ARMS.replace('own: {model: "model:Table"}\n', "").replace(
    "{seq_len: 64}",
    "{hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 64}",
)
TEXT = "".join(f"import os, def line_{n}(x): return x + {n * n}\n" for n in range(1200))
OWN = """
import jax

class Table:
    def __init__(self, config):
        self.vocab, self.seq_len = config["vocab_size"], config["seq_len"]

    def init(self, key):
        return {"table": {"w": 3 * jax.random.normal(key, (self.vocab, self.vocab))}}

    def logits(self, params, tokens):
        return params["table"]["w"][tokens]
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Where the tests find the models that others of them trained."""
    return Store(tmp_path_factory.mktemp("generate") / "store")


def written(folder: Path, declared: str) -> Path:
    """The experiment in `folder`."""
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(declared)
    (folder / "model.py").write_text(OWN)
    (folder / "text.txt").write_text(TEXT)
    return folder


def completions(
    folder: Path, store: Store, declared: str, terms: executor.Terms = executor.OWN_MACHINE
) -> list[dict[str, Any]]:
    plan = planner.plan_folder(written(folder, declared), store)
    out = made(store, plan, terms=terms)["samples"].folder
    return [json.loads(line) for line in (out / "completions.jsonl").read_text().splitlines()]


def test_the_labs_model_continues_each_prompt_with_each_seed(store: Store, tmp_path: Path) -> None:
    said = completions(tmp_path / "labs", store, LABS)
    assert [(line["seed"], line["prompt"]) for line in said] == [
        (0, "def "), (0, "import os, "), (4, "def "), (4, "import os, ")
    ]  # fmt: skip
    assert len({line["completion"] for line in said}) == 4
    for line in said:
        assert line["model"] == "main,seed=0" or line["model"] == "table,seed=0"
        assert (line["tokens"], line["ended"]) == (12, "length")
        assert 12 * -10 < line["logprob"] < 0


@pytest.mark.slow
def test_an_own_model_says_the_same_in_a_box_and_out_of_it(store: Store, tmp_path: Path) -> None:
    boxed = executor.Terms("bubblewrap")
    one = completions(tmp_path / "own", Store(tmp_path / "store"), ARMS, boxed)
    other = completions(tmp_path / "own", store, ARMS)
    assert [line["completion"] for line in one] == [line["completion"] for line in other]
    np.testing.assert_allclose(
        [line["logprob"] for line in one], [line["logprob"] for line in other], rtol=1e-4
    )


def test_a_prompt_that_leaves_no_room_is_refused_where_it_is_declared() -> None:
    long = LABS.replace('"import os, "', f'"{"é" * 30}"')
    with pytest.raises(BadExperiment) as it:
        declaration.parse(long, "experiment.yaml")
    [problem] = it.value.problems
    assert (problem.line, problem.field) == (8, "samples.prompts.1")
    assert "with 12 tokens after it, it is longer than the context of a model, 64" in str(problem)


GRAPH = """\
title: A model and what it says
resources: {kind: cpu}
steps:
  bytes: {do: tokenize, config: {source: text.txt}}
  bpe: {do: tokenize, config: {source: text.txt, tokenizer: bpe, vocab_size: 300}}
  train:
    do: train
    inputs: {tokens: bytes}
    config:
      own: {model: "model:Table"}
      model: {seq_len: 64}
      train: {train_batch_size: 2, num_train_steps: 2, learning_rate: 0.01}
  samples:
    do: generate
    inputs: {models: train, tokens: bpe}
    config: {prompts: ["def "], tokens: 8}
"""


def test_a_prompt_of_unknown_length_is_refused_when_that_is_known(
    store: Store, tmp_path: Path
) -> None:
    bpe = GRAPH.replace("tokens: bytes", "tokens: bpe").replace("def ", "def é")
    bpe = bpe.replace("seq_len: 64", "seq_len: 64, vocab_size: 300")
    with pytest.raises(BadExperiment, match="with 64 tokens after it, it is longer"):
        declaration.parse(bpe.replace("tokens: 8", "tokens: 64"), "experiment.yaml")
    with pytest.raises(MakingFailed, match=r"prompt 0 has \d+ tokens, and with 63 more .* of 64"):
        completions(tmp_path, store, bpe.replace("tokens: 8", "tokens: 63"))


def test_a_model_is_asked_with_the_tokenizer_of_its_training(store: Store, tmp_path: Path) -> None:
    words = "the tokenizer has 300 tokens and a model's vocab_size is 256"
    with pytest.raises(MakingFailed, match=words):
        completions(tmp_path / "graph", store, GRAPH)


def test_a_model_without_probabilities_says_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nan = 'params["table"]["w"][tokens] * jax.numpy.where((tokens == 0).any(), jax.numpy.nan, 1)'
    monkeypatch.setitem(globals(), "OWN", OWN.replace('params["table"]["w"][tokens]', nan))
    graph = GRAPH.replace("tokens: bpe", "tokens: bytes")
    with pytest.raises(MakingFailed, match="a model's logits give no probabilities"):
        completions(tmp_path / "graph", store, graph)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("prompts", "[]", "there is nothing to continue"),
        ("tokens", "1000001", "1 prompts × 1 seeds × 1,000,001 tokens are too many"),
        ("prompts", "['']", "must not be empty"),
        ("temperature", "-1", "greater than or equal to 0"),
        ("top_p", "0", "greater than 0"),
        ("tokens", "0", "greater than 0, not `0`; write `tokens: 64`"),
        ("seeds", "[-1]", "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_sampled_is_said_where_it_is_declared(
    key: str, value: str, words: str
) -> None:
    head = ARMS.rpartition("samples:")[0]
    given = {"prompts": "['a']", "tokens": "12"} | {key: value}
    body = ", ".join(f"{name}: {of}" for name, of in given.items())
    with pytest.raises(BadExperiment) as it:
        declaration.parse(f"{head}samples: {{{body}}}\n", "experiment.yaml")
    [problem, *more] = it.value.problems
    assert problem.line == 9
    assert problem.field.startswith(f"samples.{key}")
    assert words in problem.message
    assert [one.field for one in more] == ["samples.prompts.0"] * (value == "1000001"), "too long"


def test_a_completion_ends_at_the_first_stop_or_with_its_document() -> None:
    bytes_, bpe = byte_tokenizer(), train_bpe(["some text " * 9], 270)
    [ids] = bytes_.encode_batch(["one\n\ntwo."])
    made = Completion(np.asarray(ids, np.int32), np.full(len(ids), -1.0))
    assert generate.ended(bytes_, made, ["two", "\n\n"]) == {
        "completion": "one", "tokens": 3, "logprob": -3.0, "ended": "stop"
    }  # fmt: skip
    assert generate.ended(bytes_, made, ["none"])["ended"] == "length"
    for text in ("aé", "😀😀", "é", ""):
        [ids] = bytes_.encode_batch([f"{text}!b"])
        made = Completion(np.asarray(ids, np.int32), np.full(len(ids), -1.0))
        assert generate.ended(bytes_, made, ["!"])["tokens"] == len(text.encode())
    [ids] = bpe.encode_batch(["some text"])
    whole = np.array([*ids, 0, *ids], np.int32)
    said = generate.ended(bpe, Completion(whole, np.full(len(whole), -1.0)), [])
    assert (said["completion"], said["ended"]) == ("some text", "end of document")
    said = generate.ended(bpe, Completion(np.array(ids), np.full(len(ids), -1.0)), ["ext"])
    held = [bpe.decode(ids[:n]) for n in range(len(ids) + 1)]
    assert said["completion"] == "some t"
    assert said["tokens"] == next(n for n, text in enumerate(held) if text.startswith("some t"))


def test_bytes_that_are_no_text_are_marked_and_unknown_ids_left_out() -> None:
    assert byte_tokenizer().decode([104, 105, 0xFF, 300]) == "hi\ufffd"


def test_prompts_are_also_in_a_file_and_in_the_validation_text(
    store: Store, tmp_path: Path
) -> None:
    declared = LABS.replace('prompts: ["def ", "import os, "]', "file: p.jsonl, held_out: 2")
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs/p.jsonl").write_text('{"prompt": "def "}\n\n{"prompt": "a\\nb"}\n')
    said = completions(tmp_path / "labs", store, declared)
    [first, second, third, fourth] = [line["prompt"] for line in said if line["seed"] == 0]
    assert [first, second] == ["def ", "a\nb"]
    text = read_text("text.txt", tmp_path / "labs").validation.decode(errors="replace")
    assert text.startswith(third)
    assert (len(third), len(fourth)) == (32, 32)
    assert text[64:].startswith(fourth)  # the second window, since it is one document


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.txt", "\n\n", "has 0 prompts"),
        ("p.txt", "a\n" * 1001, "has 1,001 prompts"),
        ("p.txt", "x" * 20_001, "line 1 has a prompt of 20,001 characters"),
        ("p.jsonl", '{"prompt": "a"}\n{"text": "b"}', r"line 2 is not {\"prompt\""),
        ("p.jsonl", "[" * 100_000, "is not JSON: it is nested too deeply"),
        ("p.csv", "a", "neither .txt"),
        (None, "", "is not a file in the experiment's folder"),
    ],
)
def test_a_file_of_prompts_that_cannot_be_read_starts_nothing(
    name: str | None, content: str, words: str, tmp_path: Path
) -> None:
    if name:
        (tmp_path / name).write_text(content)
    declared = LABS.replace('prompts: ["def ", "import os, "]', f"file: {name or 'p.txt'}")
    written(tmp_path, declared)
    with pytest.raises(BadExperiment, match=words) as it:
        planner.plan_folder(tmp_path)
    [problem] = it.value.problems
    assert problem.field == "samples.file"
