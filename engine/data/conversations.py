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
        if not (isinstance(content, str) or _are_parts(content) or (content is None and calls)):
            kind = "nothing" if content is None else type(content).__name__
            raise BadText(
                f"{at} has {kind} as its content; write a text, or a list of parts "
                '{"type": "text", "text": "…"}'
            )
        if calls is not None and not _are_calls(calls):
            raise BadText(
                f'{at} has tool_calls that are none; write [{{"function": {{"name": "…", '
                '"arguments": {…}}}], where the arguments may be the JSON of an object'
            )
        if calls and role != "assistant":
            raise BadText(f"{at} has tool_calls, and its role is {role}; only the assistant calls")
        label = message.get("label")
        if label is not None and label not in LABELS:
            raise BadText(f"{at} has the label {label!r}; write one of {', '.join(LABELS)}")
    tools = row.get("tools")
    if isinstance(tools, str):
        tools = _of_json(tools)
    if tools is not None and not isinstance(tools, list):
        raise BadText(f"{where} has tools that are no list; write a list, or its JSON")
    return Conversation(where, messages, tools)


def _are_calls(calls: Any) -> bool:
    return isinstance(calls, list) and all(
        isinstance(call, dict)
        and isinstance(of := call.get("function"), dict)
        and isinstance(of.get("name"), str)
        and isinstance(_of_json(of.get("arguments")), dict)
        for call in calls
    )


def _are_parts(content: Any) -> bool:
    return isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    )


def _of_json(value: Any) -> Any:
    """What this JSON says; a value that is no text, as it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def of_characters(of: Conversation, said: Rendered, labels: Sequence[str]) -> np.ndarray:
    """(characters,) uint8: the label of each as its number in LABELS from 1, or 0. What is between
    the template's marks is the assistant's, whatever else is written like it. In there, and for
    others between there, messages are found in their order, as they are or without white space
    around them: just where they are if there are as many spans as messages of the assistant."""
    found = np.zeros(len(said.text), np.uint8)
    for begin, end in said.spans:
        found[begin:end] = _code("assistant", labels)
    acted, span, place = False, 0, 0
    spoken = [n for n, message in enumerate(of.messages) if message["role"] == "assistant"]
    paired = len(said.spans) == len(spoken)
    is_trace = any(_acts(message) or message["role"] == "tool" for message in of.messages)
    for number, message in enumerate(of.messages):
        content, label = _content(message), message.get("label")
        if message["role"] == "assistant":
            acts = _acts(message)
            places = said.spans[span : span + 1 if paired else None]
            if at := _place(said.text, content, places):
                begin, end, skipped = at
                span += skipped
                until = said.spans[span][1]
                for kind, start, stop in _fences(said.text[begin:end]):
                    found[begin + start : begin + stop] = _code(_OF_FENCE[kind], labels)
                if message.get("tool_calls"):
                    found[end:until] = _code("tool_call", labels)
                if is_trace and number == spoken[-1] and not acts:
                    label = label or "final"
                if label:
                    found[begin:until] = _code(label, labels)
            elif not paired:
                continue  # the template leaves it out or changes it
            place, acted, span = said.spans[span][1], acts, span + 1
        else:
            if label is None and (
                message["role"] == "tool" or (acted and message["role"] == "user")
            ):
                label = "observation"
            starts = [place, *(end for _, end in said.spans[span:])]
            ends = [*(begin for begin, _ in said.spans[span:]), len(said.text)]
            places = list(zip(starts, ends, strict=True))[: 1 if paired else None]
            if at := _place(said.text, content, places):
                begin, place, skipped = at
                span += skipped
                # What the assistant did not say cannot have its label.
                found[begin:place] = _code(label, labels) if label and label not in SPOKEN else 0
            acted = acted and message["role"] == "tool"
    return found


def _place(
    text: str, content: str, places: Sequence[tuple[int, int]]
) -> tuple[int, int, int] | None:
    """The first and end character of a content in the first of these places that has it, and how
    many were passed over."""
    for one in dict.fromkeys((content, content.strip())):
        for number, (begin, end) in enumerate(places):
            if (at := text.find(one, begin, end)) >= 0:
                return at, at + len(one), number
    return None


def _acts(message: Mapping[str, Any]) -> bool:
    """Whether the assistant calls a tool in this message."""
    if message["role"] != "assistant":
        return False
    kinds = {kind for kind, _, _ in _fences(_content(message))}
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
    that has one. So a token across the border of a turn belongs to the turn. A token without
    characters has a label if those around it have."""
    count = len(labels_C)
    labels_C = np.append(labels_C, 0)
    having_C = np.where(labels_C > 0, np.arange(count + 1), count)
    next_C = np.minimum.accumulate(having_C[::-1])[::-1]
    begin_N, end_N = places_N2.T
    found_N = np.where(next_C[begin_N] < end_N, labels_C[next_C[begin_N]], 0)
    inside_N = (begin_N == end_N) & (labels_C[begin_N - 1] > 0)
    return np.where(inside_N, labels_C[begin_N], found_N).astype(np.uint8)


def encoded(
    of: Conversation, said: Rendered, tokenizer: Tokenizer, labels: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a conversation's tokens and the label of each, (N,) both. The whole text is
    tokenized once, because tokens may cross the borders of turns."""
    ids_N, places_N2 = tokenizer.encode_with_places(said.text, said.special)
    return ids_N, of_tokens(of_characters(of, said, labels), places_N2)
