"""Takes held secrets out of words that are quoted: a job may have found one and print it, as it is
or encoded. Whoever holds a secret says so once (`hold`); from then on `clean` finds its value in
any mix of URL, JSON, HTML and C escapes, in hexadecimal, and in base64 at any offset, wrapped or
not. It finds what it was told of, and nothing that somebody has encoded on purpose in another way;
a job's isolation is what keeps secrets from it."""

import base64
import html
import re
import threading
from collections.abc import Mapping
from itertools import takewhile
from typing import Any, TypeVar

from runner.lib.base_record import Record
from runner.lib.canonical_json import to_json

R = TypeVar("R", bound=Record)
SHORTEST = 8  # characters; what is shorter stands in many a word by chance
IN_PLACE = "[secret]"
NAMED = re.compile(r"(TOKEN|SECRET|KEY|PASSWORD)$", re.IGNORECASE)
MOST_LINES = 200  # of one secret
ENDS = re.compile(r"""$|[\s;,.:…"')\]]""")  # what follows where words were cut

_patterns: dict[str, list[str]] = {}  # by secret
_found: re.Pattern[str] | None = None
_adding = threading.Lock()


def hold(*secrets: str, instead_of: str = "") -> None:
    """Keep these out of all that is quoted from now on; of one of many lines, each line too.
    `instead_of` one that means nothing any more."""
    global _found
    with _adding:
        _patterns.pop(instead_of.strip(), None)
        for secret in secrets:
            lines = secret.split("\n")[:MOST_LINES]
            for one in (secret.strip(), *map(str.strip, lines)):
                if len(one) >= SHORTEST and one not in _patterns and not one.startswith("-----"):
                    _patterns[one] = _forms(one)
        # A whole secret before what may be a line of it.
        longest = sorted(_patterns, key=len, reverse=True)
        forms = [form for one in longest for form in _patterns[one]]
        _found = re.compile("|".join(forms)) if forms else None


def of_environment(variables: Mapping[str, str]) -> list[str]:
    """The values of those whose names say that they are secrets."""
    return [value for name, value in variables.items() if NAMED.search(name)]


def clean(text: str) -> str:
    """The text with `[secret]` in place of each held secret, and of one that was cut: words are cut
    in many places before they come here, by those who know no secret."""
    if _found is None:
        return text
    text = _found.sub(IN_PLACE, text)
    for secret in _patterns:
        start = text.find(secret[:SHORTEST])
        while start >= 0:
            pairs = zip(secret, text[start:], strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            if ENDS.match(text, start + shared):
                text = f"{text[:start]}{IN_PLACE}{text[start + shared :]}"
            start = text.find(secret[:SHORTEST], start + 1)
    return text


def cleaned(record: R) -> R:
    """The same record without held secrets in any of its words."""
    if _found is None:
        return record
    value = record.model_dump(mode="json")
    said = _cleaned(value)
    return record if said == value else type(record).model_validate_json(to_json(said))


def _cleaned(value: Any) -> Any:
    """The same, of JSON: figures are nobody's words, and what is to be a digest keeps its form."""
    if isinstance(value, str):
        digest = re.fullmatch("[0-9a-f]{16,}", value) and clean(value) != value
        return "0" * len(value) if digest else clean(value)
    if isinstance(value, dict):
        return {clean(key): _cleaned(inner) for key, inner in value.items()}
    return [_cleaned(inner) for inner in value] if isinstance(value, list) else value


def forget() -> None:
    """Hold nothing any more."""
    global _found
    with _adding:
        _patterns.clear()
        _found = None


def _forms(secret: str) -> list[str]:
    """Regular expressions of the ways in which a secret may be written."""
    data = secret.encode()
    escaped = "".join(map(_character, secret))
    hexadecimal = r"[\s:]*".join(_any_case(f"{byte:02x}") for byte in data)
    return [escaped, hexadecimal, *(_base64(data, offset) for offset in range(3))]


def _character(one: str) -> str:
    """One character, as itself or escaped."""
    code = ord(one)
    ways = {
        re.escape(one),
        re.escape(html.escape(one)),
        "".join(f"%{_any_case(f'{byte:02x}')}" for byte in one.encode()),
        rf"\\u{_any_case(f'{code:04x}')}",
        rf"\\x{_any_case(f'{code:02x}')}",
        f"&#0*{code};",
        f"&#[xX]0*{_any_case(f'{code:x}')};",
    }
    if one in "\"'\\/`$@&*_<>":  # a shell's, JSON's and Markdown's way
        ways.add(r"\\" + re.escape(one))
    if one == " ":
        ways.add(r"\+")
    return f"(?:{'|'.join(sorted(ways, key=len, reverse=True))})"


def _any_case(digits: str) -> str:
    return "".join(f"[{x}{x.upper()}]" if x.isalpha() else x for x in digits)


def _base64(data: bytes, offset: int) -> str:
    """The characters that follow from the secret alone, where `offset` bytes stand before it in
    their group of three. With `-` and `_` as URLs have it, and wrapped."""
    whole = base64.b64encode(b"\0" * offset + data).decode()
    first, last = (0, 2, 3)[offset], (offset + len(data)) * 8 // 6
    either = {"+": r"(?:[+-]|%2[bB])", "/": r"(?:[/_]|%2[fF]|\\/)"}
    return r"(?:\s|\\n)*".join(either.get(x, x) for x in whole[first:last])
