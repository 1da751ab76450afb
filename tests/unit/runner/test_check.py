"""`regatta check`: what the lab will say, before there is a pull request."""

import json
import shutil
from pathlib import Path

import pytest

from runner.history import own_modules
from tests.unit.runner.test_cli import ask
from tests.unit.runner.test_new import new

KEPT = Path(__file__).parents[3] / "experiments"
TABLE = b"WORDS = {" + b"'a': 1, " * 40 + b"}\n"


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The starter beside the two best entries of the lab's own."""
    monkeypatch.chdir(tmp_path)
    new("mine", "tiny-budget", "--from", "speedrun")
    for name in ("speedrun-two-layers", "speedrun-short-windows"):
        shutil.copytree(KEPT / name, tmp_path / "experiments" / name)
    return tmp_path / "experiments" / "mine" / "experiment.yaml"


def test_an_entry_is_held_against_the_record(entry: Path) -> None:
    answer = ask("check", entry.parent)
    assert answer.exit_code == 0, answer.output
    said = " ".join(answer.output.split())
    assert "✓ seeds 5; the track takes 5" in said
    assert "Half the window makes twice the steps has 2.2271 ± 0.0060; with its spread" in said
    assert "a mean below 2.2178 is a record (p below 0.02)" in said
    assert "`main` changes" in said
    assert "model.hidden_dim 64 → 48" in said


def test_what_keeps_an_entry_from_a_rank_is_said_with_its_check(entry: Path) -> None:
    text = entry.read_text().replace("[0, 1, 2, 3, 4]", "[0]")
    entry.write_text(text.replace("num_train_steps: 4", "num_train_steps: 9"))
    answer = ask("check", entry.parent, "--json")
    assert answer.exit_code == 1
    told = json.loads(answer.stdout)
    wrong = {line["what"]: line["words"] for line in told["said"] if line["good"] is False}
    assert wrong.keys() == {"seeds", "budget"}
    assert "takes exactly 5" in wrong["seeds"]
    assert "the budget is 5e+11" in wrong["budget"]


def test_tables_are_long_literals_and_no_docstrings() -> None:
    assert own_modules.tables(b'"""' + b"words " * 100 + b'"""\nx = 1\n') == 0
    assert own_modules.tables(TABLE) == len(TABLE) - len(b"WORDS = \n")
    assert own_modules.tables(b"def f(:\n" + TABLE) == len(TABLE) + 8, "no Python"


def test_lines_that_changed_are_counted_without_blank_ones() -> None:
    before = {"model.py": b"a = 1\nb = 2\n"}
    assert own_modules.changed({}, before) == 2
    assert own_modules.changed(before, {"model.py": b"a = 1\n\nb = 3\n"}) == 2
    assert own_modules.changed(before, before) == 0
