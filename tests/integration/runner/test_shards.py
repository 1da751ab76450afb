"""Of `test_shards.py` what needs a process, a socket or a compilation."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.store import artifacts
from runner.worker.builtin.texts import read_split
from runner.worker.shard_jobs import Child
from runner.worker.step_process import Job
from tests.unit.runner.test_shards import (
    _a_process_for_each_shard as _a_process_for_each_shard,  # a fixture
)
from tests.unit.runner.test_shards import made


def test_each_shard_has_a_process_of_its_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = made(tmp_path, "counted", pool.map)
    documents = list(read_split(found.folder, "train"))
    assert documents[0] == "train 0 0, number 1 of its process"
    assert documents[9] == "train 1 0, number 1 of its process"
    assert "jax" in found.manifest.receipt


def test_a_function_that_raises_names_shard_and_document(tmp_path: Path) -> None:
    words = r"own:.*, train.part1.jsonl, document 6: KeyError: 'no such word'"
    with pytest.raises(artifacts.MakingFailed, match=words):
        made(tmp_path, "picky")
    with pytest.raises(artifacts.MakingFailed, match="document 1: it gave int; it gives a s"):
        made(tmp_path, "counts")


def test_a_killed_process_costs_its_own_shards_and_no_others(tmp_path: Path) -> None:
    begun: list[str] = []

    def noting(child: Child, jobs: Iterable[Job]) -> Iterator[None]:
        for job in jobs:
            begun.extend(job.inputs["shards"])
            yield child(job)

    found = made(tmp_path, "dies_once", noting)
    assert found.manifest.generation == 2
    assert begun == ["train.00000", "train.00001", "train.00001", "validation"]
    assert len(list(read_split(found.folder, "train"))) == 2 * 9
