"""What chat templates are given: messages whose contents are parts and whose arguments are JSON;
and whether they have written all of it."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from engine.data import special_names


class BadTemplate(Exception):
    """The template cannot be used; the message says why and what to do."""


class _Parts(list[Any]):
    """A content in parts, which a template has to write one by one."""

    def __str__(self) -> NoReturn:
        raise BadTemplate(
            "the chat template writes each content as one text, and here one is a list of parts; "
            "write one text, or a template for parts"
        )

    __repr__ = __add__ = __radd__ = lambda self, *_: str(self)  # type: ignore[assignment]


class _Arguments(dict[str, Any]):
    """A tool's arguments that came as JSON: an object, and where a template writes it, that JSON.
    Templates of either kind are common."""

    def __init__(self, text: str) -> None:
        super().__init__(json.loads(text))
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __add__(self, other: str) -> str:
        return self._text + other

    def __radd__(self, other: str) -> str:
        return other + self._text


def message_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates see it."""
    found = dict(message)
    if isinstance(message.get("content"), list):
        found["content"] = _Parts(message["content"])
    if calls := message.get("tool_calls"):
        found["tool_calls"] = [{**call, "function": _called(call["function"])} for call in calls]
    return found


def _called(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function["arguments"]
    return {
        **function,
        "arguments": _Arguments(arguments) if isinstance(arguments, str) else arguments,
    }


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter `tojson`, with the arguments that it has in `transformers`."""
    found = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if not ensure_ascii or found.isascii():
        return found
    return re.sub(
        f"[^\\x00-\\x7f{special_names.BREAK}]", lambda one: json.dumps(one[0])[1:-1], found
    )


def check_whole(
    text: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, *, knows: bool
) -> None:
    """Raises BadTemplate if the text has not all tools, calls and parts of contents. `knows`:
    whether the template that wrote it names `tools` at all."""
    if tools and not knows:
        raise BadTemplate(
            "the conversation has `tools`, and the chat template writes none; write a template "
            "with `tools`, or take them out"
        )
    calls = [call for one in messages for call in one.get("tool_calls") or ()]
    for field, these in (("tools", tools or ()), ("tool_calls", calls)):
        for one in these:
            of = one.get("function") or one if isinstance(one, dict) else {}
            name = of.get("name") if isinstance(of, dict) else None
            if isinstance(name, str) and name not in text:
                raise BadTemplate(
                    f"the chat template leaves out {name[:80]!r} of `{field}`; write a template "
                    "that writes them, or take them out"
                )
    for number, message in enumerate(messages):
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if part["text"].strip() not in text:
                raise BadTemplate(
                    f"the chat template leaves out {part['text'][:40]!r}, a part of the content of "
                    f"message {number}; write one text, or a template for parts"
                )
