"""Strangers' words as they can stand in a comment: shown as they were written, with no mention,
link, markup or marker in them. Pure."""

import re

_UNSHOWN = re.compile(
    r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def text(value: object, limit: int = 300) -> str:
    """Somebody's words on one line of Markdown, shown literally: no mention, link or markup."""
    line = one_line(value)
    return _begun(_literal(line if len(line) <= limit else line[: limit - 1] + "…"))


def prose(value: str, limit: int = 600) -> str:
    """A sentence of the lab's with people's words in it: `code spans` stay, the rest is literal."""
    line = one_line(value)
    line = line if len(line) <= limit else line[: limit - 1] + "…"
    # Only what Markdown reads as a span too: one backtick on either side, not a run of them.
    parts = re.split(r"(?<!`)`([^`]+)`(?!`)", line)
    return _begun(
        "".join(f"`{_unmarked(part)}`" if n % 2 else _literal(part) for n, part in enumerate(parts))
    )


def code(value: object, limit: int = 120) -> str:
    """Somebody's word for the inside of a code span."""
    line = _unmarked(one_line(value).replace("`", "ʼ").replace("|", "¦"))
    line = line if len(line) <= limit else line[: limit - 1] + "…"
    return line or " "  # an empty span is none


def fenced(value: object, limit: int = 240) -> str:
    """Somebody's line for the inside of a fenced block: nothing in it can end the fence."""
    line = _UNSHOWN.sub("", " ".join(str(value).splitlines())).replace("`", "ʼ").rstrip()
    return _unmarked(line if len(line) <= limit else line[: limit - 1] + "…")


def _unmarked(line: str) -> str:
    """Without the beginning of a marker, which is found by its characters alone."""
    return line.replace("<!--", "<!\u200b--")


def _literal(line: str) -> str:
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"([\\`*_{}\[\]#+!|~$])", r"\\\1", line)
    # A mention, a reference or a link is made of a sign and its neighbours; keep them apart.
    return re.sub(r"(@|\\#|www|\bGH(?=-)|(?=://))", "\\1\u200b", line, flags=re.IGNORECASE)


def _begun(line: str) -> str:
    """With nothing at its start that would begin a list, a rule or a heading."""
    return re.sub(r"^([0-9]{0,9})([-=.)])(?=[-=\s]|$)", r"\1\\\2", line)


def one_line(value: object) -> str:
    """Without line breaks, and without what cannot be shown or turns the text around."""
    return " ".join(_UNSHOWN.sub("", str(value)).split())
