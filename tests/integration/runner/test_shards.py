"""Of `test_shards.py` what needs a process, a socket or a compilation."""

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.store import artifacts
from runner.store.store import Store
from runner.worker.shard_jobs import Child
from runner.worker.step_process import Job
from runner.worker.texts.filter_and_join import read_split
from tests.integration.runner.test_execute import HEAD, planned
from tests.integration.runner.test_execute import made as of_steps
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


CLEANED = f"""{HEAD}steps:
  prepare: {{do: own:prepare}}
  unique: {{do: dedup, inputs: {{text: prepare}}}}
  clean:
    do: decontaminate
    inputs: {{text: unique, held_out: prepare}}
    config: {{tasks: [items.jsonl, humaneval]}}
"""
PREPARE = """
import json

ITEM = "one two three four five six seven eight nine ten eleven twelve thirteen"

def prepare(config, inputs, out):
    for shard in range(3):
        texts = [f"a document of shard {shard}", f"It says: {ITEM.upper()}!", f"again in {shard}"]
        lines = [json.dumps({"text": text, "source": "tests"}) for text in texts]
        (out / f"train.part{shard}.jsonl").write_text("\\n".join(lines))
    (out / "validation.jsonl").write_text(json.dumps({"text": "held out"}))
"""


def test_a_text_is_deduplicated_and_decontaminated_by_a_task_of_the_folder(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    item = {
        "prompt": "one two three four five six seven eight nine ten eleven",
        "answer": " twelve",
    }
    (tmp_path / "two-arms").mkdir()
    items = tmp_path / "two-arms/items.jsonl"
    items.write_text(json.dumps(item | {"answer": " twelve thirteen"}))
    plan = planned(tmp_path, store, CLEANED, own=PREPARE)
    found = of_steps(store, plan)
    unique, clean = found["unique"].folder, found["clean"].folder
    assert len(list(read_split(unique, "train"))) == 7
    assert [json.loads(line)["kept"] for line in (unique / "pairs.jsonl").open()] == [
        "train.00000:2"
    ] * 2
    assert "It says" not in " ".join(read_split(clean, "train"))
    (line,) = map(json.loads, (clean / "contaminated.jsonl").open())
    assert (line["of"], line["dropped"]) == ("items", "train.00000:2")
    before = plan.steps["clean"].fingerprint
    items.write_text(json.dumps(item))
    after = planned(tmp_path, store, CLEANED, own=PREPARE).steps
    assert after["unique"].fingerprint == plan.steps["unique"].fingerprint
    assert after["clean"].fingerprint != before, "other items make another step"
