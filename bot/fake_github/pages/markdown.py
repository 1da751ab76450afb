"""Markdown as GitHub shows it in comments, made safe: what a stranger writes never runs.

markdown-it renders, task lists, mentions and bare links are added, and the result is written anew
from an allow-list: tags and attributes that are not on it are gone, whatever they were.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from html.parser import HTMLParser
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

TAGS = re.compile(
    "a|b|blockquote|br|code|dd|del|details|div|dl|dt|em|h[1-6]|hr|i|img|input|ins|kbd|li|ol|p|pre|q|"
    "s|samp|span|strike|strong|sub|summary|sup|table|tbody|td|tfoot|th|thead|tr|tt|ul|var"
)
VOID = frozenset({"br", "hr", "img", "input"})
DROPPED_WHOLE = re.compile(
    "script|style|iframe|object|embed|svg|math|template|noscript|textarea|title|select|xmp"
)
ATTRIBUTES = {
    "": {"title", "align", "dir"},
    "a": {"href"},
    "img": {"src", "alt", "width", "height"},
    "details": {"open"},
    "ol": {"start"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan"},
}
OUR_CLASSES = re.compile(r"task|tasks|mention|reference|sha|language-[\w+-]+")
LOOPBACK = ("127.0.0.1", "localhost")

WORDS = re.compile(
    r"(?P<url>https?://[^\s<>\"'`]*[^\s<>\"'`.,:;!?)\]])"
    r"|(?<![\w/@`])@(?P<mention>[A-Za-z0-9][A-Za-z0-9-]*(?:\[bot\])?)"
    r"|(?<![\w/#&])\#(?P<issue>\d+)\b"
    r"|(?<![\w/])(?P<sha>[0-9a-f]{40})\b"
)


@lru_cache(maxsize=2048)
def render(text: str, page: str) -> str:
    """Safe HTML of a comment; `page` is the repository's address, where `#7` leads."""
    parser = MarkdownIt("commonmark", {"html": True, "breaks": True})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.push("github_words", lambda state: _add_words(state, page))
    parser.core.ruler.push("tasks", _add_tasks)
    parser.core.ruler.push("columns", _align_columns)
    return sanitise(parser.render(text))


# What GitHub adds to Markdown


def _add_words(state: StateCore, page: str) -> None:
    """Turn bare links, @people, #numbers and commits into links, outside of links and code."""
    for block in state.tokens:
        if block.type != "inline" or not block.children:
            continue
        children: list[Token] = []
        inside = 0
        for token in block.children:
            inside += token.nesting if token.type.startswith("link_") else 0
            if token.type == "text" and not inside:
                children += _with_links(token.content, page)
            else:
                children.append(token)
        block.children = children


def _with_links(text: str, page: str) -> list[Token]:
    made, at = [], 0
    for found in WORDS.finditer(text):
        made.append(_token("text", text[at : found.start()]))
        made.append(_token("html_inline", _link(found, page)))
        at = found.end()
    return [*made, _token("text", text[at:])]


def _link(found: re.Match[str], page: str) -> str:
    word = escape(found.group())
    if found["url"]:
        return f'<a href="{word}">{word}</a>'
    if found["mention"]:
        return f'<span class="mention">{word}</span>'
    if found["issue"]:
        return f'<a class="reference" href="{escape(page)}/issues/{found["issue"]}">{word}</a>'
    return f'<a class="sha" href="{escape(page)}/commit/{word}"><code>{word[:7]}</code></a>'


def _token(kind: str, content: str) -> Token:
    return Token(kind, "", 0, content=content)


def _add_tasks(state: StateCore) -> None:
    """`- [x] done` becomes a ticked box."""
    tokens = state.tokens
    for at in range(2, len(tokens)):
        item, first = tokens[at - 2], tokens[at].children
        if tokens[at].type != "inline" or item.type != "list_item_open" or not first:
            continue
        found = re.match(r"\[([ xX])\] ", first[0].content)
        if found and first[0].type == "text":
            first[0].content = first[0].content[4:]
            ticked = " checked" if found[1] in "xX" else ""
            first.insert(0, _token("html_inline", f'<input type="checkbox" disabled{ticked}> '))
            item.attrSet("class", "task")


def _align_columns(state: StateCore) -> None:
    """A column's alignment as an attribute; the allow-list has no styles."""
    for token in state.tokens:
        style = str(token.attrs.pop("style", ""))
        if style.startswith("text-align:"):
            token.attrSet("align", style.removeprefix("text-align:"))


# Making it safe


def sanitise(html: str) -> str:
    """Only allowed tags and attributes, every tag closed where it was opened."""
    writer = _Writer()
    writer.feed(html)
    writer.close()
    return writer.text()


class _Writer(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._out: list[str] = []
        self._open: list[str] = []
        self._dropping: list[str] = []

    def text(self) -> str:
        return "".join(self._out) + "".join(f"</{tag}>" for tag in reversed(self._open))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if DROPPED_WHOLE.fullmatch(tag):
            self._dropping.append(tag)
        if self._dropping or not TAGS.fullmatch(tag) or len(self._open) > 100:
            return
        given = {name: value or "" for name, value in attrs}
        if tag == "input" and given.get("type") != "checkbox":
            return
        if tag == "img" and not _may_load(given.get("src", "")):
            self._out.append(_outside_picture(given))
            return
        self._out.append(f"<{tag}{_safe_attributes(tag, given)}>")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if DROPPED_WHOLE.fullmatch(tag):
            return
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._dropping:
            if tag == self._dropping[-1]:
                self._dropping.pop()
        elif tag in self._open:
            while (last := self._open.pop()) != tag:
                self._out.append(f"</{last}>")
            self._out.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._dropping:
            self._out.append(escape(data, quote=False))


def _safe_attributes(tag: str, given: dict[str, str]) -> str:
    kept = []
    for name, value in given.items():
        if name not in ATTRIBUTES[""] | ATTRIBUTES.get(tag, set()):
            continue
        if name not in ("href", "src") or _safe_address(value):
            kept.append((name, value))
    classes = [each for each in given.get("class", "").split() if OUR_CLASSES.fullmatch(each)]
    if classes:
        kept.append(("class", " ".join(classes)))
    if tag == "a":
        kept.append(("rel", "nofollow noopener noreferrer"))
    if tag == "input":
        kept += [("type", "checkbox"), ("disabled", "")]
        kept += [("checked", "")] if "checked" in given else []
    if tag == "img":
        kept.append(("loading", "lazy"))
    return "".join(f' {name}="{escape(value)}"' for name, value in kept)


def _split(address: str) -> tuple[str, str] | None:
    """The scheme and host of an address; None if it is none."""
    try:
        parts = urlsplit(address)
        return parts.scheme.lower(), parts.hostname or ""
    except ValueError:
        return None


def _safe_address(address: str) -> bool:
    """An http, https or mailto address, or one inside this site; control characters never."""
    parts = _split(address.strip())
    if parts is None or not address.strip().isprintable():
        return False
    inside = not parts[0] and ":" not in address.split("/")[0]
    return parts[0] in ("http", "https", "mailto") or inside


def _may_load(address: str) -> bool:
    """GitHub fetches pictures through its own proxy; here only this machine's are shown."""
    parts = _split(address)
    return parts is not None and _safe_address(address) and parts[1] in ("", *LOOPBACK)


def _outside_picture(given: dict[str, str]) -> str:
    name, address = escape(given.get("alt") or "picture"), given.get("src", "")
    if not _safe_address(address):
        return name
    return f'<a href="{escape(address)}" rel="nofollow noopener noreferrer">{name} ↗</a>'
