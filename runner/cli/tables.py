"""Tables for the terminal. A cell with plain text is shown literally: [brackets] in a name are no
markup, and control characters have no effect.

In a narrow terminal a table breaks lines between words, then loses its frame. If a name still does
not fit, each row becomes a list of its cells. Nothing breaks a name.
"""

from collections.abc import Collection, Iterable, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from runner.lib.untrusted_files import printable

Cell = str | Text
GAP = 2  # between the columns of a table that has lost its frame


class Fitted(Table):
    """A table that fits into the terminal."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        if not self.columns or self.measure_whole() <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        words = [_longest(column, " ") for column in self.columns]
        if sum(words) + self._around() > options.max_width and self.box:
            self.box, self.pad_edge, self.padding = None, False, (0, GAP, 0, 0)
        if (left := options.max_width - sum(words) - self._around()) < 0:
            yield from self._as_lists()
            return
        wanted = [_longest(column) - _longest(column, " ") for column in self.columns]
        for column, least, more in zip(self.columns, words, wanted, strict=True):
            given = min(more, left * more // max(1, sum(wanted)))
            column.width, column.no_wrap = least + given, False
        yield from super().__rich_console__(console, options)

    def measure_whole(self) -> int:
        """Its width without any line break."""
        return sum(map(_longest, self.columns)) + self._around()

    def _around(self) -> int:
        """The width of what is between and around its cells."""
        columns, each = len(self.columns), sum(self.padding[1::2])
        return each * (columns if self.pad_edge else columns - 1) + (columns + 1) * bool(self.box)

    def _as_lists(self) -> RenderResult:
        """Each row as a list of its cells."""
        heads = [Text(str(column.header)) for column in self.columns]
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            yield Text.assemble(_text(cells[0]), style="bold")
            pairs = Table.grid(padding=(0, GAP, 0, 0))
            for head, cell in zip(heads[1:], cells[1:], strict=True):
                pairs.add_row(head, cell)
            yield Padding(pairs, (0, 0, 0, GAP))


def _text(cell: object) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def _longest(column: Column, separator: str = "\n") -> int:
    """The longest line of a column, or the longest word."""
    cells = [_text(column.header), *map(_text, column.cells)]
    separator = "\n" if column.no_wrap else separator
    return max(part.cell_len for cell in cells for part in cell.split(separator))


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
    made = Fitted(
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
