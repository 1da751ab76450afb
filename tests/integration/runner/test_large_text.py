"""A text of several shards through its steps, with kills and with a limit for memory;
`tests.bench.large_text` does the same with 10 GB."""

from pathlib import Path

import pytest

from runner.worker.texts import shards
from tests.bench import large_text
from tests.bench.large_text import Processes, generate, through

SIZE, SHARD = 4_000_000, 2_000_000
LIMIT = 160_000_000  # bytes of memory of a process; it has 45,000,000 before it reads a text
LIMIT_TO_LEARN = 250_000_000  # with SciPy
LIMIT_OF_200_MB = 350_000_000


def only(monkeypatch: pytest.MonkeyPatch, *steps: str) -> None:
    """Of the benchmark's steps."""
    monkeypatch.setattr(large_text, "STEPS", {do: large_text.STEPS[do] for do in steps})


def test_a_text_is_filtered_and_deduplicated_in_bounded_memory_with_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "TOGETHER", 1)
    only(monkeypatch, "filter", "dedup")
    generate(tmp_path / "text", SIZE, SHARD)
    plain, killing = Processes(), Processes(seed=1, share=0.7, after=0.3)
    undisturbed = through(tmp_path / "text", tmp_path / "plain", plain, 1)
    assert through(tmp_path / "text", tmp_path / "killed", killing, 2) == undisturbed
    assert killing.killed >= 2
    assert 0 < max(plain.peak, killing.peak) < LIMIT


@pytest.mark.long
def test_the_best_of_a_text_are_chosen_in_bounded_memory_with_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "TOGETHER", 1)
    only(monkeypatch, "label", "classify", "select")
    monkeypatch.setitem(large_text.STEPS["label"], "documents", 300)
    generate(tmp_path / "text", SIZE // 2, SHARD // 2)
    plain, killing = Processes(), Processes(seed=2, share=0.4, after=0.3)
    undisturbed = through(tmp_path / "text", tmp_path / "plain", plain, 2)
    assert through(tmp_path / "text", tmp_path / "killed", killing, 2) == undisturbed
    assert killing.killed >= 1
    assert 0 < max(plain.peak, killing.peak) < LIMIT_TO_LEARN


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_200_megabytes_go_through_all_steps_in_bounded_memory_with_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(large_text.STEPS["select"], "fraction", 0.1)  # of which a BPE takes longest
    generate(tmp_path / "text", 200_000_000)
    killing = Processes(seed=3, share=0.2, after=2)
    through(tmp_path / "text", tmp_path / "made", killing, 2)
    assert killing.killed >= 5
    assert killing.compared >= 5
    assert killing.peak < LIMIT_OF_200_MB
