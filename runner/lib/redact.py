"""Removes known secrets from quoted text: a job may find one and print it, plain or encoded. A
holder of a secret registers it with `hold`. Then `clean` finds its value in any mix of URL, JSON,
HTML and C escapes, in hexadecimal, and in base64 at any offset, wrapped or not. It does not find
unregistered secrets or deliberate other encodings; the isolation keeps secrets away from jobs."""

import base64
import html
import re
import threading
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeVar

from runner.lib.base_record import Record
from runner.lib.canonical_json import to_json

R = TypeVar("R", bound=Record)
SHORTEST = 8  # characters; shorter secrets occur in many words by chance
IN_PLACE = "[secret]"
NAMED = re.compile(r"(TOKEN|SECRET|KEY|PASSWORD)$", re.IGNORECASE)
MOST_LINES = 200  # of one secret
ENDS = re.compile(r"""$|[\s;,.:…"')\]]""")  # what may follow a cut

_patterns: dict[str, list[str]] = {}  # by secret
_found: re.Pattern[str] | None = None
_adding = threading.Lock()


def hold(*secrets: str, instead_of: str = "") -> None:
    """Register secrets: `clean` removes them from now on, and each line of a secret with several
    lines. `instead_of` is an old secret to forget."""
    global _found
    with _adding:
        _patterns.pop(instead_of.strip(), None)
        for secret in secrets:
            lines = secret.split("\n")[:MOST_LINES]
            for one in (secret.strip(), *map(str.strip, lines)):
                if len(one) >= SHORTEST and one not in _patterns and not one.startswith("-----"):
                    _patterns[one] = _forms(one)
        # Whole secrets come before lines of them.
        longest = sorted(_patterns, key=len, reverse=True)
        forms = [form for one in longest for form in _patterns[one]]
        _found = re.compile("|".join(forms)) if forms else None


def of_environment(variables: Mapping[str, str]) -> list[str]:
    """The values of variables whose names say that they are secrets."""
    return [value for name, value in variables.items() if NAMED.search(name)]


def named_in(command: Sequence[str], variables: Mapping[str, str]) -> str | None:
    """The name of the first secret in a command: an option or a variable that is called like one,
    or a variable's value; None if there is none."""
    for word in command:
        name, equals, _ = word.partition("=")
        if NAMED.search(name) and (equals or name.startswith("-")):
            return name.lstrip("-")
        for of, value in variables.items():
            if NAMED.search(of) and len(value) >= SHORTEST and value in word:
                return of
    return None


def clean(text: str) -> str:
    """The text with `[secret]` in place of each registered secret. Also finds the beginning of a
    secret before a cut, because others cut texts before they get here."""
    if _found is None:
        return text
    text = _found.sub(IN_PLACE, text)
    for secret in _patterns:
        text = _without_beginnings(text, secret)
    return text


def _without_beginnings(text: str, secret: str) -> str:
    """The text without cut beginnings of one secret. Each of the text's characters is copied once,
    and at most the secret's length is compared at each beginning: who knows eight characters of it
    cannot make this slow."""
    head, pieces, copied = secret[:SHORTEST], list[str](), 0
    start = text.find(head)
    while start >= 0:
        pairs = zip(secret, text[start : start + len(secret)], strict=False)
        end = start + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if ENDS.match(text, end):
            pieces += (text[copied:start], IN_PLACE)
            copied = end
        start = text.find(head, max(start + 1, copied))
    return "".join((*pieces, text[copied:])) if pieces else text


def cleaned(record: R) -> R:
    """The record without registered secrets in its texts."""
    if _found is None:
        return record
    value = record.model_dump(mode="json")
    said = _cleaned(value)
    return record if said == value else type(record).model_validate_json(to_json(said))


def _cleaned(value: Any) -> Any:
    """The same for JSON. Numbers stay, and so does the form of digests."""
    if isinstance(value, str):
        digest = re.fullmatch("[0-9a-f]{16,}", value) and clean(value) != value
        return "0" * len(value) if digest else clean(value)
    if isinstance(value, dict):
        return {clean(key): _cleaned(inner) for key, inner in value.items()}
    return [_cleaned(inner) for inner in value] if isinstance(value, list) else value


def forget() -> None:
    """Forget all secrets."""
    global _found
    with _adding:
        _patterns.clear()
        _found = None


def _forms(secret: str) -> list[str]:
    """Regular expressions for the encodings of a secret."""
    data = secret.encode()
    escaped = "".join(map(_character, secret))
    hexadecimal = r"[\s:]*".join(_any_case(f"{byte:02x}") for byte in data)
    return [escaped, hexadecimal, *(_base64(data, offset) for offset in range(3))]


def _character(one: str) -> str:
    """A regular expression for one character, plain or escaped."""
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
    if one in "\"'\\/`$@&*_<>":  # escaped with a backslash in a shell, JSON and Markdown
        ways.add(r"\\" + re.escape(one))
    if one == " ":
        ways.add(r"\+")
    return f"(?:{'|'.join(sorted(ways, key=len, reverse=True))})"


def _any_case(digits: str) -> str:
    return "".join(f"[{x}{x.upper()}]" if x.isalpha() else x for x in digits)


def _base64(data: bytes, offset: int) -> str:
    """A regular expression for the base64 characters that depend on the secret alone, if it starts
    at `offset` in a group of three bytes. Also the URL-safe alphabet, and wrapped lines."""
    whole = base64.b64encode(b"\0" * offset + data).decode()
    first, last = (0, 2, 3)[offset], (offset + len(data)) * 8 // 6
    either = {"+": r"(?:[+-]|%2[bB])", "/": r"(?:[/_]|%2[fF]|\\/)"}
    return r"(?:\s|\\n)*".join(either.get(x, x) for x in whole[first:last])
