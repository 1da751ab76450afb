"""The step that scores trained models on tasks. `items.jsonl` has a line for each model, task and
item: what was asked, what the model answered, and the log-probabilities. `measured.json` has the
scores, which follow from these lines alone (`runner.worker.scores.task_scores`). `void.json` names
the models whose answers do not count, and why; they have no scores. `unreached.json` names the
tasks whose data are not on this machine."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.data.arrays import read
from engine.data.token_store import WrongTokens
from engine.data.tokenize import Tokenizer
from engine.model.generation import Completion, Prompt, Sampling
from engine.model.scoring import Continuation, Scored
from runner.lib.canonical_json import to_json
from runner.schema import metrics
from runner.spec.benchmarks import DATA, FILE, MADE, lm_eval_tasks, name_of
from runner.spec.step_types import KEPT
from runner.spec.task_items import Answer, BadTask, Choice, Function, Item, Kind, Whole, items_of
from runner.worker.models import look_ahead_probe
from runner.worker.models.plugin_model import Functions
from runner.worker.scores import solution_tests
from runner.worker.scores.answers import Answers, answered, check_vocabulary
from runner.worker.scores.evaluate import planned_model
from runner.worker.scores.item_tokens import continuation, until, windows, without_spaces
from runner.worker.scores.lm_eval_tasks import LoadedTask, answers_to, loaded
from runner.worker.scores.made_tasks import MAX_TEXT, made
from runner.worker.scores.task_scores import right_of, scores_of
from runner.worker.texts.mixtures import parts_of

GREEDY = Sampling(temperature=0)
# What ends a function's body, as in Chen et al. 2021, section 2.1.
FUNCTION_ENDS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
VOID = "void.json"
UNREACHED = "unreached.json"


class Task(NamedTuple):
    name: str
    kind: Kind
    items: Sequence[Item]


class Asked(NamedTuple):
    """An item as a model with this tokenizer is asked."""

    task: str
    item: Item
    scored: list[Continuation]  # of a choice: one for each
    bytes: list[int]  # of what is scored in each
    prompt: np.ndarray | None  # to continue
    is_changed: bool  # its tokens do not say its text, or less of it is scored than its bytes


def benchmark(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path | Mapping[str, Path]],
    out: Path,
    functions: Functions = {},  # noqa: B006  # never changed
    ask: look_ahead_probe.Ask | None = None,
) -> None:
    """Scores of each of the input `models`. Raises BadTask, WrongTokens, CannotScore and
    BadOwnCode."""
    models, tokens, kept = inputs["models"], inputs["tokens"], inputs.get(KEPT)
    assert isinstance(tokens, Path)
    assert not isinstance(kept, Mapping)
    validation = [store for store, _ in parts_of(tokens, "validation").values()]
    tokenizer = validation[0].tokenizer()
    every = models.items() if isinstance(models, Mapping) else [("", models)]
    said = {label: planned_model(ask, label, folder) for label, folder in every}
    check_vocabulary(tokenizer, said)
    shortest = min(int(of.config["seq_len"]) for of in said.values())
    of_text = any(task in MADE for task in config["tasks"])
    text = b"".join(_text_of(store, tokenizer) for store in validation if of_text)[:MAX_TEXT]
    tasks = list(_tasks(config, kept, text, shortest + 1))
    for task in tasks:
        if task.kind == "function" and config.get("samples"):
            solution_tests.check(task.name, task.items)
    others, unreached = list[LoadedTask](), dict[str, str]()
    if asked_of_lm_eval := lm_eval_tasks(config):
        data = kept / DATA if config.get("data") and kept else None
        own = config.get("own_tasks", {})
        others, unreached = loaded(asked_of_lm_eval, own=own, data=data, context=shortest)
        if not tasks and not others:
            raise BadTask(f"no task could be loaded: {unreached}", "lm_eval")
    found: dict[str, list[dict[str, Any]]] = {}
    void: dict[str, str] = {}
    # Own models come first: children are forked, and JAX has many threads once it is used.
    for label, folder in sorted(every, key=lambda of: not said[of[0]].own):
        asked = list(_asked(tasks, tokenizer, said[label], config))
        about = partial(_answers, asked, others, tokenizer, config)
        found[label], void[label] = answered(said[label], folder, functions, ask, about)
    _test(line for label, _ in every for line in found[label])
    with (out / "items.jsonl").open("w", encoding="utf-8") as file:
        for label, _ in every:
            for line in found[label]:
                file.write(json.dumps({"model": label} | line, ensure_ascii=False) + "\n")
    kinds = {task.name: task.kind for task in tasks} | {task.name: "lm_eval" for task in others}
    measured = {label: _measured(found[label], kinds) for label, _ in every if not void[label]}
    (out / metrics.MEASURED).write_bytes(metrics.written(measured))
    if why := {label: words for label, words in void.items() if words}:
        (out / VOID).write_bytes(to_json(why))
    if unreached:
        (out / UNREACHED).write_bytes(to_json(unreached))
        print(*(f"{name} was not asked: {words}" for name, words in unreached.items()), sep="\n")


# ── Tasks ────────────────────────────────────────────────────────────────────────────────────


def _tasks(
    config: Mapping[str, Any], kept: Path | None, text: bytes, most_bytes: int
) -> Iterator[Task]:
    """The tasks with the items that are asked. Raises BadTask."""
    for task in config["tasks"]:
        name = name_of(task)
        if task in MADE:
            yield Task(name, MADE[task], made(task, text, config["items"], most_bytes))
        else:
            assert kept is not None
            kind, items = items_of((kept / f"{name}{FILE}").read_bytes(), task)
            yield Task(name, kind, items[: config["items"]])


def _text_of(store: Any, tokenizer: Tokenizer) -> bytes:
    """The beginning of a split's text. Raises WrongTokens if its tokens do not give it back."""
    _ = store.token_bytes
    ids = read(store.tokens, slice(0, min(MAX_TEXT, store.manifest.tokens)), "the validation text")
    return tokenizer.text_of(ids[ids != store.manifest.end_of_document])


# ── Questions ────────────────────────────────────────────────────────────────────────────────


def _asked(
    tasks: Sequence[Task], tokenizer: Tokenizer, this: Any, config: Mapping[str, Any]
) -> Iterator[Asked]:
    """Each item as a model is asked. Raises WrongTokens if one does not fit into its context."""
    context = int(this.config["seq_len"])
    for task in tasks:
        longest, of, written = 0, 0, False
        for number, item in enumerate(task.items):
            if isinstance(item, Whole):
                scored, size = windows(tokenizer, item.text, context)
                changed = tokenizer.changes(item.text)
                yield Asked(task.name, item, scored, [size], None, changed)
                continue
            before, answers = _parts(item)
            scored = [continuation(tokenizer, before, after) for after in answers]
            prompt = None
            most = max(len(one.tokens) - 1 for one in scored)
            if isinstance(item, Answer) or (isinstance(item, Function) and config.get("samples")):
                prompt = np.asarray(tokenizer.encode_batch([before])[0], np.int32)
                most = max(most, len(prompt) + config["tokens"])
            if most > longest:
                longest, of, written = most, number, prompt is not None
            spaces = len(before.encode()) - len(without_spaces(before).encode())
            sizes = [spaces + len(after.encode()) for after in answers]
            changed = any(tokenizer.changes(before + after) for after in answers) or any(
                len(tokenizer.text_of(one.tokens[one.start :])) < size
                for one, size in zip(scored, sizes, strict=True)
            )
            yield Asked(task.name, item, scored, sizes, prompt, changed)
        if longest > context:
            raise WrongTokens(
                f"item {of} of {task.name} has {longest} tokens, the most of all, and the model's "
                f"context is {context} (seq_len); shorten it, "
                + ("lower `tokens`, " if written else "")
                + "or train with a larger seq_len"
            )


def _parts(item: Choice | Answer | Function) -> tuple[str, list[str]]:
    """What comes before, and the texts that are scored after it."""
    if isinstance(item, Choice):
        return item.context, item.choices
    if isinstance(item, Answer):
        return item.prompt, [item.answer]
    return item.prompt, [item.canonical_solution]


# ── Answers ──────────────────────────────────────────────────────────────────────────────────


def _answers(
    asked: Sequence[Asked],
    others: Sequence[LoadedTask],
    tokenizer: Tokenizer,
    config: Mapping[str, Any],
    model: Answers,
) -> list[dict[str, Any]]:
    """The line of each item, without the model's name."""
    mine = _to_own_tasks(asked, tokenizer, config, model)
    return mine + list(answers_to(others, tokenizer, config["items"], model))


def _to_own_tasks(
    asked: Sequence[Asked], tokenizer: Tokenizer, config: Mapping[str, Any], model: Answers
) -> list[dict[str, Any]]:
    scored = iter(model.score([one for of in asked for one in of.scored]))
    count, samples = config["tokens"], config.get("samples")
    answers, solutions = (
        [of.prompt for of in asked if of.prompt is not None and isinstance(of.item, kind)]
        for kind in (Answer, Function)
    )
    numbered = [Prompt(prompt, 0, number) for number, prompt in enumerate(answers)]
    written = iter(model.generate(numbered, count, GREEDY))
    drawn = iter(_drawn(solutions, count, samples, model) if samples else ())
    lines = []
    for of in asked:
        line = {"task": of.task} | of.item.model_dump()
        line |= _line(of, [next(scored) for _ in of.scored])
        if of.is_changed:
            line["changed"] = True
        if isinstance(of.item, Answer):
            line |= _written(of.item, tokenizer, next(written).tokens)
        elif isinstance(of.item, Function) and samples:
            line["samples"] = [
                {"written": until(tokenizer, one.tokens, FUNCTION_ENDS)} for one in next(drawn)
            ]
        lines.append(line)
    return lines


def _drawn(
    prompts: Sequence[np.ndarray], count: int, samples: Mapping[str, Any], model: Answers
) -> Iterator[list[Completion]]:
    """The solutions for each prompt, `count` tokens each."""
    each = samples["count"]
    asked = [Prompt(of, seed, n) for n, of in enumerate(prompts) for seed in range(each)]
    sampling = Sampling(temperature=samples["temperature"], top_p=samples["top_p"])
    made = model.generate(asked, count, sampling)
    for start in range(0, len(made), each):
        yield made[start : start + each]


def _test(lines: Iterable[dict[str, Any]]) -> None:
    """Add to each solution whether it passes its tests, and why not."""
    drawn = [
        (Function(**{key: line[key] for key in Function.model_fields}), one)
        for line in lines
        for one in line.get("samples", ())
    ]
    if drawn:
        found = solution_tests.tested([(item, one["written"]) for item, one in drawn])
        for (_, one), why in zip(drawn, found, strict=True):
            one |= {"passed": why is None, "why": why}


def _line(asked: Asked, scored: Sequence[Scored]) -> dict[str, Any]:
    sums = [float(one.logprobs.sum(dtype=np.float64)) for one in scored]
    tokens = [len(one.logprobs) for one in scored]
    if not isinstance(asked.item, Choice):
        return {"logprobs": sum(sums), "tokens": sum(tokens), "bytes": asked.bytes[0]}
    line = {"logprobs": sums, "tokens": tokens, "bytes": asked.bytes}
    return line | {"right": right_of(line | {"answer": asked.item.answer})}


def _written(item: Item, tokenizer: Tokenizer, tokens: np.ndarray) -> dict[str, Any]:
    """What the model wrote, and whether this is the answer, spaces around both aside."""
    assert isinstance(item, Answer)
    text = until(tokenizer, tokens, item.stop)
    return {"written": text, "right": text.strip() == item.answer.strip()}


def _measured(
    lines: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]
) -> dict[str, metrics.Score | None]:
    found: dict[str, metrics.Score | None] = {}
    for task, kind in kinds.items():
        of = scores_of(kind, [line for line in lines if line["task"] == task])
        found |= {metrics.of_task(task, what): score for what, score in of.items()}
    return found
