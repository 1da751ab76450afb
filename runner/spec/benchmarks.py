"""The configurations of the steps `benchmark` and `decontaminate`, which name tasks, and the
metrics that the first measures."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from engine.config.schema import Config, Count, refusal
from runner.lib.problems import near
from runner.schema.metrics import OF_LM_EVAL
from runner.spec import lm_eval_yaml
from runner.spec.task_items import Kind, is_path_below

# Tasks without a file: they are made of the validation text (`runner.worker.scores.made_tasks`).
MADE: dict[str, Kind] = {"cloze": "choice", "lexical-choice": "choice", "word-order": "choice"}
# Tasks whose items a package of this machine has (`runner.planning.task_sources`).
HUMANEVAL = "humaneval"
PACKAGED: dict[str, Kind] = {HUMANEVAL: "function"}
GYM = "gym/"  # before the name of a dataset of reasoning-gym
FILE = ".jsonl"
DATA = "data"  # where the store keeps data sets of lm_eval, beside such files
NAME = r"[a-z0-9_.-]{1,50}"  # of a task, in the names of its metrics
OF_THE_LAB = (*MADE, *PACKAGED)
METRICS: dict[Kind, tuple[str, ...]] = {
    "choice": ("accuracy", "accuracy_norm", "bpb", "choice_prob_norm"),
    "answer": ("exact_match", "bpb"),
    "text": ("bpb",),
    "function": ("bpb",),  # and `pass_at`
}
PASS_AT = (1, 10, 100)


def name_of(task: str) -> str:
    """The name of a task in metrics; of a file, its own without the ending."""
    return PurePosixPath(task).name.removesuffix(FILE)


def is_file(task: str) -> bool:
    """Whether a task is a file of the experiment's folder."""
    return task.endswith(FILE)


def kind_of(task: str) -> Kind | None:
    """The kind of a task's items; None if only its file tells."""
    if task.startswith(GYM) and not is_file(task):
        return "answer"
    return (MADE | PACKAGED).get(task)


def _task(task: str) -> str:
    if kind_of(task) and re.fullmatch(NAME, task.removeprefix(GYM)):
        return task
    if not is_file(task) or not is_path_below(task):
        raise refusal(
            "there is no task `{task}`; there are {known}, {gym}<dataset of reasoning-gym>, and "
            "{file} files of the experiment's folder{near}",
            task=task,
            known=", ".join(OF_THE_LAB),
            gym=GYM,
            file=FILE,
            near=near(task, OF_THE_LAB),
        )
    if name_of(task) in OF_THE_LAB:
        raise refusal("`{name}` is a task of the lab; rename the file", name=name_of(task))
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


Tasks = Annotated[tuple[Annotated[str, AfterValidator(_task)], ...], AfterValidator(_each_once)]


class TaskFile(Config):
    """What a plan knows of a file of items."""

    sha256: str
    kind: Kind
    items: Count
    norm: Literal["characters"] | None = Field(
        default=None,
        exclude_if=lambda norm: norm is None,  # old plans have no such key: theirs was bytes
        description="of choices: what accuracy_norm divides by",
    )


class Samples(Config):
    """Solutions that a model writes for each function, and that are tested."""

    count: Count = Field(le=200, description="how many for each function")
    temperature: float = Field(
        default=0.8, ge=0, le=100, description="0: always the most likely token, for a count of 1"
    )
    top_p: float = Field(
        default=0.95,
        gt=0,
        le=1,
        description="draw only among the fewest most likely tokens that have this probability "
        "together",
    )

    @field_validator("temperature")
    @classmethod
    def _differ(cls, temperature: float, info: ValidationInfo) -> float:
        if temperature == 0 and info.data.get("count", 1) > 1:
            raise refusal("without a temperature all solutions are equal; write count: 1")
        return temperature


class LmEvalTask(Config):
    """A task of EleutherAI's lm_eval."""

    task: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,40}$")] = Field(
        description="its name, as `lm_eval ls tasks` lists it, or a .yaml file of the experiment's "
        "folder with the keys of lm_eval"
    )
    shots: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="how many solved examples come before each item; without it, as many as the "
        "task itself says",
    )


# Benchmarks that are reported together. marin-8b: those of the table of Marin's 8B.
SUITES: dict[str, tuple[tuple[str, int], ...]] = {
    "marin-8b": (
        ("agieval_lsat_ar", 3),
        ("arc_easy", 10),
        ("arc_challenge", 10),
        ("boolq", 10),
        ("commonsense_qa", 10),
        ("copa", 0),
        ("hellaswag", 0),
        ("hellaswag", 10),
        ("lambada_openai", 0),
        ("openbookqa", 0),
        ("piqa", 10),
        ("wsc273", 0),
        ("winogrande", 0),
        ("mmlu", 0),
        ("mmlu", 5),
        ("leaderboard_mmlu_pro", 5),
        ("leaderboard_bbh", 3),
        ("leaderboard_gpqa", 0),
        ("gsm8k_cot", 8),
    )
}


def lm_eval_tasks(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """{name in metrics: {task, shots}} of all tasks of lm_eval; the name says the shots if they are
    declared."""
    suite = SUITES.get(config["suite"] or "", ())
    asked = [*config["lm_eval"], *({"task": task, "shots": shots} for task, shots in suite)]
    return {
        one["task"].lower().removesuffix(lm_eval_yaml.ENDS)
        + ("" if one["shots"] is None else f"-{one['shots']}shot"): one
        for one in asked
    }


def _have_items(tasks: tuple[str, ...]) -> tuple[str, ...]:
    for task in tasks:
        if task in MADE:
            raise refusal(
                "`{task}` is made of a validation text; name that text as the input `held_out`",
                task=task,
            )
    return tasks


class Decontaminate(Config):
    """Leaves out training documents that have items of benchmarks, or passages of a held-out
    text."""

    tasks: Annotated[Tasks, AfterValidator(_have_items)] = Field(
        default=(),
        max_length=50,
        strict=False,
        description="humaneval; gym/<dataset> of reasoning-gym; and .jsonl files of items in the "
        "experiment's folder",
    )
    items: Count = Field(
        default=500, le=100_000, description="of each generator gym/<dataset>, so many"
    )
    share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="a document has an item if it has at least this share of the item's 13-grams",
    )
    hits: Count | None = Field(
        default=8, description="or at least so many of them; null: only the share counts"
    )
    common_above: float = Field(
        default=0.001,
        gt=0,
        le=1,
        description="13-grams in a larger share of the training documents, and in more than 20 of "
        "them, are boilerplate and do not count",
    )
    files: dict[str, TaskFile] = Field(default={}, description="filled in by the plan")


class Benchmark(Config):
    """Scores trained models on tasks: whether they prefer the right choice, write the right answer,
    or predict a text."""

    # YAML gives a list, the field is a tuple: so it is not strict.
    tasks: Tasks = Field(
        default=(),
        max_length=50,
        strict=False,
        description="cloze, lexical-choice and word-order, which are made of the validation text; "
        "humaneval; gym/<dataset> of reasoning-gym; and .jsonl files of the experiment's folder",
    )
    items: Count = Field(
        default=500, le=100_000, description="of each task, the most; of a file, the first"
    )
    tokens: Count = Field(
        default=64, description="maximum length of an answer or a solution that is written"
    )
    samples: Samples | None = Field(
        default=None,
        exclude_if=lambda samples: samples is None,  # old plans have no such key
        description="of tasks of functions: have models write solutions, and test them",
    )
    lm_eval: tuple[LmEvalTask, ...] = Field(
        default=(),
        max_length=100,
        strict=False,
        description="tasks of EleutherAI's lm_eval, whose data have to be on this machine",
    )
    suite: Literal["marin-8b"] | None = Field(
        default=None, description="tasks of lm_eval that belong together"
    )
    data: str | None = Field(
        default=None,
        exclude_if=lambda data: data is None,  # old plans have no such key
        description="a folder of the experiment's folder with data sets for tasks of lm_eval, each "
        "in a folder that is called as at the Hub; without it, the lab's own cache is read",
    )
    data_files: dict[str, str] = Field(
        default={}, exclude_if=lambda files: not files, description="filled in by the plan: SHA-256"
    )
    own_tasks: dict[str, dict[str, Any]] = Field(
        default={}, exclude_if=lambda tasks: not tasks, description="filled in by the plan"
    )
    files: dict[str, TaskFile] = Field(default={}, description="filled in by the plan")


def pass_at(count: int) -> dict[str, int]:
    """{metric: k} of the shares of functions that one of k solutions solves, of so many."""
    return {f"pass_at_{k}": k for k in PASS_AT if k <= count}


def measures(config: Mapping[str, Any]) -> Iterator[str]:
    """The metrics that a step may measure, from its configuration in the plan. Of tasks of lm_eval,
    and of files that the plan has not read yet: those of any kind of item."""
    kinds = {task: file["kind"] for task, file in config["files"].items()}
    solutions = pass_at((config.get("samples") or {"count": 0})["count"])
    of_any = tuple(dict.fromkeys(what for of in METRICS.values() for what in of))
    for task in config["tasks"]:
        kind = kind_of(task) or kinds.get(task)
        for what in METRICS[kind] if kind else of_any:
            yield f"task/{name_of(task)}/{what}"
        for what in solutions if kind in ("function", None) else ():
            yield f"task/{name_of(task)}/{what}"
    for usual in (of_any, OF_LM_EVAL):
        for name in lm_eval_tasks(config):
            yield from (f"task/{name}/{what}" for what in usual)
