"""What a comment becomes on the page: strangers' words must be nothing but text and code."""

import html
import re

from markdown_it import MarkdownIt

_markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# What GitHub makes of plain text: mentions, references, addresses, commits.
_LIVE = re.compile(
    r"(?<!\w)@\w|#\d|\bGH-\d|\w://|\bwww\.\S|\w@[\w-]+\.\w|\b[0-9a-f]{40}\b", re.IGNORECASE
)


def live(body: str) -> list[str]:
    """Everything in a comment that is more than words, layout and code."""
    found = []
    tokens = _markdown.parse(body)
    for token in [*tokens, *(child for block in tokens for child in block.children or [])]:
        if token.type in ("link_open", "image"):
            found.append(str(token.attrs))
        elif token.type in ("html_inline", "html_block"):
            found.append(token.content.strip())
        elif token.type in ("text", "text_special"):
            found += _LIVE.findall(token.content)
    return found


def unescaped(body: str) -> str:
    """A comment's Markdown as its author would have typed it, had it been harmless."""
    return html.unescape(re.sub(r"\\(?=[^\w\s]|_)|\u200b", "", body))
