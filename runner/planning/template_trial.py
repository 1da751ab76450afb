"""Tries a chat template before anything trains, in a child with bounded time and memory: it is
strangers' text and may loop."""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.data.chat_template import BadTemplate, rendered, tried
from engine.data.chat_templates import TEMPLATES
from engine.data.conversations import Conversation
from runner.isolation import limited

LIMITS = limited.Limits(seconds=10.0, memory=1 << 30)
ROWS = 100  # of each split


def check(config: Mapping[str, Any], rows: Sequence[Conversation]) -> None:
    """Raises BadTemplate unless the template of a `conversations` step writes these rows."""
    template = TEMPLATES.get(config["template"], config["template"])
    try:
        limited.call(
            _tried, template, [tuple(row) for row in rows], limits=LIMITS, expected=BadTemplate
        )
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
