"""The step `benchmark`: scores of tasks, of the lab's models and of own ones, in a box and out of
it."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.isolation import bubblewrap
from runner.lib import human_eval
from runner.lib.problems import BadExperiment
from runner.planning import planner
from runner.spec.benchmarks import measures
from runner.spec.step_types import KEPT
from runner.store.store import Store
from runner.worker import executor
from runner.worker.scores import benchmark, lm_eval_tasks, task_scores
from tests.integration.runner.test_execute import made
from tests.integration.runner.test_lm_eval import TASKS_OF_LM_EVAL

LABS = """\
title: What a model prefers
data: {source: lab-2026-11}
model: {hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 64}
train: {train_batch_size: 2, num_train_steps: 2, learning_rate: 0.01}
eval: {tokens: 64}
resources: {kind: cpu}
benchmarks:
  tasks: [cloze, lexical-choice, sky.jsonl, sums.jsonl, prose.jsonl]
  items: 40
  tokens: 9
"""
OWN = LABS.replace(
    "{hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 64}",
    "{seq_len: 64}\nown: {model: 'model:NAME'}",
)
FILES = {
    "sky.jsonl": [
        {"context": "The sky is", "choices": [" blue", " gray", " pink"], "answer": 0},
        {"context": "The grass is ", "choices": ["blue", "lime", "pink"], "answer": 1},
    ],
    "sums.jsonl": [{"prompt": "2 + 3 =", "answer": " 5"}, {"prompt": "1 + 3 =", "answer": " 4"}],
    "prose.jsonl": [{"text": "It was a dark and stormy night. " * 9}, {"text": "Short é."}],
}
CODE = """
import jax, jax.numpy as jnp

class Uniform:
    def __init__(self, config):
        self.vocab, self.seq_len = config["vocab_size"], config["seq_len"]

    def init(self, key):
        return {"table": {"w": jax.random.normal(key, (self.vocab, self.vocab))}}

    def logits(self, params, tokens):
        return 0.0 * params["table"]["w"][tokens]

class Table(Uniform):
    def logits(self, params, tokens):
        return 3 * params["table"]["w"][tokens]

def loss(config, logits, targets):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)[..., 0]

class LooksAhead(Uniform):  # at every second position, which `evaluate` finds only by its probe
    def logits(self, params, tokens):
        after = jnp.roll(tokens, -1, axis=1) * (jnp.arange(tokens.shape[1]) % 2 == 0)
        return 9 * jax.nn.one_hot(after, self.vocab) + 0 * params["table"]["w"][tokens]
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Where the tests find what others of them have made."""
    return Store(tmp_path_factory.mktemp("benchmark") / "store")


def declared(folder: Path, text: str, files: dict[str, Any] = FILES) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(text)
    (folder / "model.py").write_text(CODE)
    for name, items in files.items():
        (folder / name).write_text("".join(json.dumps(item) + "\n" for item in items))
    return folder


def benchmarked(
    folder: Path, store: Store, text: str, terms: executor.Terms = executor.OWN_MACHINE
) -> tuple[dict[str, Any], list[dict[str, Any]], Path]:
    """The scores of the only model, the lines of its items, and the step's output."""
    plan = planner.plan_folder(declared(folder, text), store)
    out = made(store, plan, terms=terms)["benchmarks"].folder
    scores = json.loads((out / "measured.json").read_text())
    lines = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    if scores:
        [scores] = scores.values()
        assert tuple(scores) == tuple(sorted(measures(plan.steps["benchmarks"].config)))
    return scores, lines, out


def test_the_labs_model_is_scored_on_every_task_and_scores_follow_from_the_items(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)  # an extra: these tasks do without it
    scores, lines, _ = benchmarked(tmp_path / "labs", store, LABS)
    assert Counter(line["task"] for line in lines) == {
        "cloze": 40, "lexical-choice": 40, "sky": 2, "sums": 2, "prose": 2
    }  # fmt: skip
    kinds = {"sums": "answer", "prose": "text"}
    for task in Counter(line["task"] for line in lines):
        mine = [line for line in lines if line["task"] == task]
        for what, score in task_scores.scores_of(kinds.get(task, "choice"), mine).items():
            assert score
            assert scores[f"task/{task}/{what}"] == score.model_dump()
    assert scores["task/cloze/accuracy"]["chance"] == 0.25
    assert scores["task/lexical-choice/accuracy"]["chance"] == 0.5
    assert 5 < scores["task/prose/bpb"]["value"] < 10  # it has learned next to nothing


@pytest.mark.slow
def test_an_own_model_scores_the_same_in_a_box_and_out_of_it(store: Store, tmp_path: Path) -> None:
    text = OWN.replace("NAME", "Table")
    boxed = executor.Terms("bubblewrap")
    _, one, out = benchmarked(tmp_path / "own", Store(tmp_path / "store"), text, boxed)
    _, other, _ = benchmarked(tmp_path / "own", store, text)
    assert not (out / "void.json").exists()
    for line, like in zip(one, other, strict=True):
        np.testing.assert_allclose(line["logprobs"], like["logprobs"], rtol=1e-4)
        assert {**line, "logprobs": 0} == {**like, "logprobs": 0}


def test_humaneval_is_scored_by_bits_per_byte_from_what_the_plan_kept(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, _, _ = LABS.replace("seq_len: 64", "seq_len: 1024").rpartition("benchmarks:")
    text = head + "benchmarks: {tasks: [humaneval], items: 2}\n"
    plan = planner.plan_folder(declared(tmp_path / "labs", text), store)
    assert plan.steps["benchmarks"].config["files"]["humaneval"]["items"] == 164
    monkeypatch.setattr(human_eval, "PACKAGE", "no_such_package")  # as on another machine
    out = made(store, plan)["benchmarks"].folder
    [scores] = json.loads((out / "measured.json").read_text()).values()
    assert scores.keys() == set(measures(plan.steps["benchmarks"].config))
    assert scores["task/humaneval/bpb"]["items"] == 2
    lines = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    assert [line["task_id"] for line in lines] == ["HumanEval/0", "HumanEval/1"]


ONE = {  # solved by whatever has no line break
    "prompt": "def one():\n    return 1  # ",
    "entry_point": "one",
    "canonical_solution": "one\n",
    "test": "def check(candidate):\n    assert candidate() == 1",
}
NEVER = ONE | {"prompt": "def one():\n    return (", "canonical_solution": "1)\n"}


@pytest.mark.skipif(bool(bubblewrap.probe()), reason=f"not run: {bubblewrap.probe()}")
def test_solutions_are_drawn_and_tested_in_boxes_of_their_own(store: Store, tmp_path: Path) -> None:
    head, _, _ = LABS.rpartition("benchmarks:")
    asked = "benchmarks: {tasks: [one.jsonl], samples: {count: 2}, tokens: 3}\n"
    folder = declared(
        tmp_path / "labs", head + "own: {loss: 'model:loss'}\n" + asked, {"one.jsonl": [ONE, NEVER]}
    )
    plan = planner.plan_folder(folder, store)
    # With an own loss, such a step runs in a box; but in a box there can be no other.
    found = made(store, plan, terms=executor.Terms("bubblewrap"))["benchmarks"]
    out, isolation = found.folder, found.manifest.receipt["isolation"]
    assert isolation == f"{bubblewrap.version()}, for each solution; no other own code ran"
    [scores] = json.loads((out / "measured.json").read_text()).values()
    assert scores.keys() == set(measures(plan.steps["benchmarks"].config))
    assert scores["task/one/pass_at_1"] == {
        **{"value": 0.5, "items": 2, "standard_error": 0.5, "chance": 0.0}
    }
    one, never = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    assert [(x["passed"], x["why"]) for x in one["samples"]] == [(True, None)] * 2
    assert [x["passed"] for x in never["samples"]] == [False] * 2
    assert all("SyntaxError" in x["why"] for x in never["samples"])


def test_a_model_that_looks_ahead_has_no_scores(store: Store, tmp_path: Path) -> None:
    text = OWN.replace("NAME", "LooksAhead")
    boxed = executor.Terms("bubblewrap")
    scores, lines, out = benchmarked(tmp_path / "own", store, text, boxed)
    assert scores == {}
    assert len(lines) == 86
    [why] = json.loads((out / "void.json").read_text()).values()
    assert "when it sees the whole window" in why


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ("[clozee]", "there is no task `clozee`.*; did you mean `cloze`?"),
        ("[]", "there is no task; write"),
        ("[gym/../x]", "there is no task `gym/../x`; .* gym/<dataset of reasoning-gym>"),
        ("[../sky.jsonl]", "there is no task `../sky.jsonl`"),
        ("[a/humaneval.jsonl]", "`humaneval` is a task of the lab; rename the file"),
        ("[Sky.jsonl]", "`Sky` would be a part of metrics' names"),
        ("[cloze, cloze]", "two tasks are called `cloze`"),
        ("[cloze], samples: {count: 2}", "no task has functions to write; add `humaneval`"),
        ("[humaneval], samples: {count: 2, temperature: 0}", "all solutions are equal; write cou"),
        ("[none.jsonl]", "no such file in the experiment's folder"),
        ("[bad.jsonl]", "bad.jsonl, line 2, answer: 3 is the number of none of the 2 choices"),
    ],
)
def test_a_task_that_cannot_be_asked_is_refused_where_it_is_declared(
    tasks: str, words: str, tmp_path: Path
) -> None:
    text = LABS.rpartition("benchmarks:")[0] + f"benchmarks: {{tasks: {tasks}}}\n"
    good = {"context": "a", "choices": ["b", "c"], "answer": 0}
    folder = declared(tmp_path / "labs", text, {"bad.jsonl": [good, good | {"answer": 3}]})
    with pytest.raises(BadExperiment, match=words) as it:
        planner.plan_folder(folder, Store(tmp_path / "store"))
    [problem] = it.value.problems
    assert problem.line == 7
    assert problem.field.startswith("benchmarks.")


@pytest.mark.long
def test_a_task_of_lm_eval_without_its_data_is_named_and_the_others_are_scored(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, _, _ = LABS.rpartition("benchmarks:")
    asked = "benchmarks: {tasks: [sky.jsonl], lm_eval: [{task: arc_easy, shots: 10}]}\n"
    plan = planner.plan_folder(declared(tmp_path / "labs", head + asked), store)
    step = plan.steps["benchmarks"]
    there = made(store, plan, steps=plan.steps.keys() - {"benchmarks"})
    inputs = {key: there[next(iter(names))].folder for key, names in step.inputs.items()}
    tasks = lm_eval_tasks._manager(TASKS_OF_LM_EVAL / "arc")  # to read all takes 20 s
    monkeypatch.setattr(lm_eval_tasks, "_manager", lambda _: tasks)
    kept = store.fetch(planner.kept_folder(step) or "")
    benchmark.benchmark(step.config, inputs | {KEPT: kept}, tmp_path)
    [scores] = json.loads((tmp_path / "measured.json").read_text()).values()
    assert scores.keys() == {f"task/sky/{what}" for what in task_scores.SCORES["choice"]}
    assert scores.keys() < set(measures(step.config))
    [(name, why)] = json.loads((tmp_path / "unreached.json").read_text()).items()
    assert name == "arc_easy-10shot"
    assert "arc" in why


def test_lm_eval_is_asked_for_when_planning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, _, _ = LABS.rpartition("benchmarks:")
    folder = declared(tmp_path / "labs", head + "benchmarks: {suite: marin-8b}\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: "there")
    assert len(planner.plan_folder(folder, Store(tmp_path / "store")).steps) == 4
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(BadExperiment, match=r"benchmarks.suite.*pip install 'regatta\[eval\]'"):
        planner.plan_folder(folder, Store(tmp_path / "store"))
