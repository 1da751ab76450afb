"""Whatever a job writes: what is read of it is refused in words or within bounds, and every page is
built."""

import json
import os
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.site.pages.runs import end_of_log
from runner.history import measurements, results_entries, step_runs
from runner.lib import bounds, untrusted_files
from runner.publish import preview
from runner.schema import job_reports
from runner.schema.record import PlannedStep
from runner.store import artifacts, digests
from runner.store.store import Store
from runner.worker import shard_jobs
from tests import hostile
from tests.examples import examples
from tests.integration.runner.test_measured import tiny as tiny  # a fixture
from tests.unit.runner.test_cli import local as local  # a fixture

EXAMPLES = examples(2)
MOST_MEMORY = 400 << 20  # bytes that reading any one file takes
SOME = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),  # a story is long, and its fixtures change nothing
)
SCORE = {
    "bpb": 2.0,
    "loss": 1.4,
    "targets": 64,
    "params_sha256": "a" * 64,
    "parameters": 7,
    "examined": {"positions": 64, "largest": 0.0, "void": "", "forward_flops_per_token": 50},
}


# ── Each reader ──────────────────────────────────────────────────────────────────────────────


STEP = cast(
    PlannedStep,
    SimpleNamespace(
        config={"tokens": 64, "model": {}, "own": {}, "train": {"num_train_steps": 10**6}},
        inputs={"models": {"train/a": "f"}},
        store="evaluate",
    ),
)


def as_scores(_: Path) -> object:
    return step_runs.scores_of(cast(Store, None), STEP, {})


def as_a_curve(_: Path) -> object:
    return step_runs.losses_of(cast(Store, None), STEP)


def as_a_model(_: Path) -> object:
    return measurements._another_model(cast(Store, None), STEP)


def as_metrics(path: Path) -> object:
    refused: list[str] = []
    return list(job_reports.read_metrics(path.parent, 100, refused)), refused


def as_an_entry(path: Path) -> object:
    content = untrusted_files.read(path, results_entries.MAX_BYTES) or b""
    return results_entries.examined("a", content, {}).canonical()


def part_of(path: Path, _: str, at: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(length)


def as_a_preview(path: Path) -> object:
    if not path.is_file():  # whoever asks knows that it is there
        return None
    return [
        preview.look(
            preview.Part(name, kind, {name: name}),
            {name: path.stat().st_size},
            partial(part_of, path),
        )
        for name, kind in (("a.jsonl", "lines"), ("a.json", "text"))
    ]


def as_a_receipt(path: Path) -> object:
    return shard_jobs.receipts(path)


def as_a_manifest(path: Path) -> object:
    store = Store(path.parent / "store")
    place = store.local("steps/a/0000000000000000/manifest.json")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    if path.is_file():
        place.hardlink_to(path)
    return artifacts.said(store, "a", "0" * 64)


READERS = {
    as_scores: {"a": SCORE},
    as_a_curve: {"step": 1, "loss": 1.0},
    as_a_model: {"model": "x"},
    as_metrics: {"step": 1, "loss": 5.5, "grad_norm": 1.0, "learning_rate": 0.1, "tokens": 64},
    as_an_entry: {"runs": [{"run_info": {"author": {"name": "Ada"}, "model_config": {}}}]},
    as_a_preview: {"text": "x", "n": [1, 2]},
    as_a_receipt: {"jax": "0.10.2"},
    as_a_manifest: {"name": "a", "seconds": 1.0, "files": {}},
}
REFUSALS = (*step_runs.UNBELIEVED, untrusted_files.Refused, digests.BadOutput)


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


def reading(reader: Callable[[Path], object], path: Path) -> object:
    """What a reader says of a file, or the refusal, each in words that can be written down."""

    def file_of(_: object, __: object, ___: str, most: int = step_runs.MAX_BYTES) -> object:
        return untrusted_files.read(path, most)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(step_runs, "file_of", file_of)
        try:
            said = reader(path)
        except REFUSALS as error:
            said = step_runs.said(error)
    repr(said).encode()
    return said


@settings(SOME, max_examples=20 * EXAMPLES)
@given(st.sampled_from(list(READERS)), st.data())
def test_whatever_a_file_holds_its_reader_refuses_it_in_words_or_reads_it(
    reader: Callable[[Path], object], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name).resolve() / "0.jsonl"
        path.write_text(json.dumps(READERS[reader]) + "\n")
        hostile.spoil(data.draw, path, places=False)
        reading(reader, path)


BOMBS = {
    "sparse": b"",
    "lists": b"[" + b"[]," * (1 << 24) + b"[]]",
    "lines": b"1\n" * (1 << 25),
    "empty lines": b"\n" * (60 << 20),
    "digits": b"9" * (60 << 20),
    "deep": b"[" * (60 << 20),
    "keys": b"{" + b'"":0,' * (12 << 20) + b'"":0}',
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_whatever_the_size_of_a_file_its_readers_take_little_memory(
    bomb: str, tmp_path: Path
) -> None:
    path = tmp_path.resolve() / "0.jsonl"
    path.write_bytes(BOMBS[bomb])
    if bomb == "sparse":
        os.truncate(path, hostile.SPARSE)
    for reader in READERS:
        # A manifest is the lab's own word, and may list a million files.
        if reader is not as_a_manifest:
            with little_memory():
                reading(reader, path)


def test_the_end_of_a_log_of_any_size_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path.resolve() / "store")
    path = store.local("work/x/out/log.txt")
    path.parent.mkdir(parents=True)
    path.touch()
    os.truncate(path, hostile.SPARSE)
    with path.open("ab") as file:
        file.write(b"\nthe end\n")
    with little_memory():
        assert end_of_log(store, "work/x/out/log.txt") == "the end"
    assert end_of_log(store, "work/y/out/log.txt") is None


@pytest.mark.parametrize(
    "told",
    [
        {"examined": SCORE["examined"] | {"forward_flops_per_token": 10**320}},  # type: ignore[operator]
        {"examined": SCORE["examined"] | {"forward_flops_per_token": -1}},  # type: ignore[operator]
        {"parameters": 10**320},
        {"parameters": -5},
        {"bpb": -1.0},
        {"bpb": 1e300},
        {"loss": -1e308},
        {"targets": 2**63},
        {"examined": SCORE["examined"] | {"void": "x" * 10_000}},  # type: ignore[operator]
    ],
)
def test_a_score_beyond_all_bounds_is_refused(told: dict[str, Any]) -> None:
    said = json.dumps({"a": SCORE | told}).encode()
    with pytest.raises(ValueError, match="a\\."):
        bounds.parse(step_runs.SCORES, said)
    assert bounds.parse(step_runs.SCORES, json.dumps({"a": SCORE}).encode())


@pytest.mark.parametrize(
    "text",
    [b'{"a": 1, "a": 1}', b"[" * 100_000, b"9" * 5_000, b"NaN", b"\xff", b"1\x00", b"1 " * 2],
)
def test_no_json_that_readers_may_understand_differently_is_read(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        bounds.plain(text)
