"""Tasks that are made of held-out text, by a rule and without a file. Pure: the same text gives the
same items.

A place is a word of 4 to 12 letters (a to z, A to Z) with enough text before it, which is its
context. Places are drawn evenly among all of the text. The right choice is the word that is there.

cloze: beside it, three other words of the same text with the same number of letters, each word
equally likely however often it occurs. What decides is whether the model knows which word fits.
lexical-choice: beside it, the same letters with two neighbours inside the word exchanged, which is
no word of the text. What decides is whether the model knows how words are spelled.

word-order: a place is four words of 1 to 12 letters with one space between each, and the right
choice is these four. Beside it, the same with the two in the middle exchanged, which the text
nowhere has. What decides is whether the model knows how words are ordered."""

import re
from collections import defaultdict

import numpy as np

from runner.spec.task_items import BadTask, Choice

LONGEST = {"cloze": 12, "lexical-choice": 12, "word-order": 51}  # bytes of a choice
CONTEXT = 64  # bytes before the word, or fewer if a model sees fewer
SHORTEST_CONTEXT = 16  # bytes
OTHERS = 3  # wrong choices of cloze
WORD = re.compile(rb"(?<![A-Za-z])[A-Za-z]{4,12}(?![A-Za-z])")
FOUR_WORDS = re.compile(rb"(?<![A-Za-z])[A-Za-z]{1,12}(?: [A-Za-z]{1,12}){3}(?![A-Za-z])")
MAX_TEXT = 4 << 20  # bytes of the text that are read
SEED = 0


def made(task: str, text: bytes, count: int, most_bytes: int) -> list[Choice]:
    """At most `count` items; context and choice together have at most `most_bytes` bytes. Raises
    BadTask."""
    least, context = SHORTEST_CONTEXT + LONGEST[task], min(CONTEXT, most_bytes - LONGEST[task])
    if context < SHORTEST_CONTEXT:
        raise BadTask(
            f"`{task}` needs models that see {least} bytes, and one sees {most_bytes}; raise its "
            "seq_len"
        )
    pattern = FOUR_WORDS if task == "word-order" else WORD
    found = [(m.start(), m.group().decode()) for m in pattern.finditer(text)]
    words = sorted({word for _, word in found})
    wrong = WRONG[task](words, text)
    rng = np.random.default_rng(SEED)
    items: list[Choice] = []
    for number in rng.permutation(len(found)):
        at, word = found[number]
        before = text[max(0, at - context) : at].decode(errors="ignore")
        if at < SHORTEST_CONTEXT or not (others := wrong.of(word, rng)):
            continue
        choices, answer = [*others], int(rng.integers(len(others) + 1))
        choices.insert(answer, word)
        items.append(Choice(context=before, choices=choices, answer=answer))
        if len(items) == count:
            break
    if not items:
        raise BadTask(
            f"the validation text has no place from which `{task}` could make an item; take the "
            "task out, or use a longer text"
        )
    return items


class _Other:
    """Other words of the same length."""

    def __init__(self, words: list[str], _: bytes) -> None:
        self._by_length: dict[int, list[str]] = defaultdict(list)
        for word in words:
            self._by_length[len(word)].append(word)

    def of(self, word: str, rng: np.random.Generator) -> list[str]:
        known = self._by_length[len(word)]
        if len(known) <= OTHERS:
            return []
        drawn = rng.choice(len(known), size=OTHERS + 1, replace=False)
        return [known[n] for n in drawn if known[n] != word][:OTHERS]


class _Swapped:
    """The word with two neighbours inside it exchanged."""

    def __init__(self, words: list[str], _: bytes) -> None:
        self._words = {word.lower() for word in words}

    def of(self, word: str, rng: np.random.Generator) -> list[str]:
        for at in rng.permutation(np.arange(1, len(word) - 2)):
            swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
            if swapped != word and swapped.lower() not in self._words:
                return [swapped]
        return []


class _Exchanged:
    """The four words with the two in the middle exchanged."""

    def __init__(self, _: list[str], text: bytes) -> None:
        self._text = text.lower()

    def of(self, words: str, _: np.random.Generator) -> list[str]:
        first, second, third, last = words.split(" ")
        exchanged = f"{first} {third} {second} {last}"
        return [] if exchanged.lower().encode() in self._text else [exchanged]


WRONG: dict[str, type[_Other | _Swapped | _Exchanged]] = {
    "cloze": _Other,
    "lexical-choice": _Swapped,
    "word-order": _Exchanged,
}
