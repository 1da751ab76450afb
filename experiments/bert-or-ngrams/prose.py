"""The rule that labels this experiment's documents. It reads what the classifiers read: the first
characters."""

import re
from typing import Any

FIRST = 500  # characters of a document
SENTENCE = re.compile(r"[.!?:][\"')\]]?$")  # the end of a line of prose
WORDS = 6  # a line of prose has as many


def grade(document: dict[str, Any]) -> int:
    """How much of what one reads first is prose: 0 to 4, the share of characters in lines of it."""
    lines = document["text"][:FIRST].split("\n")
    if len(document["text"]) > FIRST and len(lines) > 1:
        lines = lines[:-1]  # its end is not known
    prose = sum(len(line) for line in lines if _is_prose(line.strip()))
    return round(4 * prose / max(1, sum(map(len, lines))))


def readable(text: str) -> str | None:
    """The document if its grade is 3 or 4."""
    return text if grade({"text": text}) >= 3 else None


def _is_prose(line: str) -> bool:
    return len(line.split()) >= WORDS and bool(SENTENCE.search(line))
