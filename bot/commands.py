"""The slash-command grammar: which words of a comment are meant for the lab. Pure.

A command is a line of its own that begins with `/`, in plain paragraphs only: what stands in code,
quotes, lists, tables, HTML or comments is talk about commands. So that nobody is surprised, what
Markdown makes into a quote (`> quote` and then `/run` without an empty line between) is answered
with a hint instead of silence.
"""

import difflib
import re
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

KNOWN = ("run", "cancel", "status", "plan", "retry", "reproduce", "help")
MOST = 5  # commands of one comment; each has an answer
_LINE = re.compile(r"/([a-z][a-z-]{0,20})(?:[ \t]+(.*))?")
_markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])


@dataclass(frozen=True)
class Command:
    """One command of a comment; `index` counts the comment's commands from 0."""

    name: str
    argument: str
    index: int


@dataclass(frozen=True)
class Reading:
    """What a comment asks for, and what it seems to ask for without doing so."""

    commands: tuple[Command, ...] = ()
    near_misses: tuple[tuple[str, str], ...] = ()  # (typed, meant)
    swallowed: bool = False  # a command became part of a quote
    too_many: bool = False  # only the first `MOST` count


def read(body: str) -> Reading:
    """The commands in a comment's Markdown."""
    if "/" not in body:
        return Reading()
    tokens = _markdown.parse(body)
    source = re.split(r"\r\n|\r|\n", body)  # the lines that Markdown knows, and no others
    commands: list[Command] = []
    near_misses = []
    swallowed = False
    for index, token in enumerate(tokens):
        if token.type != "inline" or token.map is None:
            continue
        raw = {line.strip() for line in source[token.map[0] : token.map[1]]}
        container = tokens[index - 1]
        for line in _plain_lines(token):
            # An escaped slash (`\/run`, `&#47;run`) looks the same only after rendering.
            match = _LINE.fullmatch(line)
            if not match or line not in raw:
                continue
            name, argument = match[1], match[2] or ""
            if token.level != 1 or container.type != "paragraph_open":
                swallowed = swallowed or name in KNOWN
            elif name in KNOWN:
                commands.append(Command(name, argument, len(commands)))
            elif meant := _meant(name):
                near_misses.append((name, meant))
    few = tuple(dict.fromkeys(near_misses))[:MOST]
    return Reading(tuple(commands[:MOST]), few, swallowed, too_many=len(commands) > MOST)


def _meant(name: str) -> str:
    """The command that somebody mistyped; empty where it is more likely meant for another bot. Who
    mistypes a word gets its first letter right (`/explain` and `/replan` are others' words)."""
    alike = [known for known in KNOWN if known[0] == name[0]]
    return next(iter(difflib.get_close_matches(name, alike, n=1, cutoff=0.7)), "")


def _plain_lines(paragraph: Token) -> list[str]:
    """The lines of a paragraph that are plain text from end to end."""
    lines: list[str | None] = [""]
    for child in paragraph.children or []:
        if child.type in ("softbreak", "hardbreak"):
            lines.append("")
        elif child.type == "text" and lines[-1] is not None:
            lines[-1] += child.content
        else:
            lines[-1] = None
    return [line.strip() for line in lines if line]
