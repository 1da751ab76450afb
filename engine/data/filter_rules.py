"""Rules by which the field keeps documents, with the numbers of the papers. Pure.

`gopher` and `repetition` are the quality rules and Table A1 of appendix A1.1 of Rae et al. 2021
(arXiv 2112.11446). `c4` are the rules of section 2.2 of Raffel et al. 2020 (arXiv 1910.10683v4)
that judge one page; not here are its list of bad words, its language detector, and the removal of
sentences that other pages repeat. Its numbers of sentences and words are those of its code.

A word is what white space separates. A duplicate is what occurred before in the same document, so
the first occurrence is not one.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
BULLETS = ("•", "‣", "◦", "▪", "-", "*")
ELLIPSES = ("...", "…")
TOP_GRAMS = {2: 0.20, 3: 0.18, 4: 0.16}
DUPLICATE_GRAMS = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
ENDS = (".", "!", "?", '"', "”")
POLICIES = (
    *("terms of use", "privacy policy", "cookie policy"),
    *("uses cookies", "use of cookies", "use cookies"),
)
CITATIONS = re.compile(r"\[(?:\d+|edit|citation needed)\]")
SENTENCE = re.compile(r"[.!?][\"'”’)\]]*(?=\s|$)")


class Page:
    """A text, and what several rules ask of it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> list[str]:
        """What white space separates."""
        return self.text.split()

    @cached_property
    def lines(self) -> list[str]:
        """Lines without white space around them, without empty ones."""
        return [line for line in map(str.strip, self.text.splitlines()) if line]

    @cached_property
    def paragraphs(self) -> list[str]:
        """What empty lines separate."""
        return [part for part in map(str.strip, re.split(r"\n\s*\n", self.text)) if part]

    @cached_property
    def letters(self) -> list[int]:
        """The characters of each word."""
        return [len(word) for word in self.words]


class Rule(NamedTuple):
    """A rule; `broken` says of which pages it holds that they are left out."""

    words: str  # what is left out, for reports and docs
    broken: Callable[[Page], bool]


def share(part: float, whole: float) -> float:
    """`part` of `whole`; 0 of nothing."""
    return part / whole if whole else 0.0


# ── Gopher ───────────────────────────────────────────────────────────────────────────────────


def _word_count(page: Page) -> bool:
    return not 50 <= len(page.words) <= 100_000


def _word_length(page: Page) -> bool:
    return not 3 <= share(sum(page.letters), len(page.words)) <= 10


def _symbols(page: Page) -> bool:
    ellipses = sum(page.text.count(one) for one in ELLIPSES)
    return max(page.text.count("#"), ellipses) > 0.1 * len(page.words)


def _bullets(page: Page) -> bool:
    return share(sum(line.startswith(BULLETS) for line in page.lines), len(page.lines)) > 0.9


def _ellipses(page: Page) -> bool:
    return share(sum(line.endswith(ELLIPSES) for line in page.lines), len(page.lines)) > 0.3


def _letters(page: Page) -> bool:
    return share(sum(any(map(str.isalpha, word)) for word in page.words), len(page.words)) < 0.8


def _stop_words(page: Page) -> bool:
    return len(STOP_WORDS.intersection(re.findall(r"\w+", page.text.lower()))) < 2


# ── Repetition ───────────────────────────────────────────────────────────────────────────────


def _again(parts: list[str]) -> Iterator[str]:
    """The parts that occurred before."""
    seen = set[str]()
    for part in parts:
        if part in seen:
            yield part
        seen.add(part)


def duplicates(parts: list[str]) -> float:
    """The share of parts that are duplicates."""
    return share(len(parts) - len(set(parts)), len(parts))


def duplicate_characters(parts: list[str]) -> float:
    """The share of characters in parts that are duplicates."""
    return share(sum(map(len, _again(parts))), sum(map(len, parts)))


def _grams(words: list[str], n: int) -> Iterable[tuple[str, ...]]:
    return zip(*(words[at:] for at in range(n)), strict=False)


def top_gram(page: Page, n: int) -> float:
    """The share of the words' characters in the most frequent n-gram, if it occurs twice."""
    counts = Counter(_grams(page.words, n))
    if not counts or (most := max(counts.values())) < 2:
        return 0.0
    longest = max(sum(map(len, gram)) for gram, count in counts.items() if count == most)
    return share(most * longest, sum(page.letters))


def duplicate_grams(page: Page, n: int) -> float:
    """The share of the words' characters in duplicate n-grams, each character counted once."""
    seen = set[tuple[str, ...]]()
    covered = end = 0
    for at, gram in enumerate(_grams(page.words, n)):
        if gram in seen:
            covered += sum(page.letters[max(at, end) : at + n])
            end = at + n
        seen.add(gram)
    return share(covered, sum(page.letters))


def _top_gram(n: int, most: float) -> Rule:
    words = f"more than {most:.0%} of characters are in the most frequent {n}-gram"
    return Rule(words.replace("%", " %"), lambda page: top_gram(page, n) > most)


def _duplicate_grams(n: int, most: float) -> Rule:
    words = f"more than {most:.0%} of characters are in duplicate {n}-grams"
    return Rule(words.replace("%", " %"), lambda page: duplicate_grams(page, n) > most)


# ── C4 ───────────────────────────────────────────────────────────────────────────────────────


def c4_lines(text: str) -> tuple[str, int]:
    """The text without the lines that C4 removes and without citation marks such as [1], and how
    many lines were removed. Empty lines go silently."""
    lines = [line.strip() for line in CITATIONS.sub("", text).splitlines()]
    found = [line for line in lines if line]
    kept = [line for line in found if _is_c4_line(line)]
    return "\n".join(kept), len(found) - len(kept)


def _is_c4_line(line: str) -> bool:
    lower = line.lower()
    return (
        line.endswith(ENDS)
        and len(line.split()) >= 5
        and "javascript" not in lower
        and not any(policy in lower for policy in POLICIES)
    )


def sentences(text: str) -> int:
    """How many sentences end in the text: at `.`, `!` or `?` and white space."""
    return len(SENTENCE.findall(text))


C4_LINES = "c4/lines"  # removes lines; all other rules leave out whole documents

RULES: dict[str, Rule] = {
    "gopher/words": Rule("it has fewer than 50 words, or more than 100,000", _word_count),
    "gopher/word_length": Rule(
        "the mean word is shorter than 3 characters, or longer than 10", _word_length
    ),
    "gopher/symbols": Rule("it has more than 0.1 # or ellipses per word", _symbols),
    "gopher/bullets": Rule("more than 90 % of lines begin with a bullet", _bullets),
    "gopher/ellipses": Rule("more than 30 % of lines end with an ellipsis", _ellipses),
    "gopher/letters": Rule("fewer than 80 % of words have a letter", _letters),
    "gopher/stop_words": Rule(
        "it has fewer than two of: the, be, to, of, and, that, have, with", _stop_words
    ),
    "repetition/lines": Rule(
        "more than 30 % of lines are duplicates", lambda page: duplicates(page.lines) > 0.3
    ),
    "repetition/paragraphs": Rule(
        "more than 30 % of paragraphs are duplicates",
        lambda page: duplicates(page.paragraphs) > 0.3,
    ),
    "repetition/line_characters": Rule(
        "more than 20 % of characters are in duplicate lines",
        lambda page: duplicate_characters(page.lines) > 0.2,
    ),
    "repetition/paragraph_characters": Rule(
        "more than 20 % of characters are in duplicate paragraphs",
        lambda page: duplicate_characters(page.paragraphs) > 0.2,
    ),
    **{f"repetition/top_{n}_gram": _top_gram(n, most) for n, most in TOP_GRAMS.items()},
    **{
        f"repetition/duplicate_{n}_grams": _duplicate_grams(n, most)
        for n, most in DUPLICATE_GRAMS.items()
    },
    "c4/lorem_ipsum": Rule(
        "it has the words lorem ipsum", lambda page: "lorem ipsum" in page.text.lower()
    ),
    "c4/curly_bracket": Rule("it has a curly bracket", lambda page: "{" in page.text),
    C4_LINES: Rule("no line is left", lambda page: not page.words),
    "c4/sentences": Rule("it has fewer than 3 sentences", lambda page: sentences(page.text) < 3),
}

SETS = {
    name: tuple(rule for rule in RULES if rule.startswith(f"{name}/"))
    for name in ("gopher", "repetition", "c4")
}
NAMES = (*SETS, *RULES)


class Judged(NamedTuple):
    """What the rules make of a text."""

    text: str  # what is left of it
    reason: str | None = None  # the first rule that leaves the document out
    removed_lines: int = 0


def each_rule(names: Iterable[str]) -> tuple[str, ...]:
    """The rules of these names, sets written out, each once and in order."""
    return tuple(dict.fromkeys(rule for name in names for rule in SETS.get(name, (name,))))


def judged(rules: Iterable[str], text: str) -> Judged:
    """Apply the rules in order, until one leaves the document out."""
    page, removed = Page(text), 0
    for name in rules:
        if name == C4_LINES:
            text, removed = c4_lines(text)
            page = Page(text)
        if RULES[name].broken(page):
            return Judged(text, f"{name}: {RULES[name].words}", removed)
    return Judged(text, None, removed)
