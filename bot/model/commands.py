"""The grammar of slash commands: which lines of a comment are for the lab. Pure.

A command is a line of its own that begins with `/`, in a plain paragraph. Code, quotes, lists,
tables, footnotes, links, mathematics, HTML elements (also around paragraphs) and comments do not
count, and neither does what a reply by e-mail answers, or its signature. If Markdown turns a line
into a quote (`> quote` and then `/run` without an empty line between), the lab answers with a hint
instead of silence. Keyboards and input methods write other spaces and slashes; they count as usual
ones.
"""

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from bot.model.email_reply import length_of_reply

KNOWN = ("run", "cancel", "status", "plan", "retry", "reproduce", "help")
MAX_COMMANDS = 5  # per comment; each gets an answer
MAX_READ = 16_000  # characters of a comment, because Markdown can be made slow to parse
_LINE = re.compile(r"/([a-z][a-z-]{0,20})(?:[ \t]+(.*))?")
# The same with capitals, a full stop, or backticks around the command.
_NEARLY = re.compile(
    r"/([A-Za-z][A-Za-z-]{0,20})(?:[ \t]+(`?)([0-9A-Za-z-]{1,60})\2)?[ \t]*[.,:;!?]{0,3}"
)
_ALIKE = re.compile(r"[\W\d_]*/[A-Za-z]")  # also in a quote or a list
_NO_WIDTH = re.compile(
    r"(?:^|(?<=\s))[\u200b-\u200d\u2060\ufeff]+|[\u200b-\u200d\u2060\ufeff]+(?=\s|$)"
)
_SPACE = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"  # other spaces than ASCII's
# What GitHub parses and this parser does not: mathematics (also over paragraphs, between two
# dollars) and text between single tildes.
_OVER_LINES = re.compile(
    r"\$\$.*?\$\$"
    r"|(?<![\w$])\$(?=[^\s$])(?:[^$\n]|\n(?!\n))*(?<=[^\s$])\$(?![\w$])"
    r"|(?<![\w~])~(?=[^\s~])(?:[^~\n]|\n(?!\n))*(?<=[^\s~])~(?![\w~])",
    re.DOTALL,
)
# Comments, and tags of the elements that GitHub draws and that have an end; it leaves out others.
_HTML = re.compile(
    r"(?si)<!--.*?(?:-->|\Z)|<(/?)(a|abbr|b|bdo|blockquote|caption|cite|code|dd|del|details|dfn|div|dl|dt"
    r"|em|figcaption|figure|h[1-8]|i|ins|kbd|li|mark|ol|picture|pre|q|rp|rt|ruby|s|samp|small|span"
    r"|strike|strong|sub|summary|sup|table|tbody|td|tfoot|th|thead|time|tr|tt|ul|var)(?=[\s/>])"
)
_FOOTNOTE = re.compile(r"\[\^[^\] \t\r\n\0]+\]:")


@dataclass(frozen=True)
class Command:
    """One command of a comment; `index` counts the comment's commands from 0."""

    name: str
    argument: str
    index: int


@dataclass(frozen=True)
class Reading:
    """The commands of a comment, and lines that only look like commands."""

    commands: tuple[Command, ...] = ()
    near_misses: tuple[tuple[str, str], ...] = ()  # (typed, meant)
    swallowed: bool = False  # a command became part of a quote
    too_many: bool = False  # only the first `MAX_COMMANDS` count
    too_long: bool = False  # there are more after the first `MAX_READ` characters


def _footnote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A rule for the parser: the definition of a footnote, with the lines that GitHub draws into
    it, as a paragraph on a deeper level."""
    place = state.bMarks[start] + state.tShift[start]
    if state.is_code_block(start) or not _FOOTNOTE.match(state.src, place):
        return False
    if silent:
        return True
    others, line = state.md.block.ruler.getRules("paragraph"), start + 1
    while (after := state.skipEmptyLines(line)) < end:
        indent = state.sCount[after]  # negative: a line that a quote has taken in already
        if 0 <= indent < state.blkIndent + 4 and (
            after > line or any(rule(state, line, end, True) for rule in others)
        ):
            break
        line = after + 1
    state.push("footnote_open", "section", 1)
    state.push("paragraph_open", "p", 1)
    inline = state.push("inline", "", 0)
    inline.content = state.getLines(start, line, state.blkIndent, keepLastLF=False).strip()
    inline.map, inline.children = [start, line], []
    state.push("paragraph_close", "p", -1)
    state.push("footnote_close", "section", -1)
    state.line = line
    return True


_markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_markdown.block.ruler.before(
    "reference", "footnote", _footnote, {"alt": ["paragraph", "reference"]}
)


@lru_cache(maxsize=256)
def read(body: str) -> Reading:
    """The commands in a comment's Markdown."""
    source = re.split(r"\r\n|\r|\n", body)  # only Markdown's line ends
    source = [_plain(line) for line in source]
    if not any(map(_is_like_one, source)):
        return Reading()
    reply = source[: length_of_reply(source)]
    ends = itertools.accumulate(len(line) + 1 for line in reply)
    some = sum(end <= MAX_READ + 1 for end in ends)
    reading = replace(_read(reply[:some]), too_long=any(map(_is_like_one, reply[some:])))
    end, *below = source[len(reply) :] or [""]
    signature = below[: length_of_reply(below)] if end.strip() == "--" else []
    in_signature = any(map(_is_like_one, signature))
    return replace(reading, swallowed=reading.swallowed or in_signature)


def _plain(line: str) -> str:
    """A line that may be a command, with usual spaces and slashes; any other one as it is."""
    plain = re.sub(f"^[ \t]*[{_SPACE}][ \t{_SPACE}]*", "", _NO_WIDTH.sub("", line))
    plain = re.sub(f"[{_SPACE}]", " ", plain).replace("／", "/", 1)
    return plain if _is_like_one(plain) else line


def _is_like_one(line: str) -> bool:
    """Whether a line could be a command, or nearly one: a cheap test before Markdown is parsed."""
    return _ALIKE.match(line) is not None


def _read(source: list[str]) -> Reading:
    """The commands in these lines."""
    tokens = _markdown.parse("\n".join(source))
    commands: list[Command] = []
    near_misses = []
    swallowed = False
    lines: list[_Line] = []
    opened = Counter[str]()  # HTML elements, by name
    for index, token in enumerate(tokens):
        if token.type == "html_block" and token.level == 0:
            _follow(token.content, opened)
        if token.type != "inline" or token.map is None:
            continue
        raw = {line.strip() for line in source[token.map[0] : token.map[1]]}
        is_paragraph = token.level == 1 and tokens[index - 1].type == "paragraph_open"
        is_plain = is_paragraph and not opened.total()
        elements = opened if is_paragraph else Counter[str]()
        lines += [*_lines(token, raw, is_plain, elements), _Line()]
    within = _within(lines)
    for number, line in enumerate(lines):
        said = line.said.strip()
        # An escaped slash (`\/run`, `&#47;run`) looks the same only after rendering.
        if line.marked or number in within or said not in line.raw:
            continue
        match = _LINE.fullmatch(said)
        if match and match[1] in KNOWN and not line.has_code:
            swallowed = swallowed or not line.is_plain
            if line.is_plain:
                commands.append(Command(match[1], match[2] or "", len(commands)))
        elif line.is_plain and (near := _near_miss(said)):
            near_misses.append(near)
    few = slice(MAX_COMMANDS)
    typed = tuple(dict.fromkeys(near_misses))[few]
    return Reading(tuple(commands[few]), typed, swallowed, len(commands) > MAX_COMMANDS)


def _near_miss(line: str) -> tuple[str, str] | None:
    """What somebody typed, and the command they may have meant; None if it is more likely for
    another bot. A near miss has the command's first letter (`/explain` and `/replan` are other
    bots' commands)."""
    nearly = _NEARLY.fullmatch(line)
    first = line[1:].partition(" ")[0]
    name = nearly[1] if nearly else first.rstrip(".,:;!?")
    if not re.fullmatch(r"/[a-z][a-z-]{0,20}", line[:1] + name.lower()):
        return None
    alike = [known for known in KNOWN if known[0] == name[0].lower()]
    meant = next(iter(difflib.get_close_matches(name.lower(), alike, n=1, cutoff=0.7)), None)
    if meant is None or (meant == first and not nearly):
        return None
    argument = f" {nearly[3]}" if nearly and nearly[3] else ""
    return (line[1:] if nearly else name), meant + argument


@dataclass
class _Line:
    """A line of a paragraph."""

    said: str = ""  # its text and code
    shown: str = ""  # its text without code
    raw: Collection[str] = ()  # the source lines of its paragraph
    is_plain: bool = False  # its paragraph is not inside anything else
    has_code: bool = False
    marked: bool = False  # part of it is emphasis, a link, HTML, …


def _lines(
    paragraph: Token, raw: Collection[str], is_plain: bool, opened: Counter[str]
) -> list[_Line]:
    """The lines of a paragraph. Markup may span several of them, and an HTML element that is
    `opened` may end in a later one."""
    new = partial(_Line, raw=raw, is_plain=is_plain)
    lines, depth = [new()], 0
    for child in paragraph.children or []:
        if child.type in ("softbreak", "hardbreak"):
            lines.append(new(marked=depth > 0))
        elif child.type == "text":
            lines[-1].said += child.content
            lines[-1].shown += child.content
        elif child.type == "code_inline":
            lines[-1].said += f"`{child.content}`"
            lines[-1].shown += "\0"
            lines[-1].has_code = True
        else:
            lines[-1].marked = True
            is_html = child.type == "html_inline"
            depth += _follow(child.content, opened) if is_html else child.nesting
    return lines


def _follow(html: str, opened: Counter[str]) -> int:
    """Count in `opened` the elements that a part of HTML opens and closes. Returns how many more
    are open now."""
    before = opened.total()
    for end, name in _HTML.findall(html):
        opened[name.lower()] = max(0, opened[name.lower()] + (-1 if end else 1)) if name else 0
    return opened.total() - before


def _within(lines: Sequence[_Line]) -> set[int]:
    """The lines that are inside of something that GitHub renders and this parser does not know."""
    found = set[int]()
    shown = "\n".join(line.shown for line in lines)
    for match in _OVER_LINES.finditer(shown):
        if "\n" in match[0]:
            first = shown.count("\n", 0, match.start())
            found.update(range(first, first + match[0].count("\n") + 1))
    return found
