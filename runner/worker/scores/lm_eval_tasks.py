"""Tasks of EleutherAI's lm_eval: it makes the items and judges the answers, and asks a model of the
lab. Data come from the cache of Hugging Face's `datasets`; nothing is fetched here.

A context that is too long for the model loses its beginning, as with lm_eval's own models."""

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.data.token_store import WrongTokens
from engine.data.tokenize import Tokenizer
from engine.model.generation import Prompt, Sampling
from engine.model.scoring import Continuation
from runner.lib.problems import near
from runner.spec.lm_eval_yaml import ENVIRONMENT
from runner.spec.task_items import BadTask
from runner.worker.scores.answers import Answers
from runner.worker.scores.item_tokens import until, windows
from runner.worker.scores.lm_eval_data import loading_from

OFFLINE = (
    *("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE", "HF_EVALUATE_OFFLINE"),
    "HF_DATASETS_DISABLE_PROGRESS_BARS",
)
MAX_TOKENS = 256  # of an answer, if its task does not say how many
FEW_SHOT_SEED = 1234  # lm_eval's own
# Tasks whose own code judges what a model writes, and was read: it runs nothing of that.
READ = {"drop", "ifeval", "leaderboard_ifeval"}


class LoadedTask(NamedTuple):
    name: str
    found: Any  # of lm_eval's TaskManager


def loaded(
    asked: Mapping[str, Mapping[str, Any]],
    include: Path | None = None,
    own: Mapping[str, Mapping[str, Any]] = {},  # never changed
    data: Path | None = None,
    context: int = 1 << 30,
) -> tuple[list[LoadedTask], dict[str, str]]:
    """The tasks with their data, and {name: why it could not be loaded}. `asked`: {name: {task,
    shots}}. `include`: a trusted folder with tasks as YAML, in place of those of lm_eval. `own`:
    {file: task} of the experiment's own. `data`: a folder with data sets, which come before those
    in the cache. `context`: how many tokens a model sees. Raises BadTask."""
    manager = _manager(include)
    for name in (one["task"] for one in asked.values()):
        if name not in own and name not in manager.all_tasks:
            hint = near(name, manager.all_tasks) or "; `lm_eval ls tasks` lists them"
            raise BadTask(f"lm_eval has no task `{name}`{hint}")
    random.seed(0)  # as lm_eval does; some tasks shuffle choices
    tasks, missing = [], {}
    for name, one in asked.items():
        try:
            with loading_from(data):
                found = manager.load([{**own[one["task"]]} if one["task"] in own else one["task"]])
            for part, task in found["tasks"].items():
                if part not in READ and _judges(task):
                    raise BadTask(
                        f"{part} judges with its own code what a model writes, and the lab "
                        "has not read this code; it may run what it judges, so take the task out"
                    )
                if one["shots"] is not None:
                    task.set_config(key="num_fewshot", value=one["shots"])
                writes = task.OUTPUT_TYPE == "generate_until"
                count = _most_tokens(task.config.generation_kwargs or {}) if writes else 0
                if count >= context:
                    raise WrongTokens(
                        f"its answers may have {count} tokens, and the model's context is "
                        f"{context} (seq_len); raise seq_len, or take the task out"
                    )
                task.set_fewshot_seed(seed=FEW_SHOT_SEED)
                task.build_qa_turn = partial(_solved, task.build_qa_turn)
                task.build_all_requests(limit=1)  # what would fail later fails here
        except Exception as error:  # whatever a task's own code raises
            missing[name] = f"{type(error).__name__}: {error}"[:500]
            continue
        tasks.append(LoadedTask(name, found))
    return tasks, missing


def _solved(build: Callable[..., Any], c: Any = None, a: Any = None, **said: Any) -> Any:
    """A solved example whose answer is a list of one choice's number, as AGIEval has it: there
    lm_eval 0.4.13 stops (EleutherAI/lm-evaluation-harness#2323)."""
    if c and isinstance(a, list) and a and isinstance(a[0], int):
        a = a[0]
    return build(c=c, a=a, **said)


def _judges(task: Any) -> bool:
    """Whether what a model writes gets to code of this task alone, which could run it."""
    from lm_eval.api.task import ConfigurableTask

    if task.OUTPUT_TYPE != "generate_until":
        return False  # its code gets numbers
    if type(task) is not ConfigurableTask or task.config.unsafe_code:
        return True
    of = task.config
    filters = [step for one in of.filter_list or () for step in one["filter"]]
    own = [of.process_results, *(x for one in of.metric_list or () for x in one.values())]
    return any(map(callable, (*own, *(x for one in filters for x in one.values()))))


@cache
def _manager(include: Path | None) -> Any:
    os.environ.update(
        dict.fromkeys((*OFFLINE, "HF_DATASETS_DISABLE_PROGRESS_BARS"), "1")
    )  # read when these libraries are imported
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from lm_eval import utils
    from lm_eval.tasks import TaskManager

    ENVIRONMENT.filters.update(utils.env.filters)
    utils.env = ENVIRONMENT  # a sandbox, for tasks and data that an experiment brings
    return TaskManager(include_path=include and str(include), include_defaults=include is None)


def answers_to(
    tasks: Sequence[LoadedTask], tokenizer: Tokenizer, most_items: int, model: Answers
) -> Iterator[dict[str, Any]]:
    """A line for each item of each task, with what lm_eval asked, what the model answered and the
    metrics of lm_eval for it."""
    for task in tasks:
        from lm_eval import evaluator  # is an extra, which other tasks do without

        found = evaluator.evaluate(
            _asking(model, tokenizer), task.found, limit=most_items, bootstrap_iters=0
        )
        for part, samples in found["samples"].items():
            of, results = task.found["tasks"][part], found["results"][part]
            for line in _lines(part, of, samples, results, tokenizer):
                yield {"task": task.name} | line


def _lines(
    part: str,
    task: Any,
    samples: Sequence[Mapping[str, Any]],
    results: Mapping[str, Any],
    tokenizer: Tokenizer,
) -> list[dict[str, Any]]:
    """The items of a part, with every metric that lm_eval has of it. Those of the second and later
    ways in which it reads answers (its filters) are called `<metric>.<filter>`. What is no mean
    over items (F1, perplexity, BLEU) is in the first line, as `aggregates`."""
    from lm_eval.api.metrics import mean

    aggregations = task.aggregation()
    by_filter: dict[str, list[Mapping[str, Any]]] = {}
    for sample in samples:
        by_filter.setdefault(sample["filter"], []).append(sample)
    first = next(iter(by_filter))
    lines = [_line(part, task, sample, tokenizer) for sample in by_filter[first]]
    for name, read in by_filter.items():
        for metric in dict.fromkeys(metric for sample in read for metric in sample["metrics"]):
            called = metric if name == first else f"{metric}.{name}"
            if metric == "bypass":  # lm_eval's name for no metric
                continue
            if aggregations.get(metric, mean) is not mean:
                result = results[f"{metric},{name}"]
                if not isinstance(result, int | float | np.number):
                    raise BadTask(
                        f"{part}: lm_eval's {metric} is no number; take the task out", "lm_eval"
                    )
                lines[0].setdefault("aggregates", {})[called] = float(result)
                continue
            for line, sample in zip(lines, read, strict=True):
                if metric in sample["metrics"]:
                    line["metrics"][called] = float(sample[metric])
    return lines


def _line(part: str, task: Any, sample: Mapping[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """An item as it is recorded."""
    asked = [[x for x in one if isinstance(x, str)] for one in sample["arguments"]]
    answers = [one[0] for one in sample["resps"]]
    choices: list[str] = []
    if task.OUTPUT_TYPE == "multiple_choice" and hasattr(task, "doc_to_choice"):
        choices = task.doc_to_choice(sample["doc"])
        # What follows asks for the choices alone, for acc_mutual_info.
        asked, answers = asked[: len(choices)], answers[: len(choices)]
    line: dict[str, Any] = {"part": part, "item": sample["doc_id"], "metrics": {}}
    contexts = [one[0] for one in asked]
    line["context"] = contexts[0] if len(set(contexts)) == 1 else contexts
    if all(isinstance(one, tuple) for one in answers):  # likelihoods
        line["logprobs"] = [float(one[0]) for one in answers]
        line["greedy"] = [bool(one[1]) for one in answers]
        line["choices"] = [one[-1] for one in asked]
        line["bytes"] = [len(one[-1].encode()) for one in asked]
        several = len(asked) > 1
        line["answer"] = _right(task, sample["doc"], choices, len(asked)) if several else 0
    elif all(isinstance(one, str) for one in answers):
        line |= {"written": answers, "answer": str(sample["target"])}
    else:
        line |= {"logprobs": float(answers[0]), "answer": ""}
        line["bytes"] = len(asked[0][-1].encode())
    if "logprobs" in line and any(tokenizer.changes("".join(one)) for one in asked):
        line["changed"] = True
    return line


def _right(task: Any, doc: Mapping[str, Any], choices: Sequence[str], count: int) -> int | None:
    """The number of the right one of `count` choices, as lm_eval's `process_results` finds it: by
    its position, because texts may repeat. None if several are right, or none."""
    if not hasattr(task, "doc_to_choice"):
        right = doc.get("gold")
    elif task.multiple_input:  # such as WinoGrande: contexts differ, what follows them does not
        right = task.doc_to_text(doc)
    else:
        right = task.doc_to_target(doc)
    if isinstance(right, list) and len(right) == 1:
        right = right[0]
    if isinstance(right, str):
        right = choices.index(right) if right in choices else None
    return right if isinstance(right, int) and 0 <= right < count else None


def _asking(answering: Answers, tokenizer: Tokenizer) -> Any:
    """A model as lm_eval wants it."""
    from lm_eval.api.model import TemplateLM

    class LabModel(TemplateLM):
        @property
        def eot_token_id(self) -> int:
            if tokenizer.end_of_document is None:
                raise WrongTokens(
                    "this task asks without a context, and no token of this tokenizer ends "
                    "documents; use `tokenizer: bpe`"
                )
            return tokenizer.end_of_document

        def tok_encode(
            self, string: str, add_special_tokens: bool | None = None, **_: Any
        ) -> list[int]:
            del add_special_tokens  # the lab's tokenizers add none
            return [int(x) for x in tokenizer.encode_batch([string])[0]]

        def _loglikelihood_tokens(
            self, requests: list[Any], disable_tqdm: bool = False, **_: Any
        ) -> list[tuple[float, bool]]:
            del disable_tqdm
            asked = []
            for _, context, continuation in requests:
                whole = (context + continuation)[-answering.seq_len - 1 :]
                start = max(1, len(whole) - len(continuation))
                asked.append(Continuation(np.asarray(whole, np.int32), start))
            return [
                (float(one.logprobs.sum(dtype=np.float64)), one.greedy)
                for one in answering.score(asked)
            ]

        def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
            del disable_tqdm
            texts = [
                windows(tokenizer, request.args[0], answering.seq_len)[0] for request in requests
            ]
            scored = iter(answering.score([one for text in texts for one in text]))
            return [
                sum(float(next(scored).logprobs.sum(dtype=np.float64)) for _ in text)
                for text in texts
            ]

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            del disable_tqdm
            groups: dict[tuple[int, float], list[int]] = defaultdict(list)
            for number, request in enumerate(requests):
                said = request.args[1]
                warm = float(said.get("temperature") or 0) if said.get("do_sample") else 0.0
                groups[_most_tokens(said), warm].append(number)
            found = [""] * len(requests)
            for (count, temperature), numbers in groups.items():
                room = answering.seq_len - count
                prompts = [
                    Prompt(np.asarray(self.tok_encode(requests[n].args[0])[-room:], np.int32), 0, n)
                    for n in numbers
                ]
                made = answering.generate(prompts, count, Sampling(temperature=temperature))
                for number, one in zip(numbers, made, strict=True):
                    stops = requests[number].args[1].get("until") or []
                    stops = [stops] if isinstance(stops, str) else stops
                    found[number] = until(tokenizer, one.tokens, [x for x in stops if x])
            return found

    return LabModel()


def _most_tokens(said: Mapping[str, Any]) -> int:
    keys = ("max_gen_toks", "max_new_tokens", "max_tokens")
    return next((int(said[key]) for key in keys if said.get(key)), MAX_TOKENS)
