"""The tree of a web page, with how much of each element is text and how much of that is links.

resiliparse parses the page as browsers do and writes it out again in canonical form: every tag
closed, every attribute quoted. A regular expression makes tokens of that form, and of them comes a
tree of plain objects; a walk over the parser's own nodes takes five times as long."""

import re
from html import escape, unescape
from typing import NamedTuple

from resiliparse.parse.html import HTMLTree

BYTES = 8 << 20  # most bytes of a page
TAGS = 400_000  # most start and end tags of a page
DEPTH = 200  # most elements inside each other
MARKUP, NESTED = f"more than {TAGS:,} tags", f"nested deeper than {DEPTH} elements"


class Unreadable(Exception):
    """The page cannot be read; the message says why, in the words that are counted."""


class Node:
    """An element. `chars` are its characters without white space, `linked` those in links,
    `local` those in links to a place of the same page."""

    __slots__ = ("attributes", "chars", "children", "linked", "local", "tag")

    def __init__(self, tag: str, attributes: str) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[Node | str] = []
        self.chars = self.linked = self.local = 0

    def attribute(self, name: str) -> str:
        """The attribute's value; empty if it has none."""
        if name not in self.attributes:
            return ""
        found = re.search(rf'\s{name}="([^"]*)"', self.attributes)
        return unescape(found[1]).strip() if found else ""


class Page(NamedTuple):
    body: Node
    title: str | None


def tags(names: str) -> frozenset[str]:
    """The names in a text, as a set."""
    return frozenset(names.split())


HEADINGS = tags("h1 h2 h3 h4 h5 h6")
VOID = tags(
    "area base br col embed hr img input link meta param source track wbr frame basefont bgsound "
    "keygen"
)
# What readers do not see, or see as a control. Elements that are no HTML follow other rules.
UNSEEN = tags(
    "script style noscript template iframe object embed audio video canvas svg map head link meta "
    "button input select textarea datalist progress meter dialog noframes noembed xmp plaintext rp"
)
_TAG = re.compile(r'<(/?)([a-zA-Z][^\s/>]*)((?:[^">]|"[^"]*")*)>')
_RAW = re.compile(
    r"<!--.*?-->|<(script|style|iframe|noembed|noframes|noscript|xmp)\b([^>]*)>(.*?)</\1>", re.S
)
_HIDDEN = re.compile(
    r'\s(?:hidden=|aria-hidden="true"|style="[^"]*(?:display\s*:\s*none|visibility\s*:\s*hidden))',
    re.I,
)


def parse(page: bytes) -> Page:
    """The tree of a page in UTF-8, without what readers do not see. Raises Unreadable."""
    if page.count(b"<") > TAGS:
        raise Unreadable(MARKUP)
    document = HTMLTree.parse_from_bytes(page, "utf-8")
    if document.body is None:
        raise Unreadable("no body")
    written = document.body.html
    if len(written) > 4 * BYTES or written.count("<") > 2 * TAGS:  # marks that it had left open
        raise Unreadable(MARKUP)
    title = " ".join((document.title or "").split())
    return Page(_tree(written), title or None)


def _tree(written: str) -> Node:
    parts = _TAG.split(_RAW.sub(_mathematics, written))
    node = root = Node("body", "")
    if text := parts[0]:
        root.children.append(unescape(text))
    above: list[Node] = []
    skipped = 0  # elements that are open and unseen
    for at in range(1, len(parts), 4):
        closes, tag, attributes, text = parts[at : at + 4]
        if closes:
            if skipped:
                skipped -= 1
            elif above:
                _close(node, above[-1])
                node = above.pop()
        elif tag in VOID:
            if not skipped and tag not in UNSEEN:
                node.children.append(Node(tag, attributes))
        elif skipped or tag in UNSEEN or (len(attributes) > 6 and _is_hidden(attributes)):
            skipped += 1
            if skipped > DEPTH:
                raise Unreadable(NESTED)
        else:
            above.append(node)
            if len(above) > DEPTH:
                raise Unreadable(NESTED)
            node = Node(tag, attributes)
        if text and not skipped:
            node.children.append(unescape(text) if "&" in text else text)
            node.chars += len(text) - text.count(" ") - text.count("\n")
    return root


def _is_hidden(attributes: str) -> bool:
    may_be = "idden" in attributes or "none" in attributes
    return may_be and _HIDDEN.search(attributes) is not None


def _close(node: Node, parent: Node) -> None:
    if node.tag == "a" and "href=" in node.attributes:
        node.linked = node.chars
        if ' href="#' in node.attributes:
            node.local = node.chars
    elif node.tag in HEADINGS:
        node.linked = node.local = 0  # it is a heading, even if all of it is a link
    parent.children.append(node)
    parent.chars += node.chars
    parent.linked += node.linked
    parent.local += node.local


def _mathematics(found: re.Match[str]) -> str:
    """Nothing, but for TeX that a page's own script was to draw."""
    if found[1] != "script" or "math/tex" not in found[2]:
        return ""
    return f" ${escape(unescape(found[3]), quote=False)}$ "
