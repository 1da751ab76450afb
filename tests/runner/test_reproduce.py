"""What is said of a run that was run again."""

import json
from pathlib import Path

import pytest

from runner import reproduce
from runner.record import Evaluated
from tests.runner.test_cli import LocalStub, ask
from tests.runner.test_cli import folder as folder  # a fixture
from tests.runner.test_cli import local as local


def figure(bpb: float, params: str = "a") -> Evaluated:
    return Evaluated(bpb=bpb, loss=1.0, targets=64, params_sha256=params * 64)


@pytest.mark.parametrize(
    ("before", "now", "how", "words"),
    [
        (figure(2.0), figure(2.0), "bit for bit", "2.0000 bits per byte, the same parameters"),
        (figure(2.0), figure(2.0, "b"), "within the tolerance", "at most 1% apart"),
        (figure(2.0), figure(2.019, "b"), "within the tolerance", "2.0000 then, 2.0190"),
        (figure(2.0), figure(2.021, "b"), "differs", "more than 1% apart"),
        (figure(2.0), None, "not comparable", "it has no figure now"),
        (None, figure(2.0), "not comparable", "it had no figure then"),
    ],
)  # fmt: skip
def test_a_run_came_out_the_same_or_not(
    before: Evaluated | None, now: Evaluated | None, how: str, words: str
) -> None:
    [found] = reproduce.compare({"fast.s0": before}, {"fast.s0": now}).values()
    assert found.how == how
    assert words in found.words


def test_of_two_receipts_the_cores_count_by_their_number() -> None:
    before = {"jax": "0.10.2", "affinity": "0,1"}
    assert reproduce.differing(before, {"jax": "0.10.2", "affinity": "2,3"}) == []
    assert reproduce.differing(before, {"affinity": "2"}) == [
        "affinity: 2 cores then, 1 cores now",
        "jax: 0.10.2 then, none now",
    ]


def test_an_execution_is_reproduced_from_its_id(
    folder: Path, local: LocalStub, tmp_path: Path
) -> None:
    at = ("--store", tmp_path / "store")
    first = json.loads(ask("run", folder, *at, "--json").stdout)["execution"]
    again = ask("reproduce", first, *at)
    assert again.exit_code == 0, again.output
    # The stand-in for training has equal figures and, each time, other parameters.
    assert again.stdout.count("within the tolerance") == 4
    local.ray.bpb = lambda _, seed: 5.0 + seed
    other = ask("reproduce", first, *at, "--json")
    assert other.exit_code == 1
    assert {one["how"] for one in json.loads(other.stdout)["runs"].values()} == {"differs"}


def test_what_cannot_be_reproduced_is_said(local: LocalStub, tmp_path: Path) -> None:
    nowhere = ask("reproduce", "x1", "--store", tmp_path / "store")
    assert (nowhere.exit_code, "there is no store at" in nowhere.stderr) == (2, True)
    (tmp_path / "store").mkdir()
    unknown = ask("reproduce", "x1", "--store", tmp_path / "store")
    assert (unknown.exit_code, "knows no execution x1" in unknown.stderr) == (2, True)
    assert local.started == 0
