"""That the measurements of data steps measure what they say, at toy size."""

from pathlib import Path

from runner.worker.texts.dedup import deduplicate
from tests.bench import dedup


def test_recall_is_counted_by_similarity_against_pairs_counted_without_hashes(
    tmp_path: Path,
) -> None:
    rows = dedup.recall(100, tmp_path)
    assert sum(row["pairs"] for row in rows) == 100
    assert all(row["found"] == row["pairs"] for row in rows if row["from"] >= 0.9)
    assert all(row["found"] == 0 for row in rows if row["from"] < 0.8)
    assert not any(row["wrong"] for row in rows)


def test_what_is_planted_for_the_sides_is_what_the_lab_leaves_out(tmp_path: Path) -> None:
    planted = dedup.prepare(200, tmp_path / "text")
    (tmp_path / "out").mkdir()
    deduplicate(dedup.CONFIG, {"text": tmp_path / "text"}, tmp_path / "out")
    assert {str(n) for n in range(200)} - dedup.kept_ids(tmp_path / "out") == planted
