"""The text of a web page, or its Markdown. Text has a line for each block and no marks; Markdown
has headings, lists, tables, code and emphasis. Neither has the targets of links."""

import re
from typing import NamedTuple

from runner.worker.texts.page_content import content, words
from runner.worker.texts.page_tree import HEADINGS, Node, Unreadable, parse, tags

BLOCKS = tags(
    "address article aside blockquote body caption center dd details dir div dl dt fieldset "
    "figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr legend li main menu "
    "nav ol p pre search section summary table tbody td tfoot th thead tr ul"
)
MARKS = {"code": "`", "kbd": "`", "samp": "`", "tt": "`"} | {"b": "**", "strong": "**"}
MARKS |= {"i": "*", "em": "*", "cite": "*"}
BREAK = "\x1e"  # a line break inside a block
_TEX = re.compile(r"tex", re.I)


class Block(NamedTuple):
    """`tight` blocks follow each other without an empty line; a `firm` one is no boilerplate."""

    text: str
    tight: bool = False
    firm: bool = False


class Read(NamedTuple):
    title: str | None
    blocks: list[Block]


def read(page: bytes, markdown: bool) -> Read:
    """The blocks of a page, and its title: its only first heading, or else what its head says.
    Raises Unreadable."""
    tree = parse(page)
    writer = _Writer(markdown)
    writer.element(content(tree.body))
    writer.flush()
    if not writer.blocks:
        raise Unreadable("no text")
    (title,) = writer.titles if len(writer.titles) == 1 else (tree.title,)
    return Read(title, writer.blocks)


def joined(blocks: list[Block]) -> str:
    """The text that these blocks are."""
    parts: list[str] = []
    tight = True
    for block in blocks:
        if parts:
            parts.append("\n" if tight and block.tight else "\n\n")
        parts.append(block.text)
        tight = block.tight
    return "".join(parts)


class _Writer:
    def __init__(self, markdown: bool) -> None:
        self.markdown = markdown
        self.blocks: list[Block] = []
        self.titles: list[str] = []
        self.line: list[str] = []

    def flush(self, before: str = "", tight: bool = False, firm: bool = False) -> None:
        """End the block that is being written."""
        if not self.line:
            return
        text = "".join(self.line)
        self.line.clear()
        if BREAK in text:
            lines = (" ".join(line.split()) for line in text.split(BREAK))
            text = "\n".join(line for line in lines if line)
        else:
            text = " ".join(text.split())
        if text:
            self.blocks.append(Block(before + text, tight, firm))

    def element(self, node: Node) -> None:
        """Write what is in an element."""
        line = self.line
        for child in node.children:
            if type(child) is str:
                line.append(child)
                continue
            assert isinstance(child, Node)
            tag = child.tag
            if tag in BLOCKS:
                self.flush(tight=node.tag in ("li", "dt"))
                self.block(tag, child)
            elif tag == "br":
                line.append(BREAK)
            elif tag == "img":
                line.append(f" {child.attribute('alt')} ")
            elif tag == "math":
                line.append(_mathematics(child))
            elif self.markdown and tag in MARKS and child.chars:
                self.marked(MARKS[tag], child)
            else:
                self.element(child)

    def marked(self, mark: str, node: Node) -> None:
        """Write an inline element with its marks, which stick to its words."""
        start = len(self.line)
        self.element(node)
        inner = "".join(self.line[start:])
        if not inner.strip() or mark in "".join(self.line[max(start - 1, 0) : start]):
            return
        left = inner[: len(inner) - len(inner.lstrip())]
        right = inner[len(inner.rstrip()) :]
        self.line[start:] = [left, mark, inner.strip(), mark, right]

    def block(self, tag: str, node: Node) -> None:
        """Write a block element."""
        if tag == "pre":
            self.code(node)
        elif tag in HEADINGS:
            self.element(node)
            before = "#" * int(tag[1]) + " " if self.markdown else ""
            self.flush(before, firm=True)
            if tag == "h1" and (title := " ".join(words(node).split())):
                self.titles.append(title)
        elif tag in ("ul", "ol", "menu", "dir", "dl"):
            self.items(tag, node)
        elif tag == "table":
            self.table(node)
        elif tag == "blockquote" and self.markdown:
            self.indented("> ", "> ", node)
        elif tag == "hr":
            return
        else:
            self.element(node)
            self.flush(tight=tag in ("li", "dt", "tr", "summary"))

    def code(self, node: Node) -> None:
        text = "\n".join(line.rstrip() for line in words(node).split("\n")).strip("\n")
        if not text.strip():
            return
        if self.markdown:
            fence = "```" if "```" not in text else "~~~~"
            text = f"{fence}\n{text}\n{fence}"
        self.blocks.append(Block(text, firm=True))

    def items(self, tag: str, node: Node) -> None:
        start = node.attribute("start")
        number = int(start) if re.fullmatch(r"[0-9]{1,6}", start) else 1
        for child in node.children:
            if isinstance(child, str):
                self.line.append(child)
                continue
            self.flush()
            if not self.markdown or child.tag not in ("li", "dt", "dd"):
                self.block(child.tag, child)
            elif child.tag == "dd":
                self.indented("  ", "  ", child)
            else:
                before = f"{number}. " if tag == "ol" else "- "
                self.indented(before, " " * len(before), child)
                number += 1
        self.flush()

    def indented(self, first: str, others: str, node: Node) -> None:
        """Write an element with `first` before its first line and `others` before the others."""
        text = joined(self.inside(node))
        if text:
            lines = text.split("\n")
            lines = [f"{others}{line}".rstrip() if line else others.rstrip() for line in lines]
            lines[0] = first + lines[0][len(others) :]
            self.blocks.append(Block("\n".join(lines), tight=first != "> "))

    def inside(self, node: Node) -> list[Block]:
        """The blocks of an element by itself."""
        inner = _Writer(self.markdown)
        inner.element(node)
        inner.flush(tight=True)
        self.titles += inner.titles
        return inner.blocks

    def table(self, node: Node) -> None:
        """A table of data gives a line for each row; a table that only arranges a page, the blocks
        of its cells."""
        rows = list(_rows(node))
        for caption in (one for one in node.children if isinstance(one, Node)):
            if caption.tag == "caption":
                self.block("p", caption)
        cells = [[self.inside(cell) for cell in _without_numbers(row)] for row in rows]
        if _arranges(node, cells):
            self.blocks += [block for row in cells for cell in row for block in cell]
            return
        lines = [[" ".join(joined(cell).split()) for cell in row] for row in cells]
        lines = [line for line in lines if any(line)]
        if self.markdown and lines:
            self.blocks.append(Block(_as_markdown(lines)))
        else:
            self.blocks += [Block("\t".join(line).strip(), tight=True) for line in lines]


def _rows(table: Node) -> list[list[Node]]:
    rows = []
    for child in table.children:
        if isinstance(child, Node):
            if child.tag == "tr":
                rows.append([cell for cell in child.children if isinstance(cell, Node)])
            elif child.tag in ("thead", "tbody", "tfoot"):
                rows += _rows(child)
    return rows


def _as_markdown(lines: list[list[str]]) -> str:
    width = max(map(len, lines))
    full = [line + [""] * (width - len(line)) for line in lines]
    full.insert(1, ["---"] * width)
    safe = [[cell.replace("|", "\\|") for cell in line] for line in full]
    return "\n".join(f"| {' | '.join(line)} |" for line in safe)


def _without_numbers(row: list[Node]) -> list[Node]:
    """A row without its first cell if this numbers the lines of the code in the second one."""
    if len(row) == 2 and any(n.tag == "pre" for n in row[1].children if isinstance(n, Node)):
        numbers = words(row[0]).split()
        if numbers and numbers[0].isdecimal() and len(numbers[0]) < 7:
            first = int(numbers[0])
            if numbers == [str(first + n) for n in range(len(numbers))]:
                return row[1:]
    return row


def _arranges(table: Node, cells: list[list[list[Block]]]) -> bool:
    """Whether a table only arranges a page: it says so, has one column, or headings or code in its
    cells."""
    if table.attribute("role") in ("presentation", "none") or max(map(len, cells), default=0) < 2:
        return True
    return any(block.firm for row in cells for cell in row for block in cell)


def _mathematics(node: Node) -> str:
    """TeX where the element has it, otherwise its letters."""
    below = [node]
    while below:
        inner = below.pop()
        if inner.tag == "annotation" and _TEX.search(inner.attribute("encoding")):
            return f" ${words(inner).strip()}$ "
        below += [child for child in inner.children if isinstance(child, Node)]
    said = node.attribute("alttext")
    return f" ${said}$ " if said else words(node)
