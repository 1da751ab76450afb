"""The number of the issue with the predictions, as people write it."""

from pathlib import Path

import pytest

from runner.lib.problems import BadExperiment
from runner.planning import planner
from runner.spec.declaration import FILE_NAME, STARTERS


def number_of(written: str, folder: Path) -> int | None:
    """The preregistration of the plain starter with this line."""
    text = (STARTERS / "plain" / FILE_NAME).read_text()
    lines = [line for line in text.splitlines() if not line.startswith("preregistration")]
    (folder / FILE_NAME).write_text("\n".join([*lines, written]))
    return planner.plan_folder(folder).preregistration


@pytest.mark.parametrize(
    "written",
    [
        "preregistration: #1",  # jonschlinkert/gray-matter#90
        "preregistration: #1 #2",  # juspay/olai#302
        "preregistration:   # 1",  # haskell/cabal#10408
        "preregistration:",
        "preregistration: null",
    ],
)
def test_a_number_that_yaml_takes_for_a_comment_is_not_left_out(
    written: str, tmp_path: Path
) -> None:
    with pytest.raises(BadExperiment, match="YAML takes `#1` for a comment; write the issue's num"):
        number_of(written, tmp_path)


@pytest.mark.parametrize("written", ["", "# preregistration: 1"])
def test_a_plan_needs_no_preregistration(written: str, tmp_path: Path) -> None:
    assert number_of(written, tmp_path) is None


def test_a_comment_after_the_number_is_one(tmp_path: Path) -> None:
    """ppy/osu#36758."""
    assert number_of("preregistration: 1  # https://github.com/o/r/issues/2", tmp_path) == 1
