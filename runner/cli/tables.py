"""Tables for the terminal. A cell with plain text is shown literally: [brackets] in a name are no
markup, and control characters have no effect."""

from collections.abc import Collection, Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from runner.lib.untrusted_files import printable

Cell = str | Text


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    lines: bool = False,
    header: bool = True,
    gap: int = 3,
    indent: int = 0,
) -> Table:
    """A table of these rows: with `lines` in a frame, otherwise with a gap between columns. The
    columns in `right` are right-aligned; those in `whole` have names to copy, on one line."""
    made = Table(
        box=box.HEAVY_HEAD if lines else None,
        pad_edge=lines,
        padding=(0, 1) if lines else (0, gap, 0, indent),
        show_header=header,
    )
    for name in columns:
        justify = "right" if name in right else "left"
        on_one = name in whole
        made.add_column(name, justify=justify, overflow="fold", no_wrap=on_one)  # type: ignore[arg-type]
    for row in rows:
        add(made, *row)
    return made


def add(to: Table, *cells: Cell) -> None:
    """Add a row."""
    to.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in cells))
