"""Tables as the terminal shows them. A cell that is plain text is shown as it is: a name's
[brackets] are no markup, and nothing in it controls the screen."""

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
    lines: bool = False,
    header: bool = True,
    gap: int = 3,
    indent: int = 0,
) -> Table:
    """A table of these rows: in a frame with `lines`, else with a gap between columns. Those in
    `right` are aligned to the right."""
    made = Table(
        box=box.HEAVY_HEAD if lines else None,
        pad_edge=lines,
        padding=(0, 1) if lines else (0, gap, 0, indent),
        show_header=header,
    )
    for name in columns:
        justify = "right" if name in right else "left"
        made.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        add(made, *row)
    return made


def add(to: Table, *cells: Cell) -> None:
    """One more row."""
    to.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in cells))
