"""Data sets of lm_eval's tasks from a folder that the experiment brings, in place of the cache of
Hugging Face's `datasets`. The folder has one folder for each data set, called as at the Hub, with
Parquet, JSON or CSV files, with or without the README.md of the Hub."""

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from runner.spec.lm_eval_yaml import FORMATS, place
from runner.spec.task_items import BadTask


@contextmanager
def loading_from(folder: Path | None) -> Iterator[None]:
    """During the `with` body, lm_eval finds the data sets that are in the folder there."""
    import datasets

    real = datasets.load_dataset

    def load(path: str, name: str | None = None, **how: Any) -> Any:
        made = {"cache_dir": _scratch().name}
        if folder and path in FORMATS.values():
            return real(path, data_files=_files(folder, how.get("data_files")), **made)
        if not (found := folder and place(folder, path)):
            return real(path, name, **how)
        if (found / "README.md").is_file():
            names = datasets.get_dataset_config_names(str(found))
            return real(str(found), name if name in names else None, **made)
        inside = found / str(name)
        kind, splits = _splits(inside if inside.is_dir() else found)
        return real(kind, data_files=splits, **made)

    with mock.patch.object(datasets, "load_dataset", load):
        yield


@cache
def _scratch() -> "tempfile.TemporaryDirectory[str]":
    """Where `datasets` keeps its own copies until this process ends."""
    return tempfile.TemporaryDirectory()


def _splits(folder: Path) -> tuple[str, dict[str, list[str]]]:
    """The format of a folder's files and {split: files}: a file's name begins with its split, as in
    `dev-00000-of-00001.parquet`. Raises BadTask."""
    kinds: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.iterdir()):
        if (kind := FORMATS.get(path.suffix)) and (split := re.match("[A-Za-z]+", path.name)):
            kinds[kind][split[0]].append(str(path))
    if len(kinds) != 1:
        raise BadTask(f"{folder.name} has {len(kinds)} formats of data files; bring one", "data")
    return next(iter(kinds.items()))


def _files(folder: Path, said: Any) -> Any:
    """Names of data files as paths in the folder. Raises BadTask for others."""
    if isinstance(said, Mapping):
        return {split: _files(folder, files) for split, files in said.items()}
    if isinstance(said, list):
        return [_files(folder, file) for file in said]
    path = folder / str(said)
    if ".." in path.parts or not path.is_relative_to(folder) or not path.is_file():
        raise BadTask(f"{said} is no file of the folder that `data` names; add it", "data")
    return str(path)
