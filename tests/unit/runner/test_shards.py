"""Texts of many shards: whatever the number of workers, and wherever one of them was lost, what is
made is the same."""

import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.planning import planner
from runner.spec.step_types import BUILT_IN
from runner.store import artifacts, digests
from runner.store.scratch_paths import RECEIPT
from runner.store.store import Store
from runner.worker import executor, shard_jobs, step_process
from runner.worker.shard_jobs import Child, Mapper
from runner.worker.step_process import Job
from runner.worker.texts import filter_and_join, shards
from runner.worker.texts.filter_and_join import read_split
from tests.decided import KINDS
from tests.integration.runner.test_execute import HEAD, planned

OWN = """
import json, os, signal
from pathlib import Path

SEEN = []

def prepare(config, inputs, out):
    for split, shards in (("train", 2), ("validation", 1)):
        for shard in range(shards):
            lines = [json.dumps({"text": f"{split} {shard} {n}"}) for n in range(9)]
            (out / f"{split}.part{shard}.jsonl").write_text("\\n".join(lines))

def loud(text):
    return None if text.endswith("7") else text.upper()

def counted(text):
    SEEN.append(text)
    return f"{text}, number {len(SEEN)} of its process"

def picky(text):
    if "1 5" in text:
        raise KeyError("no such word")
    return text

def counts(text):
    return len(text)

def dies_once(text):
    before = f"{Path(__file__).parents[5]}/once"  # in the store
    if text.startswith("train 1") and not os.path.exists(before):
        open(before, "x").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return text
"""
DECLARED = f"""{HEAD}steps:
  prepare: {{do: own:prepare}}
  map: {{do: map, inputs: {{text: prepare}}, config: {{function: own:NAME}}}}
"""
CONFIGS: dict[str, dict[str, Any]] = {
    "map": {"function": "shouting:loud"},
    "filter": {
        **{"least_characters": 10, "most_characters": None, "matching": "[0-5]"},
        "rules": ("gopher/word_length", "c4/curly_bracket"),
    },
    "dedup": {"similarity": 0.8, "alarm_above": 0.5},
    "decontaminate": {
        **{"tasks": (), "items": 1, "share": 0.5, "hits": 8, "common_above": 1.0},
    },
    "tokenize": {"source": None, "tokenizer": "bpe", "vocab_size": 300, "sha256": {}},
}


@pytest.fixture(autouse=True)
def _a_process_for_each_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "TOGETHER", 1)


# ── In this process ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Seven shards, one without documents."""
    folder = tmp_path / "text"
    folder.mkdir()
    (tmp_path / "shouting.py").write_text(OWN)
    for split, count in (("train", 5), ("validation", 2)):
        for shard in range(count):
            documents = [f"{split} {shard} {n} né" * n for n in range(0 if shard == 3 else 40)]
            documents += ["held out, too, and long enough to be found: " + "a b c " * 9] * (
                shard < 2
            )
            lines = [json.dumps({"text": document}) for document in documents]
            (folder / f"{split}.part{shard}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def a_job(do: str, text: Path, number: int = 1, step: str = "step") -> Job:
    out = text.parent / step / f"{number}-maker"
    out.mkdir(parents=True)
    scratch = out.with_name(f"{out.name}.scratch")
    scratch.mkdir()
    return Job(
        function=BUILT_IN[do].function,
        config=CONFIGS[do],
        own=("shouting:loud",) if do == "map" else (),
        inputs={"text": str(text), **({"held_out": str(text)} if do == "decontaminate" else {})},
        out=str(out),
        scratch=str(scratch),
        code=str(text.parent),
        devices=KINDS["cpu"],
    )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, text: Path) -> Child:
    """Does a job in this process."""
    monkeypatch.syspath_prepend(str(text.parent))

    def do(job: Job) -> None:
        own = {name: step_process._imported(name) for name in job.own}
        handed = (own,) if own else ()
        inputs = step_process._paths(job.inputs)
        step_process._imported(job.function)(job.config, inputs, Path(job.out), *handed)
        (Path(job.scratch) / RECEIPT).write_text("{}")

    return do


@pytest.mark.parametrize("do", ["map", "filter"])
def test_a_document_keeps_its_other_keys(text: Path, here: Child, do: str) -> None:
    line = {"id": "a", "source": "tests", "text": "012345 6789", "licence": "CC0-1.0"}
    for path in text.iterdir():
        path.write_text(json.dumps(line) + "\n")
    shard_jobs.make(do, job := a_job(do, text), here, map, map)
    found = json.loads((Path(job.out) / "train.00000.jsonl").read_text())
    assert found | {"text": line["text"]} == line
    assert list(found) == list(line)


def test_texts_are_joined_split_by_split_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, ending in (("b", "part1.jsonl"), ("a", "jsonl.gz")):
        (tmp_path / name).mkdir()
        for split in ("train", "validation"):
            data = json.dumps({"text": f"{split} of {name}"}).encode() + b"\n"
            packed = gzip.compress(data, mtime=0) if ending.endswith("gz") else data
            (tmp_path / name / f"{split}.{ending}").write_bytes(packed)
        (tmp_path / name / "report.json").write_text("{}")
    (out := tmp_path / "out").mkdir()
    filter_and_join.join_texts({}, {name: tmp_path / name for name in "ba"}, out)
    assert sorted(path.name for path in out.iterdir()) == [
        *("train.00000.jsonl.gz", "train.00001.jsonl"),
        *("validation.00000.jsonl.gz", "validation.00001.jsonl"),
    ]
    assert list(read_split(out, "validation")) == ["validation of a", "validation of b"]


def test_a_filter_keeps_the_sources_that_it_names(text: Path, here: Child) -> None:
    for path in text.iterdir():
        lines = [json.dumps({"text": "long enough", "source": of}) for of in ("a", "b", "a")]
        path.write_text("\n".join(lines) + "\n")
    job = a_job("filter", text)
    passing = {"least_characters": None, "most_characters": None, "matching": None}
    job = replace(job, config={**passing, "sources": ["b"]})
    shard_jobs.make("filter", job, here, map, map)
    assert len(list(read_split(Path(job.out), "train"))) == 5
    report = json.loads((Path(job.out) / "report.json").read_bytes())
    assert report["left_out"] == {"of a source that is not one of sources": 14}
    assert report["sources"]["a"]["kept_documents"] == 0


def digest(job: Job) -> str:
    return digests.sha256(digests.digests(Path(job.out)))


@pytest.mark.parametrize("do", CONFIGS)
def test_one_two_and_three_workers_make_the_same_bytes_as_one_after_another(
    text: Path, here: Child, do: str
) -> None:
    shard_jobs.make(do, one_after_another := a_job(do, text), here, map, map)
    for count in (1, 2, 3):
        job = a_job(do, text, step=f"by {count}")
        with ThreadPoolExecutor(count) as pool:
            shard_jobs.make(do, job, here, map, pool.map)
        assert digest(job) == digest(one_after_another)
    here(at_once := a_job(do, text, step="at once"))
    assert digest(at_once) == digest(one_after_another), "and so does a single process"


def test_a_tokenizer_that_another_text_has_taught_is_used_for_every_shard(
    text: Path, here: Child
) -> None:
    here(taught := a_job("tokenize", text, step="taught"))
    given = CONFIGS["tokenize"] | {"tokenizer": "given", "vocab_size": None}
    inputs = {"text": str(text), "tokenizer": taught.out}
    job, at_once = a_job("tokenize", text), a_job("tokenize", text, step="at once")
    job = replace(job, config=given, inputs=inputs)
    shard_jobs.make("tokenize", job, here, map, map)
    here(replace(at_once, config=given, inputs=inputs))
    assert digest(job) == digest(at_once) == digest(taught)


def test_each_shard_gives_a_shard_in_the_same_order(text: Path, here: Child) -> None:
    job = a_job("map", text)
    shard_jobs.make("map", job, here, map, map)
    made = Path(job.out)
    assert sorted(path.name for path in made.glob("*.jsonl")) == [
        *(f"train.0000{n}.jsonl" for n in range(5)),
        *(f"validation.0000{n}.jsonl" for n in range(2)),
    ]
    assert (made / "train.00003.jsonl").stat().st_size == 0
    documents = [document for document in read_split(text, "train") if document[-1:] != "7"]
    assert list(read_split(made, "train")) == [document.upper() for document in documents]


def test_finished_parts_of_a_lost_maker_are_reused_unless_damaged(text: Path, here: Child) -> None:
    done: list[str] = []

    def unlucky(job: Job) -> None:
        if "shards" not in job.inputs:
            return here(job)
        (name,) = job.inputs["shards"]
        if name == "train.00004" and not done.count("lost"):
            done.append("lost")
            raise artifacts.MakerLost("its node is gone")
        done.append(name)
        return here(job)

    with pytest.raises(artifacts.MakerLost, match="its node is gone"):
        shard_jobs.make("filter", a_job("filter", text, 1), unlucky, map, map)
    assert done == [*(f"train.0000{n}" for n in range(4)), "lost"]
    done[:] = ["lost"]
    for damaged in text.parent.glob("step/1-*.scratch/parts/*/made/train.00002.jsonl"):
        damaged.write_bytes(damaged.read_bytes()[:-1])
    shard_jobs.make("filter", job := a_job("filter", text, 2), unlucky, map, map)
    assert done == ["lost", "train.00002", "train.00004", "validation.00000", "validation.00001"]
    here(undisturbed := a_job("filter", text, 3))
    assert digest(job) == digest(undisturbed)


@pytest.mark.parametrize("do", ["filter", "dedup", "decontaminate"])
def test_wherever_a_maker_is_lost_the_next_one_makes_the_same_bytes(
    text: Path, here: Child, do: str
) -> None:
    shard_jobs.make(do, undisturbed := a_job(do, text), here, map, map)
    # Seven parts and what joins them; before them what `decontaminate` looks for.
    for last in range(9 if do == "decontaminate" else 8):
        left = iter(range(last))

        def unlucky(job: Job, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                (Path(job.out) / "half").write_text("of a file")
                raise artifacts.MakerLost("its node is gone")
            here(job)

        step = f"{do} {last}"
        with pytest.raises(artifacts.MakerLost):
            shard_jobs.make(do, a_job(do, text, 1, step), unlucky, map, map)
        shard_jobs.make(do, job := a_job(do, text, 2, step), here, map, map)
        assert digest(job) == digest(undisturbed)


def test_a_split_of_which_nothing_passes_is_refused(text: Path, here: Child) -> None:
    job = a_job("filter", text)
    job = replace(job, config=CONFIGS["filter"] | {"matching": "train"})
    with pytest.raises(Exception, match="no document of the validation split passes"):
        shard_jobs.make("filter", job, here, map, map)


def test_small_shards_share_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "TOGETHER", 100)
    for name, size in {"a": 40, "b": 70, "c": 10, "d": 200, "e": 5}.items():
        (tmp_path / f"train.{name}.txt").write_bytes(b"x" * size)
    (tmp_path / "validation.txt").write_bytes(b"x")
    groups = [list(group) for group in shards.groups(shards.shards(tmp_path))]
    assert groups == [
        ["train.00000", "train.00001"],
        ["train.00002", "train.00003"],
        ["train.00004", "validation"],
    ]


# ── In processes ─────────────────────────────────────────────────────────────────────────────


def made(tmp_path: Path, function: str, mapper: Mapper = map) -> artifacts.Made:
    store = Store(tmp_path / "store")
    plan = planned(tmp_path, store, DECLARED.replace("NAME", function), own=OWN)
    code = store.local(planner.code_folder(plan))
    executor.make(store, "prepare", plan.steps, plan.kinds, code, "x1", terms=executor.OWN_MACHINE)
    return executor.make(
        store, "map", plan.steps, plan.kinds, code, "x1", mapper, terms=executor.OWN_MACHINE
    )
