"""A stranger's results file becomes a record, whatever its bytes are."""

import json
from typing import Any

import pytest

from runner.history import results_entries
from tests.unit.analysis.test_speedrun import CLEAN

ODD: dict[str, Any] = {
    "not a number": CLEAN | {"eval/paloma/c4_en/bpb": float("nan")},
    "no number inside": CLEAN | {"train_config": {"x": float("inf")}},
    "endless device": CLEAN | {"device_flops": float("inf")},
    "more tokens than can be": CLEAN | {"total_tokens": 10**400},
    "a batch that overflows": CLEAN
    | {"train_config": {"train_batch_size": 10**300, "num_train_steps": 10**300}},
    "a shape that overflows": CLEAN
    | {"model_config": CLEAN["model_config"] | {"num_layers": 10**320}},
    "half a character": CLEAN | {"run_completion_timestamp": "\ud800"},
    "half a character as a key": CLEAN | {"\ud800": 1},
    "a name of half a character": CLEAN | {"author": CLEAN["author"] | {"name": "\ud800"}},
    "deep": CLEAN | {"resources": {"x": json.loads("[" * 500 + "]" * 500)}},
    "less than no tokens": CLEAN | {"total_tokens": -5},
}


@pytest.mark.parametrize("what", ODD)
def test_no_file_stops_the_lab_and_an_odd_one_does_not_stand(what: str) -> None:
    content = json.dumps({"runs": [{"run_info": ODD[what]}]}).encode()
    file = results_entries.examined("speedrun_results.json", content, {})
    again = results_entries.EnteredFile.model_validate_json(file.canonical())
    assert again == file
    if what not in ("deep", "a name of half a character"):
        assert file.problem or file.impossible, what


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"null", b"[" * 100_000, b'{"runs": 3}'])
def test_bytes_that_are_no_file_have_a_reason(content: bytes) -> None:
    file = results_entries.examined("speedrun_results.json", content, {})
    assert file.problem
    assert file.runs == []


def test_a_wandb_run_in_two_files_of_one_head_is_entered_twice() -> None:
    content = json.dumps({"runs": [{"run_info": CLEAN}]}).encode()
    files = [results_entries.examined(path, content, {}) for path in ("a.json", "b.json")]
    assert all(file.found == () for file in files)
    words = [one.words for file in results_entries.once(files) for one in file.found]
    assert words == ["it has the same W&B run as b.json", "it has the same W&B run as a.json"]


def test_a_wandb_run_of_the_public_board_is_on_the_board() -> None:
    known = results_entries.standing([])
    assert len(known) == 92, "of 96 public rows four are there two times"
    link = f"https://wandb.ai/{next(iter(known))}"
    project, _, run = link.rpartition("/")
    content = json.dumps(
        {"runs": [{"run_info": CLEAN | {"wandb_run_link": f"{project}/runs/{run}"}}]}
    ).encode()
    (found,) = results_entries.examined("speedrun_results.json", content, known).found
    assert found.rule == "twice"
    assert "already entered" in found.words
