"""Tries a chat template before anything trains, in a child with bounded time and memory: it is
strangers' text and may loop."""

from collections.abc import Sequence
from typing import Any

from engine.data.chat_template import BadTemplate, rendered, tried
from engine.data.conversations import Conversation
from runner.isolation import limited

LIMITS = limited.Limits(seconds=10.0, memory=1 << 30)
ROWS = 100  # of each split


def check(template: str, rows: Sequence[Conversation] = ()) -> None:
    """Raises BadTemplate unless the template writes these conversations, or simple ones if there
    are none."""
    given = [tuple(row) for row in rows]
    try:
        limited.call(_tried, template, given, limits=LIMITS, expected=BadTemplate)
    except limited.Refused as refused:
        words = f"the chat template cannot be tried: {refused}; does it loop? Make it simpler"
        raise BadTemplate(words) from refused


def _tried(template: str, rows: Sequence[tuple[str, Any, Any]]) -> None:
    if not rows:
        tried(template)
    for where, messages, tools in rows:
        try:
            rendered(template, messages, tools)
        except BadTemplate as error:
            raise BadTemplate(f"{where}: {error}") from error
