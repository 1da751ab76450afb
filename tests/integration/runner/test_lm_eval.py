"""Tasks of lm_eval: the lab's answers are those of lm_eval's own backend on the exported model."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from engine.config.schema import ModelConfig
from engine.data.tokenize import END, Tokenizer, train_bpe
from engine.model.decoder import Decoder
from engine.training.export import export
from runner.schema import metrics
from runner.spec.benchmarks import lm_eval_tasks as lm_eval_tasks_of
from runner.spec.task_items import BadTask, Choice
from runner.worker.models.trained import Planned
from runner.worker.scores import benchmark, lm_eval_tasks
from runner.worker.scores.answers import _OfTheLab
from runner.worker.scores.benchmark import Task
from runner.worker.scores.task_scores import scores_of

WORDS = "the quick brown fox jumps over lazy dogs while seven green frogs sleep near warm water"
TEXTS = [" ".join(np.random.default_rng(n).permutation(WORDS.split())) for n in range(40)]
HEAD = "dataset_path: json\ndataset_kwargs: {data_files: {test: DATA}}\ntest_split: test\n"
TASKS = {
    "choices": "output_type: multiple_choice\ndoc_to_text: '{{context}}'\n"
    "doc_to_choice: '{{choices}}'\ndoc_to_target: answer\n"
    "metric_list: [{metric: acc}, {metric: acc_norm}]\n",
    "rolling": "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{long}}'\n"
    "metric_list: [{metric: bits_per_byte}]\n",
    "written": "output_type: generate_until\ndoc_to_text: '{{context}}'\n"
    "doc_to_target: '{{choices[answer]}}'\nmetric_list: [{metric: exact_match}]\n"
    "generation_kwargs: {until: [' the', 'q'], max_gen_toks: 12}\n",
    "last": "output_type: loglikelihood\ndoc_to_text: '{{context}}'\n"
    "doc_to_target: '{{choices[answer]}}'\nmetric_list: [{metric: acc}]\n",
    "repeats": "output_type: multiple_choice\ndoc_to_text: '{{context}}'\n"
    "doc_to_choice: '{{[choices[0], choices[1], choices[0], choices[0]]}}'\n"
    "doc_to_target: answer\nmetric_list: [{metric: acc}, {metric: acc_norm}]\n",
    "contexts": "output_type: multiple_choice\ndoc_to_text: answer\ndoc_to_choice: '{{choices}}'\n"
    "doc_to_target: '{{long[:20]}}'\nmetric_list: [{metric: acc}, {metric: acc_norm}]\n",
}
CONFIG = ModelConfig(
    hidden_dim=32, intermediate_dim=48, num_layers=2, num_heads=4, seq_len=48, vocab_size=300
)
LM_EVAL = importlib.util.find_spec("lm_eval")  # to import it takes seconds
assert LM_EVAL
assert LM_EVAL.origin
TASKS_OF_LM_EVAL = Path(LM_EVAL.origin).parent / "tasks"


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tasks as YAML, and their data."""
    folder = tmp_path_factory.mktemp("tasks")
    data = folder / "items.jsonl"
    rng = np.random.default_rng(0)
    with data.open("w") as file:
        for text in TEXTS:
            words = text.split()
            choices = [f" {word}" for word in rng.choice(WORDS.split(), 3, replace=False)]
            item = {
                "context": " ".join(words[: int(rng.integers(1, 14))]),  # some are too long
                "choices": [*choices, f" {words[-1]} {words[0]}"],
                "answer": int(rng.integers(4)),
                "long": text * int(rng.integers(1, 4)),
            }
            file.write(json.dumps(item) + "\n")
    for name, text in TASKS.items():
        head = HEAD.replace("DATA", str(data))
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{head}{text}")
    return folder


@pytest.fixture(scope="module")
def model() -> tuple[Decoder, Any, Tokenizer]:
    decoder = Decoder(CONFIG)
    # Larger than trained ones start, so that answers differ.
    params = jax.tree.map(lambda x: x if x.ndim < 2 else 8 * x, decoder.init(jax.random.key(1)))
    return decoder, params, train_bpe(TEXTS, 300)


def by_task(lines: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        found.setdefault(line["task"], []).append(line)
    return found


MULTIPLE = TASKS["choices"].split("metric_list")[0]
WRITTEN = TASKS["written"].replace("metric_list: [{metric: exact_match}]\n", "")
OTHERS = {
    "judged": MULTIPLE + "metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}, "
    "{metric: mcc}, {metric: brier_score}]\n",
    "pairs": MULTIPLE.replace("{{choices}}", "{{choices[:2]}}").replace(
        "doc_to_target: answer", "doc_to_target: '{{answer % 2}}'"
    )
    + "metric_list: [{metric: f1}]\n",
    "texts": TASKS["rolling"].split("metric_list")[0]
    + "metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, "
    "{metric: bits_per_byte}]\n",
    "words": TASKS["last"].split("metric_list")[0]
    + "metric_list: [{metric: perplexity}, {metric: acc}]\n",
    "twice": WRITTEN + "metric_list: [{metric: exact_match}, {metric: bleu}, {metric: chrf++}, "
    "{metric: ter}]\nfilter_list: [{name: strict-match, filter: [{function: take_first}]}, "
    "{name: Flexible, filter: [{function: lowercase}, {function: take_first}]}]\n",
}


def test_every_metric_of_lm_eval_comes_back_with_its_value(
    tasks: Path, model: tuple[Decoder, Any, Tokenizer], tmp_path: Path
) -> None:
    from lm_eval import evaluator

    decoder, params, tokenizer = model
    head = HEAD.replace("DATA", str(tasks / "items.jsonl"))
    for name, text in OTHERS.items():
        (tmp_path / f"{name}.yaml").write_text(f"task: {name}\n{head}{text}")
    (tmp_path / "all.yaml").write_text(f"group: all\ntask: [{', '.join(OTHERS)}]\n")
    answering = _OfTheLab(decoder, params)
    asked = {name: {"task": name, "shots": None} for name in [*OTHERS, "all"]}
    loaded, missing = lm_eval_tasks.loaded(asked, tmp_path)
    assert not missing
    ours = by_task(list(lm_eval_tasks.answers_to(loaded, tokenizer, 12, answering)))
    [group] = (task for task in loaded if task.name == "all")
    theirs = evaluator.evaluate(
        lm_eval_tasks._asking(answering, tokenizer), group.found, limit=12, bootstrap_iters=0
    )["results"]
    here = {"acc": "accuracy", "acc_norm": "accuracy_norm", "chrf++": "chrfpp"}
    compared = 0
    for name in OTHERS:
        found, of_all = scores_of("lm_eval", ours[name]), scores_of("lm_eval", ours["all"])
        for key, value in theirs[name].items():
            metric, _, filter_name = key.partition(",")
            if not filter_name or metric.endswith("_stderr"):
                continue
            what = here.get(metric, metric) + (".flexible" if filter_name == "Flexible" else "")
            score = found[what]
            assert score, what
            assert (score.value, score.items) == (pytest.approx(value), 12), what
            if what != "accuracy":  # which is of all that have it
                in_group = of_all[f"{name}/{what}"]
                assert (in_group.value, in_group.items) == (pytest.approx(score.value), 12), what
            assert metrics.better(f"task/{name}/{what}"), what
            compared += 1
    assert compared == 6 + 3 + 2 + 2 * 4
    assert not {"metrics", "aggregates"} - {key for line in ours["judged"] for key in line}
    assert json.dumps(ours)


def test_the_same_questions_have_the_same_accuracy_norm_as_a_file_and_as_a_task_of_lm_eval(
    model: tuple[Decoder, Any, Tokenizer], tmp_path: Path
) -> None:
    decoder, params, tokenizer = model
    words = ["a", "über", "sea", "déjà vu", "sunflower", "naïveté"]
    rng = np.random.default_rng(3)
    lines = []
    for text in TEXTS:
        choices = [str(word) for word in rng.choice(words, 3, replace=False)]
        lines.append({"context": text[:40], "choices": choices, "answer": int(rng.integers(3))})
    data = tmp_path / "items.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    head = HEAD.replace("DATA", str(data))
    (tmp_path / "same.yaml").write_text(f"task: same\n{head}{TASKS['choices']}")
    loaded, _ = lm_eval_tasks.loaded({"same": {"task": "same", "shots": None}}, tmp_path)
    answering = _OfTheLab(decoder, params)
    theirs = scores_of("lm_eval", list(lm_eval_tasks.answers_to(loaded, tokenizer, 100, answering)))
    items = [Choice(**line | {"choices": [f" {x}" for x in line["choices"]]}) for line in lines]
    shape = Planned({"seq_len": CONFIG.seq_len}, "")
    asked = list(benchmark._asked([Task("same", "choice", items)], tokenizer, shape, {}))
    config = {"tokens": 1}
    ours = scores_of("choice", benchmark._to_own_tasks(asked, tokenizer, config, answering))
    for what in ("accuracy", "accuracy_norm"):
        one, other = ours[what], theirs[what]
        assert one
        assert other
        assert one.value == other.value
    assert ours["accuracy"] != ours["accuracy_norm"]


@pytest.mark.slow
@pytest.mark.long
def test_answers_and_scores_are_those_of_lm_evals_own_backend(
    tasks: Path, model: tuple[Decoder, Any, Tokenizer], tmp_path: Path
) -> None:
    decoder, params, tokenizer = model
    asked = {name: {"task": name, "shots": None} for name in TASKS}
    loaded, missing = lm_eval_tasks.loaded(asked, tasks)
    assert not missing
    ours = by_task(
        list(lm_eval_tasks.answers_to(loaded, tokenizer, 100, _OfTheLab(decoder, params)))
    )
    export(tmp_path / "model", decoder, params, tokenizer)
    about = tmp_path / "model" / "tokenizer_config.json"  # their rolling windows begin with this
    about.write_text(json.dumps(json.loads(about.read_text()) | {"eos_token": END}))

    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    backend = HFLM(pretrained=str(tmp_path / "model"), device="cpu", dtype="float32", batch_size=4)
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    theirs = simple_evaluate(backend, tasks=list(TASKS), task_manager=manager, bootstrap_iters=0)
    for name, samples in theirs["samples"].items():
        assert [line["item"] for line in ours[name]] == [of["doc_id"] for of in samples]
        assert len(samples) == 40
        for line, sample in zip(ours[name], samples, strict=True):
            answers = [one[0] for one in sample["resps"]]
            if name == "written":
                assert line["written"] == answers
            elif name == "rolling":
                assert line["logprobs"] == pytest.approx(answers[0], abs=1e-3)
            else:
                assert line["logprobs"] == pytest.approx([x[0] for x in answers], abs=1e-3)
                assert line["greedy"] == [x[1] for x in answers]
    means = theirs["results"]
    scores = {name: scores_of("lm_eval", lines) for name, lines in ours.items()}
    values = {name: {x: s.value for x, s in of.items() if s} for name, of in scores.items()}
    for name in ("choices", "repeats", "contexts"):
        assert values[name]["accuracy"] == pytest.approx(means[name]["acc,none"])
        assert values[name]["accuracy_norm"] == pytest.approx(means[name]["acc_norm,none"])
        right = [line["answer"] for line in ours[name]]
        assert right == [sample["doc"]["answer"] for sample in theirs["samples"][name]]
    assert 0 < values["choices"]["accuracy"] < 1
    assert values["last"]["accuracy"] == pytest.approx(means["last"]["acc,none"])
    assert values["written"]["exact_match"] == pytest.approx(means["written"]["exact_match,none"])
    assert values["rolling"]["bpb"] == pytest.approx(means["rolling"]["bits_per_byte,none"])
    assert len({line["written"][0] for line in ours["written"]}) > 9


JUDGES = {
    "by_results": "process_results: !function judge.judge\nmetric_list: [{metric: acc}]\n",
    "by_metric": "metric_list: [{metric: !function judge.judge, aggregation: mean}]\n",
    "by_filter": "metric_list: [{metric: exact_match}]\nfilter_list: [{name: f, filter: "
    "[{function: custom, filter_fn: !function judge.judge}]}]\n",
    "unsafe": "unsafe_code: true\nmetric_list: [{metric: exact_match}]\n",
}


@pytest.mark.parametrize("how", JUDGES)
def test_code_that_could_run_what_a_model_writes_is_not_used(
    how: str, tasks: Path, tmp_path: Path
) -> None:
    written = TASKS["written"].replace("metric_list: [{metric: exact_match}]\n", JUDGES[how])
    head = HEAD.replace("DATA", str(tasks / "items.jsonl"))
    (tmp_path / "judge.py").write_text("def judge(*told, **more):\n    return eval(told[1][0])\n")
    (tmp_path / f"{how}.yaml").write_text(f"task: {how}\n{head}{written}")
    (tmp_path / "plain.yaml").write_text(f"task: plain\n{head}{TASKS['written']}")
    asked = {name: {"task": name, "shots": None} for name in (how, "plain")}
    found, missing = lm_eval_tasks.loaded(asked, tmp_path)
    assert [one.name for one in found] == ["plain"]
    assert f"{how} judges with its own code what a model writes" in missing[how]


def test_an_unknown_task_has_its_near_miss(tasks: Path) -> None:
    with pytest.raises(BadTask, match=r"no task `choises`; did you mean `choices`\?"):
        lm_eval_tasks.loaded({"choises": {"task": "choises", "shots": None}}, tasks)


def test_a_task_whose_data_are_not_here_is_named_with_the_reason() -> None:
    asked = {"arc_easy-10shot": {"task": "arc_easy", "shots": 10}}
    found, missing = lm_eval_tasks.loaded(asked, TASKS_OF_LM_EVAL / "arc")
    assert found == []
    assert missing.keys() == {"arc_easy-10shot"}
    assert "arc" in missing["arc_easy-10shot"]


def test_every_task_of_a_suite_is_one_of_lm_eval() -> None:
    """It says each name in a file of its own; to let it read all of them takes 20 s."""
    names = {of["task"] for of in lm_eval_tasks_of({"suite": "marin-8b", "lm_eval": []}).values()}
    said = b"\n".join(path.read_bytes() for path in TASKS_OF_LM_EVAL.rglob("*.yaml"))
    for name in names:
        assert re.search(rb"^(task|group|tag): %b$" % name.encode(), said, re.MULTILINE), name
