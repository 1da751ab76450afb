"""Scores of a task, from the recorded items alone (`items.jsonl`). Pure.

accuracy         share of items whose right choice is the most likely one, by the log-probability
                 of the whole choice. If n choices tie, the item counts 1/n.
accuracy_norm    the same by log-probability per character of the choice, without the spaces
                 before it: what lm_eval calls acc_norm
choice_prob_norm probability of the right choice, divided by that of all choices together
bpb              bits per byte of the right choice, the right answer, the solution or the text:
                 the sum of the items' bits over the sum of their bytes
exact_match      share of items whose answer was written exactly
pass_at_k        share of functions that one of k solutions solves: the unbiased estimate from the n
                 solutions of each, of which c pass, 1 − C(n−c, k)/C(n, k) (Chen et al. 2021,
                 arXiv:2107.03374, equation 1)

Tasks of lm_eval have its metrics under its own names, but for acc and acc_norm.

The standard error is over items (for bpb, of a ratio of sums, to first order). `chance` is what
guessing gives."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from runner.schema import metrics
from runner.schema.metrics import Score
from runner.spec.benchmarks import pass_at

TIE = 1e-5  # nats within which two choices tie: more than rounding, less than any real difference

Item = Mapping[str, Any]
Scorer = Callable[[Sequence[Item]], Score | None]


def scores_of(kind: str, items: Sequence[Item]) -> dict[str, Score | None]:
    """{what: score} of the items of one task and model; None if it is not finite."""
    if kind == "lm_eval":
        return _of_lm_eval(items)
    found = {what: of(items) for what, of in SCORES[kind].items()}
    drawn = [item["samples"] for item in items if "samples" in item]
    for what, k in pass_at(len(drawn[0]) if drawn else 0).items():
        found[what] = _mean(partial(_solved, k), of_choices=False)(items)
    return found


def _solved(k: int, item: Item) -> float:
    """The probability that at least one of k of the item's solutions passes, drawn without
    replacement."""
    n, c = len(item["samples"]), sum(one["passed"] for one in item["samples"])
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def _of_lm_eval(items: Sequence[Item]) -> dict[str, Score | None]:
    """As lm_eval has judged each item, and what it computed of all items together; bpb and
    choice_prob_norm as for other tasks. Of a group of tasks, what only some of them have is of
    each one, as `<task>/<what>`."""
    found: dict[str, Score | None] = {}
    parts: dict[str, list[Item]] = {}
    for item in items:
        parts.setdefault(item.get("part", ""), []).append(item)
    for theirs in dict.fromkeys(name for item in items for name in item["metrics"]):
        judged = {part: [x for x in of if theirs in x["metrics"]] for part, of in parts.items()}
        groups = {_name(theirs): [x for of in judged.values() for x in of]}
        if not all(judged.values()):
            groups = {f"{_name(part)}/{_name(theirs)}": of for part, of in judged.items() if of}
        for what, of in groups.items():
            guessed = _have_choices(of) and theirs in JUDGED
            found[what] = _mean(partial(_judged, theirs), of_choices=guessed)(of)
    for part, of in parts.items():
        for theirs, value in of[0].get("aggregates", {}).items():
            what = _name(theirs) if len(parts) == 1 else f"{_name(part)}/{_name(theirs)}"
            found[what] = metrics.score(value, len(of))
    known = [item for item in items if item["answer"] is not None]
    if known and all("logprobs" in item for item in items):
        found["bpb"] = _bpb(known)
    if known and _have_choices(items):
        found["choice_prob_norm"] = SCORES["choice"]["choice_prob_norm"](known)
    return found


def _have_choices(items: Sequence[Item]) -> bool:
    return all(np.size(item.get("logprobs", ())) > 1 for item in items)


def _judged(metric: str, item: Item) -> float:
    return float(item["metrics"][metric])


def _name(theirs: str) -> str:
    """The name here of a metric or a task of lm_eval."""
    metric, dot, reading = theirs.partition(".")
    plain = (JUDGED.get(metric, metric) + dot + reading).lower()
    return re.sub(r"[^a-z0-9_.-]", "_", plain.replace("+", "p").replace("@", "_at_"))


def right_of(item: Item, *, per_character: bool = False) -> float:
    """1 if the right choice is the most likely one, 1/n if n choices tie, else 0."""
    of = _logprobs(item)
    if per_character:
        of = of / np.array([len(choice.lstrip()) or 1 for choice in item["choices"]])
    best = of.max() - of <= TIE
    return float(best[item["answer"]] / best.sum())


def _probability(item: Item) -> float:
    of = _logprobs(item)
    return float(np.exp(of - of.max())[item["answer"]] / np.exp(of - of.max()).sum())


def _logprobs(item: Item) -> np.ndarray:
    return np.array(item["logprobs"], np.float64)


def _mean(value: Callable[[Item], float], *, of_choices: bool) -> Scorer:
    def scored(items: Sequence[Item]) -> Score | None:
        values = np.array([value(item) for item in items])
        chance = np.mean([1 / len(item["logprobs"]) for item in items]) if of_choices else 0.0
        return _score(float(values.mean()), values, float(chance))

    return scored


def _bpb(items: Sequence[Item]) -> Score | None:
    """None if the tokens of an item do not say its text: then they have fewer bits than it."""
    if any(item.get("changed") for item in items):
        return None

    def of(key: str) -> np.ndarray:
        return np.array([_right(item, key) for item in items], np.float64)

    bits, length = -of("logprobs") / math.log(2), of("bytes")
    value = bits.sum() / length.sum()
    return _score(float(value), (bits - value * length) / length.mean(), None)


def _right(item: Item, key: str) -> float:
    found = item[key]
    return float(found[item["answer"]] if isinstance(found, list) else found)


def _score(value: float, parts: np.ndarray, chance: float | None) -> Score | None:
    error = float(parts.std(ddof=1) / math.sqrt(len(parts))) if len(parts) > 1 else None
    return metrics.score(value, len(parts), error, chance)


# Metrics of lm_eval that have another name here.
JUDGED = {"acc": "accuracy", "acc_norm": "accuracy_norm"}
SCORES: Mapping[str, Mapping[str, Scorer]] = {
    "choice": {
        "accuracy": _mean(right_of, of_choices=True),
        "accuracy_norm": _mean(lambda item: right_of(item, per_character=True), of_choices=True),
        "bpb": _bpb,
        "choice_prob_norm": _mean(_probability, of_choices=True),
    },
    "answer": {
        "exact_match": _mean(lambda item: float(item["right"]), of_choices=False),
        "bpb": _bpb,
    },
    "text": {"bpb": _bpb},
    "function": {"bpb": _bpb},
}
