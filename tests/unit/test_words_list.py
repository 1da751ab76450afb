"""What people read is written in plain words: nothing that docs/words.md asks to avoid."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = ROOT / "docs/words.md"

# Whole phrases in which a word of the list is right.
EXCEPTIONS = (
    "stands in for github",
    "stand-in",
    "there is no",
    "there are no",
    "is no longer",
    "are no longer",
)


def avoided() -> dict[str, str]:
    """{a phrase to avoid: what to write instead}, as the table of the page has them."""
    _, _, table = WORDS.read_text().partition("## Plain words")
    rows = re.findall(r"^\| (`.+) \| (.+) \|$", table, re.MULTILINE)
    return {phrase: better for cell, better in rows for phrase in re.findall("`([^`]+)`", cell)}


AVOIDED = avoided()
_FOUND = re.compile(rf"\b({'|'.join(sorted(map(re.escape, AVOIDED), key=len, reverse=True))})\b")


def faults(text: str) -> list[str]:
    """The phrases of `text` that the list asks to avoid, each with what is around it."""
    line = " ".join(text.lower().replace("’", "'").split())
    for phrase in EXCEPTIONS:
        line = line.replace(phrase, " … ")
    return [
        f"…{line[max(0, at.start() - 40) : at.end() + 30]}… (write: {AVOIDED[at[0]]})"
        for at in _FOUND.finditer(line)
    ]


# ── What people read ─────────────────────────────────────────────────────────────────────────


def of_markdown(text: str) -> Iterator[str]:
    """Its paragraphs, without code and the addresses of links."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "`…`", text)
    yield from re.split(r"\n\n|\n(?=[-|#])", re.sub(r"\]\([^)]*\)", "]", text))


def of_template(text: str) -> Iterator[str]:
    """The text between the tags of Jinja and of HTML."""
    text = re.sub(r"\{#.*?#\}|\{%.*?%\}", " ", text, flags=re.DOTALL)
    yield from re.sub(r"\{\{.*?\}\}", "…", re.sub(r"<[^>]*>", " ", text), flags=re.DOTALL).split(
        "\n\n"
    )


def of_python(text: str) -> Iterator[str]:
    """Its strings of two words or more, without docstrings."""
    tree = ast.parse(text)
    defined = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    skipped = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, defined) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield "".join(
                part.value if isinstance(part, ast.Constant) else "…" for part in node.values
            )
        elif isinstance(node, ast.Constant) and id(node) not in skipped:
            words = node.value if isinstance(node.value, str) else ""
            yield words if " " in words else ""


def of_lines(text: str) -> Iterator[str]:
    """All of it, by paragraphs."""
    yield from text.split("\n\n")


READ: dict[str, Callable[[str], Iterator[str]]] = {
    "bot/messages/templates/*.j2": of_template,
    "bot/messages/*.py": of_python,
    "bot/rules/*.py": of_python,
    "bot/demo/*.py": of_python,
    "bot/cli/*.py": of_python,
    "bot/setup/*.py": of_python,
    "bot/service/*.py": of_python,
    "bot/fake_github/pages/templates/*.html": of_template,
    "bot/site/pages/templates/*.html": of_template,
    "bot/setup/starter/*": of_lines,
    ".github/**/*.yml": of_lines,
    ".github/*.md": of_lines,
    "runner/analysis/*.py": of_python,
    "runner/cli/*.py": of_python,
    "docs/*.md": of_markdown,
    "docs/tutorials/*.md": of_markdown,
    "*.md": of_markdown,
}
FILES = {
    path.relative_to(ROOT).as_posix(): sentences
    for pattern, sentences in READ.items()
    for path in sorted(ROOT.glob(pattern))
}


@pytest.mark.parametrize("name", FILES)
def test_what_people_read_is_in_plain_words(name: str) -> None:
    text = (ROOT / name).read_text()
    if ROOT / name == WORDS:
        text, _, _ = text.partition("## Plain words")
    found = [fault for sentence in FILES[name](text) for fault in faults(sentence)]
    assert not found, f"{name}, see docs/words.md:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "sentence",
    [
        "The seal `1` stands, and the verdict will be about it.",
        "| arm | foretold | came out | |",
        "its job ended without a word",
        "this plan sets aside 1 h 0 min by the clock, after which it is stopped",
        "`x` is no experiment",
    ],
)
def test_what_the_list_asks_to_avoid_is_found(sentence: str) -> None:
    assert faults(sentence)


def test_a_word_is_right_in_a_phrase_that_needs_it() -> None:
    assert not faults(
        "The sandbox stands in for GitHub. There is no plan, and it is no longer open."
    )


def test_each_word_has_one_name() -> None:
    text, _, _ = WORDS.read_text().partition("## Plain words")
    names = re.findall(r"^\| ([a-z][^|]*?) \|", text, re.MULTILINE)
    named = [name for name in names if name != "word"]
    assert len(named) >= 30
    assert len({*named}) == len(named)
