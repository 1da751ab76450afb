"""Renders Markdown as GitHub does in comments, safely: what a stranger writes never runs.

markdown-it renders, task lists, mentions and bare links are added, and nh3 sanitises the result
with an allow-list of tags and attributes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape, unescape
from urllib.parse import urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

TAGS = nh3.ALLOWED_TAGS | {"input", "tfoot"}
TAGS -= {"area", "article", "aside", "footer", "header", "hgroup", "map", "nav"}  # for the page
DROPPED_WHOLE = {
    "script", "style", "iframe", "object", "embed", "svg", "math", "template", "noscript",
    "textarea", "title", "select", "xmp",
}  # fmt: skip
ATTRIBUTES = {
    "*": {"title", "align", "dir", "class"},
    "a": {"href"},
    "img": {"src", "alt", "width", "height"},
    "input": {"disabled", "checked", "aria-label"},
    "details": {"open"},
    "ol": {"start"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan"},
}
OUR_CLASSES = re.compile(r"task|tasks|mention|reference|sha|language-[\w+-]+")
REL = "nofollow noopener noreferrer"
# as the sanitiser writes them, with every quotation mark in a value escaped
PICTURE_OR_BOX = re.compile(r'<(img|input)((?: [a-z-]+="[^"]*")+)>')
ATTRIBUTE = re.compile(r' ([a-z-]+)="([^"]*)"')

WORDS = re.compile(
    r"(?P<url>https?://[^\s<>\"'`]*[^\s<>\"'`.,:;!?)\]])"
    r"|(?<![\w/@`])@(?P<mention>[A-Za-z0-9][A-Za-z0-9-]*(?:\[bot\])?)"
    r"|(?<![\w/#&])\#(?P<issue>\d+)\b"
    r"|(?<![\w/])(?P<sha>[0-9a-f]{40})\b"
)


@lru_cache(maxsize=2048)
def render(text: str, page: str, branch: str = "") -> str:
    """Safe HTML of a comment, or of a file at a `branch`; `page` is the repository's URL, to which
    `#7` is relative, and the links and pictures of a file."""
    parser = MarkdownIt("commonmark", {"html": True, "breaks": not branch})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.push("github_words", lambda state: _add_words(state, page))
    parser.core.ruler.push("tasks", _add_tasks)
    if branch:
        parser.core.ruler.push("files", lambda state: _find_files(state, page, branch))
    parser.core.ruler.push("columns", _align_columns)
    return sanitise(parser.render(text))


# GitHub's additions to Markdown


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
        return f'<a href="{escape(page)}/issues/{found["issue"]}" class="reference">{word}</a>'
    return f'<a href="{escape(page)}/commit/{word}" class="sha"><code>{word[:7]}</code></a>'


def _token(kind: str, content: str) -> Token:
    return Token(kind, "", 0, content=content)


def _find_files(state: StateCore, page: str, branch: str) -> None:
    """Let relative links and pictures lead to files of the repository."""
    for token in (child for block in state.tokens for child in block.children or ()):
        for tag, key, kind in (("link_open", "href", "blob"), ("image", "src", "raw")):
            address = str(token.attrs.get(key, ""))
            if token.type == tag and not re.match(r"[a-z]+:|[/#]", address):
                token.attrSet(key, f"{page}/{kind}/{branch}/{address}")


def _add_tasks(state: StateCore) -> None:
    """Turn `- [x] done` into a ticked box."""
    tokens = state.tokens
    for at in range(2, len(tokens)):
        item, first = tokens[at - 2], tokens[at].children
        if tokens[at].type != "inline" or item.type != "list_item_open" or not first:
            continue
        found = re.match(r"\[([ xX])\] ", first[0].content)
        if found and first[0].type == "text":
            first[0].content = first[0].content[4:]
            ticked = ' checked aria-label="done"' if found[1] in "xX" else ' aria-label="to do"'
            first.insert(0, _token("html_inline", f'<input type="checkbox" disabled{ticked}> '))
            item.attrSet("class", "task")


def _align_columns(state: StateCore) -> None:
    """A column's alignment as an attribute; the allow-list has no styles."""
    for token in state.tokens:
        style = str(token.attrs.pop("style", ""))
        if style.startswith("text-align:"):
            token.attrSet("align", style.removeprefix("text-align:"))


# Sanitising


def _attribute(_tag: str, name: str, value: str) -> str | None:
    """Allow only the classes that this module sets."""
    if name != "class":
        return value
    return " ".join(each for each in value.split() if OUR_CLASSES.fullmatch(each)) or None


CLEANER = nh3.Cleaner(
    tags=TAGS,
    clean_content_tags=DROPPED_WHOLE,
    attributes=ATTRIBUTES,
    attribute_filter=_attribute,
    tag_attribute_values={"input": {"type": {"checkbox"}}},
    set_tag_attribute_values={"input": {"disabled": ""}, "img": {"loading": "lazy"}},
    url_schemes={"http", "https", "mailto"},
    link_rel=REL,
)


def sanitise(html: str) -> str:
    """Only allowed tags and attributes, with every tag closed where it was opened."""
    return PICTURE_OR_BOX.sub(_shown, CLEANER.clean(html))


def _shown(found: re.Match[str]) -> str:
    """Allow only checkboxes as inputs, and no external pictures.

    GitHub fetches pictures through its own proxy; here only this machine's are shown, and others
    become links."""
    given = {name: unescape(value) for name, value in ATTRIBUTE.findall(found[2])}
    if found[1] == "input":
        return found[0] if "type" in given else ""
    name, address = escape(given.get("alt") or "picture"), given.get("src")
    try:  # browsers treat a backslash as a slash
        host = urlsplit((address or "").replace("\\", "/")).hostname
    except ValueError:
        address = None
    if address is None:
        return name
    if host in (None, "127.0.0.1", "localhost"):
        return found[0]
    return f'<a href="{escape(address)}" rel="{REL}">{name} ↗</a>'
