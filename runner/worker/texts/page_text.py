"""The text of a web page, or its Markdown, by a library: trafilatura, made for pages of the web, or
resiliparse's main content, which reads documentation better. The page is prepared so that both see
what a browser would show."""

import re
from typing import Any, NamedTuple

BYTES = 8 << 20  # most bytes of a page
DEEP = 3  # elements
ARRANGES = "p, pre, table, h1, h2, h3, h4, h5, h6, article, section, nav"  # a page, in a cell
_SHADOW = re.compile(r"<template\b[^>]*\bshadowrootmode\b[^>]*>(.*?)</template>", re.S | re.I)
_RUBY = re.compile(  # how words are pronounced, and the marks of it around the words
    r"<(rp|rt|rtc)\b[^>]*>.{0,1000}?(?:</\1>|(?=<r[ptb]\b|</ruby))|</?(?:ruby|rb)\b[^>]*>",
    re.S | re.I,
)
_HIDDEN = "[hidden], [style*='display'], [style*='visibility']"


class Unreadable(Exception):
    """The page cannot be read; the message says why, in the words that are counted."""


class Read(NamedTuple):
    title: str | None
    text: str


def read(page: str, extractor: str, markdown: bool) -> Read:
    """The text of a page, and its title: its only first heading, or else what its head says.
    Raises Unreadable."""
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(_RUBY.sub("", _SHADOW.sub(r"<div>\1</div>", page)))
    if tree.body is None:
        raise Unreadable("no body")
    headings = [" ".join((node.text or "").split()) for node in _all(tree.body, "h1")]
    headings = [heading for heading in headings if heading]
    title = headings[0] if len(headings) == 1 else " ".join((tree.title or "").split())
    text = _main_content(tree) if extractor == "resiliparse" else _by_trafilatura(tree, markdown)
    if not text.strip():
        raise Unreadable("no text")
    return Read(title or None, text.strip("\n"))


def _all(node: Any, selector: str) -> tuple[Any, ...]:
    """These elements, in order. To iterate over resiliparse's own list takes its square."""
    return tuple(node.query_selector_all(selector)[:])


def _by_trafilatura(tree: Any, markdown: bool) -> str:
    import trafilatura

    for line in _all(tree.body, "pre div, pre li, pre p"):
        if line.next and not line.text.endswith("\n"):
            line.append_child(tree.create_text_node("\n"))  # it joins lines that are elements
    for cell in _all(tree.body, "td, th"):  # it drops lists in cells
        if cell.query_selector("ul, ol") and not cell.query_selector(ARRANGES):
            cell.replace_children(tree.create_text_node(" ".join(cell.inner_text.split())))
    return (
        trafilatura.extract(
            tree.document.html,
            include_comments=False,
            include_formatting=markdown,
            output_format="markdown" if markdown else "txt",
        )
        or ""
    )


def _main_content(tree: Any) -> str:
    body = tree.body
    for table in _all(body, "table"):
        if table.query_selector("[rowspan]") and not table.query_selector("table"):
            _fill_rows(tree, table)
    text = _plain(tree)
    if hidden := _all(body, _HIDDEN):
        for node in hidden:
            node.delattr("hidden")
            node.delattr("style")
        shown = _plain(tree)  # if it is most of a page, it is hidden only until a script has run
        text = shown if len(text) < len(shown) / 2 else text
    return text


def _plain(tree: Any) -> str:
    """What resiliparse takes for content, of the page as it is and with all of it deeper: it takes
    lists that are less than DEEP inside the body for navigation. The longer one."""
    from resiliparse.extract.html2text import extract_plain_text

    body, texts = tree.body, [extract_plain_text(tree, main_content=True, comments=False)]
    for _ in range(DEEP):
        outer = tree.create_element("div")
        while body.first_child:
            outer.append_child(body.first_child)
        body.append_child(outer)
    texts.append(extract_plain_text(tree, main_content=True, comments=False))
    return max(texts, key=len)


def _fill_rows(tree: Any, table: Any) -> None:
    """Give each row of a table the cells that reach into it from rows above."""
    below: dict[int, int] = {}  # {column: rows that a cell above still reaches into}
    for row in _all(table, "tr"):
        column = 0
        for cell in [*_all(row, "td, th"), None]:
            while below.get(column):
                below[column] -= 1
                column += 1
                row.insert_before(tree.create_element("td"), cell)
            for _ in range(_span(cell, "colspan") if cell else 0):
                below[column] = _span(cell, "rowspan") - 1
                column += 1


def _span(cell: Any, name: str) -> int:
    said = cell.getattr(name) or ""
    return min(int(said), 1000) if re.fullmatch("[1-9][0-9]{0,5}", said) else 1
