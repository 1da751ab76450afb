"""Has reasoning-gym make the items of a task, in a child with bounded time and memory: what its
hundred generators take differs much, and importing them takes seconds.

An item's prompt is the generator's question, a line break and `Answer:`; its answer is a space and
the generator's answer."""

import importlib.util
import json
import re
from functools import cache
from typing import Any

from runner.isolation import limited
from runner.lib.problems import near
from runner.spec.task_items import MAX_FILE, BadTask

PACKAGE = "reasoning_gym"
SEED = 0
LIMITS = limited.Limits(seconds=30.0, memory=4 << 30, answer=MAX_FILE)


@cache  # a plan asks twice
def items(dataset: str, count: int) -> bytes:
    """So many items of a dataset, as JSON lines; always the same ones. Raises BadTask."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise BadTask(
            "reasoning-gym is not installed; run `pip install 'regatta[gym]'` where the lab plans"
        )
    try:
        lines = limited.call(_made, dataset, count, limits=LIMITS, expected=BadTask)
    except limited.Refused as refused:
        remedy = "take it out" if refused.kind == "raised" else "lower `items`"
        words = f"reasoning-gym cannot make {count:,} items of it ({refused}); {remedy}"
        raise BadTask(f"gym/{dataset}: {words}") from refused
    return "".join(f"{line}\n" for line in lines).encode()


def _made(dataset: str, count: int) -> list[str]:
    """A line for each item. Raises BadTask."""
    import reasoning_gym  # an extra
    from reasoning_gym.factory import DATASETS

    if dataset not in DATASETS:
        words = near(dataset, DATASETS) or "; its documentation lists them"
        raise BadTask(f"gym/{dataset}: reasoning-gym has no such dataset{words}")
    made: Any = reasoning_gym.create_dataset(dataset, seed=SEED, size=count)
    return [_line(made[number]) for number in range(count)]


def _line(item: Any) -> str:
    answer = item["answer"]
    if not isinstance(answer, str):
        raise ValueError("a question has no single answer")
    # An answer of several lines ends where there are more empty ones than inside it.
    breaks = max(map(len, re.findall(r"\n+", answer)), default=0)
    prompt = f"{item['question']}\nAnswer:"
    return json.dumps({"prompt": prompt, "answer": f" {answer}", "stop": ["\n" * (breaks + 1)]})
