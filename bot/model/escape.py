"""Escapes strangers' text for comments: shown literally, without mentions, links, markup or
markers. Pure."""

import re
import unicodedata
from typing import Any

_UNSHOWN = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff]")
# Characters without width, or that change the text's direction: soft hyphen, joiners, fillers,
# direction marks, variation selectors, tags, ….
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_TURNING = re.compile(  # these, and the blocks of scripts that are written from right to left
    "[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefe"
    "\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_COMMIT = re.compile(r"(?<![0-9A-Za-z_])[0-9a-f]{7,}(?![0-9A-Za-z_])", re.IGNORECASE)


def text(value: object, limit: int = 300) -> str:
    """A stranger's text on one line of Markdown, shown literally: no mention, link or markup."""
    return _begun(_literal(_cut(one_line(value), limit)))


def prose(value: str, limit: int = 600) -> str:
    """A sentence of the lab with strangers' text in it: `code spans` stay, the rest is literal."""
    # Only what Markdown also reads as a span: one backtick on either side, not several.
    parts = re.split(r"(?<!`)`([^`]+)`(?!`)", _cut(one_line(value), limit))
    return _begun(
        "".join(f"`{_unmarked(part)}`" if n % 2 else _literal(part) for n, part in enumerate(parts))
    )


def code(value: object, limit: int = 120) -> str:
    """A stranger's text for the inside of a code span."""
    line = _unmarked(one_line(value).replace("`", "ʼ").replace("|", "¦"))
    return _cut(line, limit) or " "  # an empty span would be none


def fenced(value: object, limit: int = 240) -> str:
    """A stranger's line for the inside of a fenced block: it cannot end the fence."""
    line = _visible(" ".join(str(value).splitlines())).replace("`", "ʼ").rstrip()
    return _unmarked(_cut(line, limit))


def _cut(line: str, limit: int) -> str:
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _unmarked(line: str) -> str:
    """Breaks the beginning of a marker, which is found by its characters alone."""
    return line.replace("<!--", "<!\u200b--")


def _literal(line: str) -> str:
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"([\\`*_{}\[\]#+!|~$])", r"\\\1", line)
    # A mention, a reference or a link needs a sign and its neighbours; this separates them.
    line = re.sub(r"(@|\\#|www|\bGH(?=-)|(?=://))", "\\1\u200b", line, flags=re.IGNORECASE)
    # Seven digits are enough for a commit link, so no piece may have as many.
    return _COMMIT.sub(lambda found: re.sub("(.{6})(?=.)", "\\1\u200b", found[0]), line)


def _begun(line: str) -> str:
    """Escapes a start that would make a list, a rule or a heading."""
    return re.sub(r"^([0-9]{0,9})([-=.)])(?=[-=\s]|$)", r"\1\\\2", line)


def one_line(value: object) -> str:
    """Removes line breaks and unprintable characters; invisible ones are replaced by their
    names."""
    return " ".join(_visible(str(value)).split())


def isolated(text: Any) -> Any:
    """For pages: a text with letters that are written from right to left, or with characters that
    change the direction, keeps its direction to itself (Unicode's UAX 9: FSI, PDI). The latter are
    replaced by their names. Markup, and what is no text, stays as it is."""
    if not isinstance(text, str) or hasattr(text, "__html__") or not _TURNING.search(text):
        return text
    return f"\u2068{_DIRECTIONS.sub(_name, text)}\u2069"


def _visible(words: str) -> str:
    """Removes unprintable characters. Invisible ones, and those that change the direction, are
    replaced by their names, except inside an emoji."""
    return _HIDDEN.sub(_name, _UNSHOWN.sub("", words))


def _name(found: re.Match[str]) -> str:
    letter, at = found[0], found.start()
    if letter in "\u200d\ufe0e\ufe0f" and at and _is_emoji(found.string[at - 1]):
        return letter
    if letter == "\u200b" and found.string.endswith("<!", 0, at):  # inserted by `_unmarked`
        return letter
    return f"\\u{ord(letter):04x}" if letter <= "\uffff" else f"\\U{ord(letter):08x}"


def _is_emoji(letter: str) -> bool:
    return letter == "\ufe0f" or "🏻" <= letter <= "🏿" or unicodedata.category(letter) == "So"
