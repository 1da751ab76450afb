"""Has reasoning-gym make the items of a task, in a process with bounded time and memory: what its
hundred generators take differs much, and importing them takes seconds.

An item's prompt is the generator's question, a line break and `Answer:`; its answer is a space and
the generator's answer."""

import importlib.util
import json
import re
import resource
import subprocess
import sys
from functools import cache
from typing import Any

from runner.lib.paths import LAB
from runner.lib.problems import near
from runner.spec.task_items import MAX_FILE, BadTask

PACKAGE = "reasoning_gym"
SEED = 0
SECONDS = 30  # of a processor
MEMORY = 4 << 30  # bytes of address space
ENVIRONMENT = {  # no secrets; hashes of texts, and so the order of sets, are always the same
    **{"LANG": "C.UTF-8", "PYTHONPATH": str(LAB), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
    **{"OPENBLAS_NUM_THREADS": "1", "MPLCONFIGDIR": "/nonexistent"},
}


@cache  # a plan asks twice
def items(dataset: str, count: int) -> bytes:
    """So many items of a dataset, as JSON lines; always the same ones. Raises BadTask."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise BadTask(
            "reasoning-gym is not installed; run `pip install 'regatta[gym]'` where the lab plans"
        )
    command = [sys.executable, "-P", "-m", __name__, dataset, str(count), str(SECONDS)]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=nothing, stdout=pipe, stderr=nothing, env=ENVIRONMENT
    ) as child:
        assert child.stdout
        head = child.stdout.readline(1 << 16)
        found = child.stdout.read(MAX_FILE + 1)
        child.kill()
    if not head.endswith(b"\n") or len(found) > MAX_FILE:
        much = f"{SECONDS} seconds, {MEMORY >> 30} GB of memory or {MAX_FILE >> 20} MB"
        raise BadTask(f"gym/{dataset}: {count:,} items take more than {much}; lower `items`")
    if error := json.loads(head).get("error"):
        raise BadTask(f"gym/{dataset}: {error}")
    return found


def main(dataset: str, count: int, seconds: int) -> None:
    """Print {}, and then a line for each item; or {"error": …}."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        lines = _made(dataset, count)
    except MemoryError:
        return  # the parent says so
    except Exception as error:  # whatever a generator raises
        words = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        lines = [json.dumps({"error": f"reasoning-gym cannot make it ({words}); take it out"})]
    print(*lines, sep="\n")


def _made(dataset: str, count: int) -> list[str]:
    import reasoning_gym  # an extra
    from reasoning_gym.factory import DATASETS

    if dataset not in DATASETS:
        words = near(dataset, DATASETS) or "; its documentation lists them"
        return [json.dumps({"error": f"reasoning-gym has no such dataset{words}"})]
    made: Any = reasoning_gym.create_dataset(dataset, seed=SEED, size=count)
    return ["{}", *(_line(made[number]) for number in range(count))]


def _line(item: Any) -> str:
    answer = item["answer"]
    if not isinstance(answer, str):
        raise ValueError("a question has no single answer")
    # An answer of several lines ends where there are more empty ones than inside it.
    breaks = max(map(len, re.findall(r"\n+", answer)), default=0)
    prompt = f"{item['question']}\nAnswer:"
    return json.dumps({"prompt": prompt, "answer": f" {answer}", "stop": ["\n" * (breaks + 1)]})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
