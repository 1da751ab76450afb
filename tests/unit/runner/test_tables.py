"""Tables of the terminal break no name, however narrow it is."""

import io
import re

import pytest
from rich.console import Console

from runner.cli.tables import table

HEAD = ("metric", "arm", "mean ± SD", "95 % by seeds")
NAME = "task/lexical-choice/choice_prob_norm"
ROWS = [(NAME, "fast", "0.5081 ± 0.0063", "0.492 to 0.524, includes chance (0.500)")]


def drawn(width: int) -> str:
    written = io.StringIO()
    Console(width=width, file=written).print(table(HEAD, ROWS, lines=True))
    return written.getvalue()


@pytest.mark.parametrize("width", [120, 80, 60, 40])
def test_no_name_is_broken_and_no_line_too_long(width: int) -> None:
    said = drawn(width)
    words = {word for cells in (HEAD, *ROWS) for cell in cells for word in cell.split()}
    words -= {"metric"} if width == 40 else set()  # a list has no head of the first cell
    assert words <= {*re.split(r"[\s│┃]+", said)}
    assert max(map(len, said.splitlines())) <= width


def test_a_table_loses_its_frame_before_a_row_becomes_a_list() -> None:
    assert "┃ metric" in drawn(120)
    assert "┃" not in drawn(64)
    assert "\nmetric  " in drawn(64)
    assert drawn(40).startswith(f"{NAME}\n  arm            fast")
