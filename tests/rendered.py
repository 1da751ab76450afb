"""What a comment becomes on the page: whatever strangers wrote must be nothing but text and code."""

import html
import re

from markdown_it import MarkdownIt

_markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# What GitHub makes of plain text: mentions, references, addresses.
_LIVE = re.compile(
    r"(?<![\w`])@[A-Za-z0-9]|#\d|\bGH-\d|\w+://\S|\bwww\.\S|\S@\S+\.\S", re.IGNORECASE
)


def live(body: str) -> list[str]:
    """Everything in a comment that is more than words, layout and code."""
    found = []
    tokens = _markdown.parse(body)
    for token in [*tokens, *(child for token in tokens for child in token.children or [])]:
        if token.type in ("link_open", "image"):
            found.append(str(token.attrs))
        elif token.type in ("html_inline", "html_block"):
            found.append(token.content.strip())
        elif token.type in ("text", "text_special"):
            found += _LIVE.findall(token.content)
    return found


def unescaped(body: str) -> str:
    """A comment's Markdown as its author would have typed it, had it been harmless."""
    return html.unescape(re.sub(r"\\(?=[^\w\s])|\u200b", "", body))
