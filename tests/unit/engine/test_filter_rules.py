"""Each rule at its border: the page on one side passes, the page on the other does not."""

import pytest

from engine.data import filter_rules
from engine.data.filter_rules import RULES, Page, c4_lines, each_rule, judged

WORDS = [f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in "lmnrst"]  # 150 different ones


def words(count: int) -> str:
    """So many different words of three letters."""
    return " ".join(f"{WORDS[n // 150]}{WORDS[n % 150]}"[3 * (n < 150) :] for n in range(count))


def lines(count: int, like: str = "{}") -> str:
    return "\n".join(like.format(WORDS[n]) for n in range(count)) + "\n"


def grams(repeated: int, n: int, others: int) -> str:
    """An n-gram `repeated` times, each followed by another word, and `others` different words; each
    word has three letters."""
    gram = " ".join(WORDS[:n])
    rest = WORDS[n:]
    return " ".join([f"{gram} {rest[k]}" for k in range(repeated)] + rest[repeated:][:others])


# {rule: (passes, does not)}
BORDERS = {
    "gopher/words": [(words(50), words(49)), ("a " * 100_000, "a " * 100_001)],
    "gopher/word_length": [("abc", "ab"), ("ab abcd", "ab abc"), ("x" * 10, "x" * 11)],
    "gopher/symbols": [
        (words(10) + "#", words(10) + "##"),
        (words(10) + "…", words(10) + "… … x…"),
        (words(10) + "...", words(10) + "... y..."),
    ],
    "gopher/bullets": [
        (lines(9, "- {}") + "x", lines(10, "- {}")),
        (lines(18, "• {}") + lines(2), lines(19, "• {}") + "x"),
    ],
    "gopher/ellipses": [(lines(3, "{}...") + lines(7), lines(4, "{}…") + lines(6))],
    "gopher/letters": [("a b c d 1", "a b c 1 2"), ("a1 2b é ж 5", "1 a1 - + c")],
    "gopher/stop_words": [("The end of", "the the the"), ("(have) with,", "having of")],
    "repetition/lines": [(lines(7) + "bal\n" * 3, lines(6) + "bal\n" * 4)],
    "repetition/paragraphs": [
        (
            lines(7, "{}\n") + "bal\n\n" * 3,
            lines(6, "{}\n") + "bal\n\n" * 4,
        )
    ],
    "repetition/line_characters": [
        (lines(8) + "bal\nbam\n", lines(7) + "bal\nbam\nban\n"),
    ],
    "repetition/paragraph_characters": [
        (lines(8, "{}\n") + "bal\n\nbam\n", lines(7, "{}\n") + "bal\n\nbam\n\nban\n"),
    ],
    # 2 × 2 words are 20 % of 20 words: two of them follow the 2-grams, 14 are others.
    "repetition/top_2_gram": [(grams(2, 2, 14), grams(2, 2, 13)), (words(4), "bal bam bal bam")],
    "repetition/top_3_gram": [(grams(3, 3, 38), grams(3, 3, 37))],
    "repetition/top_4_gram": [(grams(2, 4, 40), grams(2, 4, 39))],
    # The second of two 5-grams is 15 % of 33.3 words.
    "repetition/duplicate_5_grams": [(grams(2, 5, 22), grams(2, 5, 21))],
    "repetition/duplicate_6_grams": [(grams(2, 6, 29), grams(2, 6, 28))],
    "repetition/duplicate_7_grams": [(grams(2, 7, 38), grams(2, 7, 37))],
    "repetition/duplicate_8_grams": [(grams(2, 8, 49), grams(2, 8, 48))],
    "repetition/duplicate_9_grams": [(grams(2, 9, 62), grams(2, 9, 61))],
    "repetition/duplicate_10_grams": [(grams(2, 10, 78), grams(2, 10, 77))],
    "c4/lorem_ipsum": [("lorem and ipsum", "Lorem Ipsum dolor")],
    "c4/curly_bracket": [("(a) [b] }", "{a}")],
    "c4/lines": [("One two three four five.", "One two three four.")],
    "c4/sentences": [('One. Two! "Three?"', "One. Two, 3.5 of them!")],
}


@pytest.mark.parametrize("rule", BORDERS)
def test_a_rule_leaves_out_what_is_beyond_its_border_and_no_more(rule: str) -> None:
    for passes, fails in BORDERS[rule]:
        assert judged([rule], passes).reason is None
        assert judged([rule], fails).reason == f"{rule}: {RULES[rule].words}"


def test_every_rule_has_its_border_tested() -> None:
    assert set(BORDERS) == set(RULES)


@pytest.mark.parametrize(
    "line",
    [
        "A line that ends with a comma,",
        "Only four words here.",
        "Please switch on JavaScript in your browser.",
        "By this you agree to our Privacy Policy.",
    ],
)
def test_c4_removes_such_lines_and_counts_them(line: str) -> None:
    kept = 'This line is kept, he said: "Yes."'
    assert c4_lines(f"{kept}\n\n{line}\nAnd so is this one [12].") == (
        f"{kept}\nAnd so is this one .",
        1,
    )


def test_a_set_is_all_of_its_rules_and_each_applies_once() -> None:
    assert each_rule(["c4/curly_bracket", "c4"]) == (
        *("c4/curly_bracket", "c4/lorem_ipsum", "c4/lines", "c4/sentences"),
    )
    assert len(each_rule(["gopher", "repetition", "c4"])) == len(RULES)


def test_characters_in_overlapping_duplicates_count_once() -> None:
    text = " ".join(["bal"] * 12)  # from the second word on, all are in a duplicate 5-gram
    assert filter_rules.duplicate_grams(Page(text), 5) == pytest.approx(11 / 12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("text", ["", " \n\n", "\u3000", "word", "#", "。" * 50])
def test_no_text_breaks_a_rule(rule: str, text: str) -> None:
    judged([rule], text)
