"""YAML as people mean it: values, lines, and what is refused."""

import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runner.lib.yaml_lines import MOST_BYTES, MOST_DEPTH, BadYaml, read
from tests.examples import examples


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("3E4", 3e4),
        ("1.5e+3", 1.5e3),
        ("1.", 1.0),
        (".5", 0.5),
        ("-0.1", -0.1),
        ("+7", 7),
        ("007", 7),
        ("0", 0),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("0o17", "0o17"),
        ("1:30", "1:30"),
        (".", "."),
        ("-", [None]),
        ("e5", "e5"),
        ("1e", "1e"),
        ("１２", "１２"),
        ("true", True),
        ("false", False),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("n", "n"),
        ("y", "y"),
        ("True", "True"),
        ("null", None),
        ("~", None),
        ("a:", {"a": None}),
        ("Null", "Null"),
        ("2026-03-01", "2026-03-01"),
        ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z"),
        ("=", "="),
        ('"3e-4"', "3e-4"),
        ("'true'", "true"),
        ("|\n 3\n", "3\n"),
        ("[1, 2.5, on, ]", [1, 2.5, "on"]),
        ("{a: 1, b: {c: [d]}}", {"a": 1, "b": {"c": ["d"]}}),
        ("<<: {a: 1}\nb: 2", {"<<": {"a": 1}, "b": 2}),
        ("1: a\ntrue: b\n~: c", {"1": "a", "true": "b", "~": "c"}),
        ("a: 1.9 ± 0.1", {"a": "1.9 ± 0.1"}),
        ("a: < -0.05", {"a": "< -0.05"}),
        ("\ufeffa: 1", {"a": 1}),
        ("---\na: 1\n...\n", {"a": 1}),
    ],
)
def test_scalars_mean_what_people_mean(text: str, value: object) -> None:
    found = read(text).value
    assert found == value
    assert type(found) is type(value)


def test_every_value_has_the_line_it_stands_on() -> None:
    document = read("# words\na: 1\nb:\n  - x\n  - y: 2\n    z: 3\nc: {d: 1,\n    e: [4,\n  5]}\n")
    assert {path: line for path, line in document.lines.items() if path} == {
        ("a",): 2,
        ("b",): 3,
        ("b", 0): 4,
        ("b", 1): 5,
        ("b", 1, "y"): 5,
        ("b", 1, "z"): 6,
        ("c",): 7,
        ("c", "d"): 7,
        ("c", "e"): 8,
        ("c", "e", 0): 8,
        ("c", "e", 1): 9,
    }
    assert document.line(("b", 1, "q", "r")) == 5
    assert document.line(("q",)) == 2
    assert document.line(()) == 2


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "it is empty"),
        ("# words\n", 1, "it is empty"),
        ("a: [1,\n  2\nb: 3\n", 3, "it is not YAML: expected ',' or ']'"),
        ("a: 1\n b: 2\n", 2, "it is not YAML: mapping values are not allowed here"),
        ("a: b: c", 1, "it is not YAML: mapping values are not allowed here"),
        ("a: 1\n\tb: 2\n", 2, "it is not YAML: found character '\\t'"),
        ("a: 'x\n", 2, "it is not YAML: found unexpected end of stream"),
        ("a: 1\n---\nb: 2\n", 2, "it is not YAML: but found another document"),
        ("a: `b`", 1, "it is not YAML: found character '`'"),
        ("a: @b", 1, "it is not YAML: found character '@'"),
        ("a: 1\nb: 2\na: 3\n", 3, "the key `a` stands twice"),
        ("a:\n  b: 1\n  'b': 2\n", 3, "the key `b` stands twice"),
        ('1: a\n"1": b\n', 2, "the key `1` stands twice"),
        ("caf\u00e9: 1\ncafe\u0301: 2\n", 2, "the key `caf\u00e9` stands twice"),
        ("arms:\n  \ufb01rst: 1\n  first: 2\n", 3, "the key `first` stands twice"),
        ("\uff41: 1\nb: 2\na: 3\n", 3, "the key `a` stands twice"),
        ("\u212b: 1\nA\u030a: 2\n", 2, "stands twice"),
        ("? [a]\n: b", 1, "a key must be a plain word"),
        ("? {a: 1}\n: b", 1, "a key must be a plain word"),
        ("a: &x 1\nb: *x", 2, "an alias (`*name`) is not read here"),
        ("a: 1\nb: &x [*x]", 2, "an alias (`*name`) is not read here"),
        ("a: &x b\n*x : 1", 2, "an alias (`*name`) is not read here"),
        ("a: !!python/object/apply:os.system [id]", 1, "is not read here; write a plain value"),
        ("a: 1\nb: !!int x", 2, "is not read here; write a plain value"),
        ("a: !!binary aGk=", 1, "is not read here; write a plain value"),
        ("a: !mine 1", 1, "the tag '!mine' is not read here"),
        ("a: ! 1", 1, "the tag '!' is not read here"),
        ("!!set {a}", 1, "is not read here; write a plain value"),
        ("? !!int a\n: b", 1, "is not read here; write a plain value"),
        ("a: \x00", 1, "it holds a character that YAML forbids (#x0000)"),
        ("a: 1\nb: \x1b", 2, "it holds a character that YAML forbids (#x001b)"),
        ("a: 1\nb: \ud800", 2, "it holds a character that YAML forbids (#xd800)"),
        ('a: 1\nb: "\\ud800"', 2, "it holds a character that no text may hold"),
        ('"\\0": 1', 1, "it holds a character that no text may hold"),
        ('a: 1\nb: "\\U00110000"', 2, "it is not YAML: a number or an escape is too large"),
        ('a: "\\UFFFFFFFF"', 1, "it is not YAML: a number or an escape is too large"),
        ("a: 1\nb: " + "9" * 5000, 2, "a number has more than 400 digits"),
        ("%YAML " + "9" * 5000 + ".1\n---\na", 1, "it is not YAML: a number"),
        ("%YAML 2.0\n---\na", 1, "it is not YAML: found incompatible YAML document"),
        ("[" * 100, 1, f"it is nested deeper than {MOST_DEPTH} levels"),
        ("a:\n" + "".join(f"{' ' * n}a:\n" for n in range(1, 40)), 21, "it is nested deeper than"),
        ("a" * (MOST_BYTES + 1), 1, "it is longer than 100,000 bytes"),
        ("é" * (MOST_BYTES // 2 + 1), 1, "it is longer than 100,000 bytes"),
    ],
)
def test_a_refused_value_names_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(BadYaml) as caught:
        read(text)
    assert (caught.value.line, said in str(caught.value)) == (line, True), str(caught.value)


def test_a_long_key_is_shown_short_and_on_one_line() -> None:
    key = "`a`\\n" * 150
    with pytest.raises(BadYaml, match="stands twice") as caught:
        read(f'"{key}": 1\n"{key}": 2\n')
    assert len(str(caught.value)) < 100
    assert "\n" not in str(caught.value)


def test_twenty_levels_are_read() -> None:
    assert read("[" * MOST_DEPTH + "]" * MOST_DEPTH).value is not None


@pytest.mark.parametrize(
    "text",
    [
        "[" * 90_000,
        "{a: " * 20_000,
        "? " * 40_000,
        "- " * 40_000,
        "[" + "1," * 49_000 + "1]",
        "\n".join(f"k{n}: 1" for n in range(9_000)),
        "a: &a [x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(3_000)),
        "\n" * 99_000,
        "a\n" * 49_000,
        "'" + "''" * 49_000 + "'",
        '"' + "\\n" * 49_000 + '"',
        "#" * 99_000,
        "a: " + "b" * 99_000,
    ],
    ids=range(13),
)
def test_the_largest_texts_are_read_or_refused_quickly(text: str) -> None:
    began = time.process_time()
    try:
        outcome: Any = read(text)
    except BadYaml as error:
        outcome = error
    assert outcome
    assert time.process_time() - began < 8


MARKS = st.text(st.sampled_from("ab1 -:{}[],\"'\n>|&*!%#`~\\\t.?@<e0xuU"), max_size=80)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.one_of(
        MARKS, st.text(max_size=60), st.binary(max_size=60).map(lambda b: b.decode("latin-1"))
    )
)
@example('"\\x')
@example("a: |9999999999999\n b")
@example("%TAG ! tag:x,2000:\n---\n!a b")
def test_whatever_is_written_is_read_or_refused_in_words(text: str) -> None:
    try:
        lines = list(read(text).lines.values())
    except BadYaml as error:
        lines = [error.line]
    assert min(lines) >= 1
