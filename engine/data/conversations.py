"""Conversations: rows of messages, and a label for each of their tokens.

A row has `messages`, each with a `role` (system, user, assistant, tool) and a `content`; a message
of the assistant may have `tool_calls` in OpenAI's shape. A trace is a conversation of an agent. In
SWE-ZERO's traces an action is a fenced block of bash in what the assistant says, and the next
message, of the user, is what came of it.

| label | what |
| --- | --- |
| assistant | what the assistant says, and no later row of this table |
| tool_call | `tool_calls`, or a fenced block of bash or sh |
| patch | a fenced block of diff or patch |
| final | the last message of the assistant in a trace, if it has no action |
| outcome | a message with `"label": "outcome"`, such as the result of tests |
| observation | a message of a tool, or the user's message after an action |

An observation or an outcome is trained on only if asked for, because the assistant does not say it.
A message may name its own `label`. Everything else, such as the system's words and headers, has
none. Only labels that were asked for are given; other words of the assistant are `assistant`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine.data.chat_template import Rendered
from engine.data.lab_texts import BadText
from engine.data.tokenize import Tokenizer

LABELS = ("assistant", "tool_call", "observation", "patch", "outcome", "final")  # 1, 2, … in stores
# What is trained on unless others are asked for: what the assistant says.
SPOKEN = tuple(label for label in LABELS if label not in ("observation", "outcome"))
ROLES = ("system", "user", "assistant", "tool")
MAX_MESSAGES = 10_000
_OPENS = re.compile(r"^```(bash|sh|diff|patch)[ \t]*\n", re.MULTILINE)
_CLOSES = re.compile(r"^```[ \t]*$", re.MULTILINE)
_OF_FENCE = {"bash": "tool_call", "sh": "tool_call", "diff": "patch", "patch": "patch"}


class Conversation(NamedTuple):
    """One row."""

    where: str  # such as `chats.jsonl, line 7`
    messages: list[dict[str, Any]]
    tools: list[Any] | None


def conversations(lines: bytes, source: str, first: int = 1) -> Iterator[Conversation]:
    """The rows of a file of JSON lines, whose first line has the number `first`. Raises BadText,
    which names the line."""
    for number, line in enumerate(lines.splitlines(), first):
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadText(f"{where} is not JSON: {error}; repair the line") from error
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise BadText(
                f"{where} has half of a surrogate pair, which UTF-8 cannot hold; repair the escapes"
            ) from error
        yield _checked(row, where)


def _checked(row: Any, where: str) -> Conversation:
    messages = row.get("messages") if isinstance(row, dict) else None
    if not isinstance(messages, list) or not 0 < len(messages) <= MAX_MESSAGES:
        raise BadText(
            f'{where} has no list of messages; write {{"messages": [{{"role": "user", "content": '
            '"…"}, …]}'
        )
    for number, message in enumerate(messages):
        at = f"{where}, message {number}"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES:
            raise BadText(f"{at} has the role {role!r}; write one of {', '.join(ROLES)}")
        content, calls = message.get("content"), message.get("tool_calls")
        if not isinstance(content, str) and not (content is None and calls):
            kind = "nothing" if content is None else type(content).__name__
            raise BadText(f"{at} has {kind} as its content; write a text")
        if calls is not None and not _are_calls(calls):
            raise BadText(
                f'{at} has tool_calls that are none; write [{{"function": {{"name": "…", '
                '"arguments": {…}}}]'
            )
        if calls and role != "assistant":
            raise BadText(f"{at} has tool_calls, and its role is {role}; only the assistant calls")
        label = message.get("label")
        if label is not None and label not in LABELS:
            raise BadText(f"{at} has the label {label!r}; write one of {', '.join(LABELS)}")
    tools = row.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise BadText(f"{where} has tools that are no list; write a list")
    return Conversation(where, messages, tools)


def _are_calls(calls: Any) -> bool:
    return isinstance(calls, list) and all(
        isinstance(call, dict)
        and isinstance(of := call.get("function"), dict)
        and isinstance(of.get("name"), str)
        and isinstance(of.get("arguments"), str | dict)
        for call in calls
    )


def of_characters(of: Conversation, said: Rendered, labels: Sequence[str]) -> np.ndarray:
    """(characters,) uint8: the label of each as its number in LABELS from 1, or 0. Messages are
    found in the text in their order, as they are or without white space around them."""
    found = np.zeros(len(said.text), np.uint8)
    for begin, end in said.spans:
        found[begin:end] = _code("assistant", labels)
    spoken = found > 0
    place, acted, span = 0, False, 0
    last = max((n for n, x in enumerate(of.messages) if x["role"] == "assistant"), default=-1)
    is_trace = any(_acts(message) or message["role"] == "tool" for message in of.messages)
    for number, message in enumerate(of.messages):
        content = message.get("content") or ""
        begin = said.text.find(content, place)
        if begin < 0:
            content = content.strip()
            begin = said.text.find(content, place)
        if begin < 0:  # the template leaves it out or changes it
            continue
        end = begin + len(content)
        role, label = message["role"], message.get("label")
        if role == "assistant":
            while span < len(said.spans) and said.spans[span][1] <= begin:
                span += 1
            until = said.spans[span][1] if span < len(said.spans) else end
            if begin < (said.spans[span][0] if span < len(said.spans) else 0):
                begin = end = said.spans[span][0]  # an empty message, found too early
            for kind, start, stop in _fences(content):
                found[begin + start : begin + stop] = _code(_OF_FENCE[kind], labels)
            if message.get("tool_calls"):
                found[end:until] = _code("tool_call", labels)
            if is_trace and number == last and not _acts(message):
                label = label or "final"
            if label:
                found[begin:until] = _code(label, labels)
            place, acted = until, _acts(message)
            span += 1
        else:
            if label is None and (role == "tool" or (role == "user" and acted)):
                label = "observation"
            found[begin:end] = _code(label, labels) if label else 0
            place, acted = end, acted and role == "tool"
    # What the assistant did not say cannot have its label.
    not_said = ~spoken & np.isin(found, [LABELS.index(x) + 1 for x in SPOKEN])
    found[not_said] = 0
    return found


def _acts(message: Mapping[str, Any]) -> bool:
    """Whether the assistant calls a tool in this message."""
    if message["role"] != "assistant":
        return False
    kinds = {kind for kind, _, _ in _fences(message.get("content") or "")}
    return bool(message.get("tool_calls")) or not kinds.isdisjoint(("bash", "sh"))


def _fences(content: str) -> Iterator[tuple[str, int, int]]:
    """(language, begin, end) of each fenced block that closes. Reads each character twice at most,
    also where many blocks open and none closes."""
    place = 0
    while (opens := _OPENS.search(content, place)) and (
        closes := _CLOSES.search(content, opens.end())
    ):
        place = closes.end()
        yield opens[1], opens.start(), place


def _code(label: str, labels: Sequence[str]) -> int:
    """The number of a label; that of `assistant` or 0 for one that was not asked for."""
    if label in labels:
        return LABELS.index(label) + 1
    return LABELS.index("assistant") + 1 if label in SPOKEN else 0


def of_tokens(labels_C: np.ndarray, places_N2: np.ndarray) -> np.ndarray:
    """(N,) uint8: the label of each token, given those of characters: that of its first character
    that has one. So a token across the border of a turn belongs to the turn."""
    found_N = np.zeros(len(places_N2), np.uint8)
    for number, (begin, end) in enumerate(places_N2.tolist()):
        having = np.flatnonzero(labels_C[begin : max(end, begin + 1)])
        found_N[number] = labels_C[begin + having[0]] if len(having) else 0
    return found_N


def encoded(
    of: Conversation, said: Rendered, tokenizer: Tokenizer, labels: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a conversation's tokens and the label of each, (N,) both. The whole text is
    tokenized once, because tokens may cross the borders of turns."""
    ids_N, places_N2 = tokenizer.encode_with_places(said.text)
    return ids_N, of_tokens(of_characters(of, said, labels), places_N2)
