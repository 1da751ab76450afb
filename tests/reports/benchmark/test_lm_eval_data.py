"""Tasks of lm_eval with data as people have them: a folder of the experiment, with files as the
Hub has them or as people write them."""

import json
import math
import re
from pathlib import Path
from typing import Any

import jax
import pytest
import yaml

from engine.config.schema import ModelConfig
from engine.data.tokenize import train_bpe
from engine.model.decoder import Decoder
from runner.execution import local_ray
from runner.lib.problems import BadExperiment
from runner.planning import planner, task_sources
from runner.spec.benchmarks import lm_eval_tasks as named
from runner.spec.task_items import BadTask
from runner.worker.scores import lm_eval_tasks
from runner.worker.scores.answers import _OfTheLab
from runner.worker.scores.task_scores import scores_of
from tests.integration.runner.test_lm_eval import TASKS_OF_LM_EVAL, TEXTS
from tests.reports.benchmark import hub_data

CONFIG = ModelConfig(
    hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, seq_len=320, vocab_size=300
)
OWN = """\
task: whatever it is called
dataset_path: sums
output_type: multiple_choice
validation_split: validation
doc_to_text: "{{ question }}"
doc_to_choice: ["1", "2"]
doc_to_target: answer
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""


@pytest.fixture(scope="module")
def model() -> Any:
    decoder = Decoder(CONFIG)
    return _OfTheLab(decoder, decoder.init(jax.random.key(1))), train_bpe(TEXTS, 300)


def lines(asked: dict[str, Any], model: Any, **how: Any) -> list[dict[str, Any]]:
    loaded, missing = lm_eval_tasks.loaded(asked, **how)
    assert missing == {}
    answering, tokenizer = model
    return list(lm_eval_tasks.answers_to(loaded, tokenizer, 40, answering))


def declared(folder: Path, config: str) -> Path:
    """An experiment whose benchmark has this configuration."""
    folder.mkdir(exist_ok=True)
    (folder / "text.txt").write_text("One and two are three.\n" * 900)
    (folder / "experiment.yaml").write_text(
        "title: Which scores?\ndata: {source: text.txt, tokenizer: byte}\n"
        "model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2, seq_len: 160}\n"
        "train: {train_batch_size: 4, num_train_steps: 4, learning_rate: 0.01}\n"
        f"eval: {{tokens: 256}}\nresources: {{kind: cpu}}\nbenchmarks: {config}\n"
    )
    return folder


@pytest.mark.long
@pytest.mark.parametrize("of_many", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_all_rows_of_marins_suite_run_from_files(of_many: bool, tmp_path: Path, model: Any) -> None:
    """EleutherAI/lm-evaluation-harness#1659, #1666, #1723 and #2234: machines without a network,
    and data that lie in a folder."""
    mmlu = TASKS_OF_LM_EVAL / "mmlu" / "default"
    subjects = [path.stem.removeprefix("mmlu_") for path in mmlu.glob("mmlu_*.yaml")]
    bbh = (path.read_text() for path in (TASKS_OF_LM_EVAL / "leaderboard/bbh_mc").glob("*.yaml"))
    puzzles = [
        found[1] for text in bbh if (found := re.search(r"^dataset_name: (\S+)$", text, re.M))
    ]
    hub_data.write(tmp_path, subjects, puzzles)
    asked = named({"suite": "marin-8b", "lm_eval": []})
    assert len(asked) == 19
    many = ("mmlu-0shot", "mmlu-5shot", "leaderboard_bbh-3shot")  # 57, 57 and 24 tasks
    asked = {name: one for name, one in asked.items() if (name in many) == of_many}
    loaded, missing = lm_eval_tasks.loaded(asked, data=tmp_path)
    assert missing == {}
    answering, tokenizer = model
    found = list(lm_eval_tasks.answers_to(loaded, tokenizer, 1, answering))
    assert {line["task"] for line in found} == set(asked)
    for line in found:
        assert line["metrics"] or line["aggregates"]
        if len(line.get("choices", ())) > 1 and "bbh" not in line["part"]:
            assert line["answer"] is not None, line


def test_lm_evaluation_harness_1256_the_right_context_of_two_is_found_by_its_position(
    tmp_path: Path, model: Any
) -> None:
    """Also EleutherAI/lm-evaluation-harness#2607, #978 and #991: WinoGrande's two contexts have
    one continuation, so that its text does not say which of them is right."""
    data = tmp_path / "winogrande"
    data.mkdir()
    rows = [hub_data.winogrande(n) for n in range(40)]
    for split in ("train", "validation"):
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = lines({"w": {"task": "winogrande", "shots": 0}}, model, data=tmp_path)
    assert [line["answer"] for line in found] == [n % 2 for n in range(40)]
    for line in found:
        likelier = line["logprobs"].index(max(line["logprobs"]))
        assert line["metrics"]["acc"] == float(likelier == line["answer"])
    bits = -sum(line["logprobs"][line["answer"]] for line in found) / math.log(2)
    size = sum(line["bytes"][line["answer"]] for line in found)
    assert scores_of("lm_eval", found)["bpb"].value == pytest.approx(bits / size)


REPEATED = """\
dataset_path: json
dataset_kwargs: {data_files: {validation: rows.jsonl}}
validation_split: validation
output_type: multiple_choice
doc_to_text: "{{ question }}"
doc_to_choice: "{{ choices }}"
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}METRIC]
"""


@pytest.mark.parametrize(
    ("report", "choices", "metric"),
    [
        ("EleutherAI/lm-evaluation-harness#1249, equal texts", ["yes", "yes", "no"], ""),
        ("EleutherAI/lm-evaluation-harness#2607, spaces differ", [" a", "a", "a "], ""),
        ("EleutherAI/lm-evaluation-harness#3035, asked twice", ["x", "y", "z"], "acc_mutual_info"),
    ],
)
def test_the_right_choice_is_a_position_where_texts_repeat(
    report: str, choices: list[str], metric: str, tmp_path: Path, model: Any
) -> None:
    assert report
    data = tmp_path / "data"
    data.mkdir()
    rows = [{"question": f"Is {n}?", "choices": choices, "answer": n % 3} for n in range(6)]
    (data / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = f", {{metric: {metric}}}" if metric else ""
    (tmp_path / "own.yaml").write_text(REPEATED.replace("METRIC", more) + "task: own\n")
    config = {"lm_eval": [{"task": "own.yaml", "shots": None}], "suite": None, "data": "data"}
    own = task_sources.own_tasks(config, tmp_path)
    found = lines(named(config), model, own=own, data=data)
    assert [line["answer"] for line in found] == [0, 1, 2, 0, 1, 2]
    assert {len(line["logprobs"]) for line in found} == {3}, "what is asked beside is no choice"


def test_a_task_of_ones_own_is_planned_with_its_data_and_another_row_is_another_step(
    tmp_path: Path,
) -> None:
    """EleutherAI/lm-evaluation-harness#3424, #1224, #1403 and #2120,
    huggingface/lighteval#1083: a task of one's own with data beside it."""
    folder = declared(tmp_path / "own", "{lm_eval: [{task: sums.yaml}], data: data, items: 2}")
    (folder / "sums.yaml").write_text(OWN)
    place = folder / "data" / "sums"
    place.mkdir(parents=True)
    row = json.dumps({"question": "1 + 1 =", "answer": 1}) + "\n"
    (place / "validation.jsonl").write_text(row)
    first = planner.plan_folder(folder)
    (place / "validation.jsonl").write_text(row * 2)
    second = planner.plan_folder(folder)
    [step] = [step for step in first.steps.values() if step.do == "benchmark"]
    assert step.config["own_tasks"]["sums.yaml"]["task"] == "sums"
    assert step.config["data_files"].keys() == {"sums/validation.jsonl"}
    assert first.fingerprint != second.fingerprint


def test_a_key_that_the_data_lack_is_told_and_is_no_empty_text(tmp_path: Path) -> None:
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "validation.jsonl").write_text('{"question": "1 + 1 =", "answer": 1}\n')
    (tmp_path / "sums.yaml").write_text(OWN.replace("{{ question }}", "{{ qestion }}"))
    config = {"lm_eval": [{"task": "sums.yaml", "shots": None}], "suite": None, "data": "."}
    own = task_sources.own_tasks(config, tmp_path)
    found, missing = lm_eval_tasks.loaded(named(config), own=own, data=tmp_path)
    assert found == []
    assert missing == {"sums": "UndefinedError: 'qestion' is undefined"}


BAD_TASKS = {
    "code": (OWN.replace("answer\n", "!function utils.f\n"), "line 7: the tag '!function'"),
    "metric": (OWN.replace("acc\n", "./own.py\n"), "line 9, metric_list.0.metric: no metric is"),
    "class": (OWN + "class: own.Task\n", "line 12, class: Extra inputs"),
    "group": (OWN + "group: sums\n", "line 12, group: Extra inputs"),
    "template": (OWN.replace("{{ question }}", "{{ question"), "doc_to_text: no template"),
    "data": (OWN.replace("sums", "/etc"), "`data` has no folder /etc"),
    "above": (OWN.replace("sums", "../own/data/sums"), "`data` has no folder ../own"),
    "empty": ("", "sums.yaml, line 1: it is empty"),
}


@pytest.mark.parametrize("what", BAD_TASKS)
def test_what_a_task_of_ones_own_cannot_have_is_told_with_its_line(
    what: str, tmp_path: Path
) -> None:
    text, words = BAD_TASKS[what]
    folder = declared(tmp_path / "own", "{lm_eval: [{task: sums.yaml}], data: data}")
    (folder / "sums.yaml").write_text(text)
    (folder / "data" / "sums").mkdir(parents=True)
    (folder / "data" / "sums" / "validation.jsonl").write_text("{}\n")
    with pytest.raises(BadExperiment) as found:
        planner.plan_folder(folder)
    assert words in str(found.value)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("README.md", "---\nconfigs: [{data_files: /etc/*}]\n---\n", "names `/etc/*`"),
        ("README.md", "---\nconfigs: [{data_dir: ../up}]\n---\n", "names `../up`"),
        ("README.md", "---\nconfigs: [{data_files: [https://x/y]}]\n---\n", "names `https://x/y`"),
        ("link.jsonl", "/etc/hostname", "is a link to elsewhere"),
        ("nothing.txt", "", "has no files of data"),
    ],
)
def test_a_folder_of_data_reaches_nothing_outside(
    file: str, content: str, words: str, tmp_path: Path
) -> None:
    place = tmp_path / "data" / "sums"
    place.mkdir(parents=True)
    if file == "link.jsonl":
        (place / file).symlink_to(content)
    else:
        (place / file).write_text(content)
    with pytest.raises(BadTask, match=re.escape(words)):
        task_sources.data_files("data", tmp_path)


def test_a_snapshot_of_the_hub_says_its_configurations_itself(tmp_path: Path, model: Any) -> None:
    """EleutherAI/lm-evaluation-harness#1877, huggingface/datasets#6088: what the Hub's tool wrote
    has its splits in README.md, and notes of its own below `.cache`."""
    place = tmp_path / "data" / "allenai" / "winogrande"
    (place / ".cache" / "huggingface").mkdir(parents=True)
    (place / ".cache" / "huggingface" / "notes.json").write_text("{")
    (place / "parts").mkdir()
    said = [{"split": one, "path": f"parts/{one}*.jsonl"} for one in ("train", "validation")]
    head = {"configs": [{"config_name": "winogrande_xl", "data_files": said}]}
    (place / "README.md").write_text(f"---\n{yaml.safe_dump(head)}---\n# WinoGrande\n")
    row = json.dumps(hub_data.winogrande(1)) + "\n"
    for split in ("train", "validation"):
        (place / "parts" / f"{split}-0.jsonl").write_text(row)
    kept = tmp_path / "kept"
    for path, content in task_sources.data_files("data", tmp_path).items():
        (kept / path).parent.mkdir(parents=True, exist_ok=True)
        (kept / path).write_bytes(content)
    assert not list(kept.rglob(".cache"))
    [line] = lines({"w": {"task": "winogrande", "shots": 0}}, model, data=kept)
    assert line["answer"] == 1


@pytest.mark.parametrize(
    ("given", "at"),
    [
        ({"HF_DATASETS_CACHE": "a"}, "a"),
        ({"HF_HOME": "b"}, "b/datasets"),
        ({"XDG_CACHE_HOME": "c"}, "c/huggingface/datasets"),
        ({}, ".cache/huggingface/datasets"),
    ],
)
def test_jobs_find_the_cache_where_hugging_face_keeps_it_and_no_token(
    given: dict[str, str], at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA-NeMo/NeMo-Retriever#1893 and mozilla-ai/lumigator#935: HF_HOME does not reach Ray's
    workers; EvolvingLMMs-Lab/lmms-eval#15."""
    for name in ("HF_HOME", "HF_DATASETS_CACHE", "HF_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in given.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    told = local_ray._environment(tmp_path / "ray", tmp_path / "token", list(range(11)))
    assert told["HF_DATASETS_CACHE"] == str(tmp_path / at)
    assert "HF_HOME" not in told
