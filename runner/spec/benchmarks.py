"""The configuration of the step `benchmark`, and the metrics that it measures."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from engine.config.schema import Config, Count, refusal
from runner.lib.problems import near
from runner.spec.task_items import Kind, is_path_below

# Tasks without a file: they are made of the validation text (`runner.worker.builtin.made_tasks`).
MADE: dict[str, Kind] = {"cloze": "choice", "lexical-choice": "choice"}
FILE = ".jsonl"
NAME = r"[a-z0-9_.-]{1,50}"  # of a task, in the names of its metrics
METRICS: dict[Kind, tuple[str, ...]] = {
    "choice": ("accuracy", "accuracy_norm", "bpb", "choice_prob_norm"),
    "answer": ("exact_match", "bpb"),
    "text": ("bpb",),
}


def name_of(task: str) -> str:
    """The name of a task in metrics; of a file, its own without the ending."""
    return PurePosixPath(task).name.removesuffix(FILE)


def _task(task: str) -> str:
    if task in MADE:
        return task
    if not task.endswith(FILE) or not is_path_below(task):
        raise refusal(
            "there is no task `{task}`; there are {known}, or name a {file} file of the "
            "experiment's folder{near}",
            task=task,
            known=" and ".join(MADE),
            file=FILE,
            near=near(task, MADE),
        )
    if not re.fullmatch(NAME, name_of(task)):
        raise refusal(
            "`{name}` would be a part of metrics' names; call the file with at most 50 of a-z, "
            "0-9, _, . and -",
            name=name_of(task),
        )
    return task


def _each_once(tasks: tuple[str, ...]) -> tuple[str, ...]:
    names = [name_of(task) for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise refusal("two tasks are called `{name}`; take one out or rename it", name=name)
    return tasks


class TaskFile(Config):
    """What a plan knows of a file of items."""

    sha256: str
    kind: Kind
    items: Count


class Benchmark(Config):
    """Scores trained models on tasks: whether they prefer the right choice, write the right answer,
    or predict a text."""

    # YAML gives a list, the field is a tuple: so it is not strict.
    tasks: Annotated[
        tuple[Annotated[str, AfterValidator(_task)], ...], AfterValidator(_each_once)
    ] = Field(
        min_length=1,
        max_length=50,
        strict=False,
        description="cloze and lexical-choice, which are made of the validation text, and .jsonl "
        "files of the experiment's folder",
    )
    items: Count = Field(
        default=500, le=100_000, description="of each task, the most; of a file, the first"
    )
    tokens: Count = Field(default=64, description="maximum length of an answer that is written")
    files: dict[str, TaskFile] = Field(default={}, description="filled in by the plan")


def measures(config: Mapping[str, Any]) -> Iterator[str]:
    """The metrics that a step measures, from its configuration in the plan. Of a file that the plan
    has not read yet: those of any kind of item."""
    kinds = MADE | {task: file["kind"] for task, file in config["files"].items()}
    of_any = tuple(dict.fromkeys(what for of in METRICS.values() for what in of))
    for task in config["tasks"]:
        for what in METRICS[kinds[task]] if task in kinds else of_any:
            yield f"task/{name_of(task)}/{what}"
