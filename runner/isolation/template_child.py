"""Renders chat templates in a child with bounded time and memory, because a template is strangers'
text and may loop."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.data.chat_template import BadTemplate, Rendered, rendered, tried
from runner.isolation import limited

LIMITS = limited.Limits(seconds=10.0, memory=1 << 30, answer=256 << 20)  # for one conversation


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Any = None,
    *,
    add_generation_prompt: bool = False,
    special: Sequence[str] = (),
) -> Rendered:
    """As `engine.data.chat_template.rendered`. Raises BadTemplate."""
    arguments = template, messages, tools, add_generation_prompt, special
    text, spans, written = _called(rendered, *arguments)
    return Rendered(text, [(begin, end) for begin, end in spans], written)


def try_(template: str) -> None:
    """As `engine.data.chat_template.tried`. Raises BadTemplate."""
    _called(tried, template)


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return limited.call(
            function, *arguments, limits=LIMITS, resident=True, expected=BadTemplate
        )
    except limited.Refused as refused:
        if refused.kind == "seconds":
            raise BadTemplate(
                f"the chat template took more than {LIMITS.seconds:g} seconds for one "
                "conversation, so it was stopped; does it loop?"
            ) from refused
        raise BadTemplate(
            f"the chat template cannot be rendered: {refused}; make the template simpler"
        ) from refused
