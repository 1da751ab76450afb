"""The chat template of a model: a file in the output of the step that made it. `import` has it from
the folder that it reads, and `train` from the conversations that it trains on."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine.data.chat_template import FILE, BadTemplate, end_of_turn
from engine.data.tokenize import Tokenizer
from runner.isolation import template_child
from runner.lib import untrusted_files
from runner.spec.step_types import INIT

MAX_TEMPLATE = 1 << 20  # bytes


class Chat:
    """Writes what a model continues, and knows what ends its answers."""

    def __init__(self, template: str) -> None:
        self.template, self._render = template, partial(template_child.render, template)
        self.end = end_of_turn(self._render)  # None: only the end of a document does

    def prompt(
        self, messages: Sequence[Mapping[str, Any]], tokenizer: Tokenizer
    ) -> tuple[str, np.ndarray]:
        """The conversation up to the beginning of the assistant's answer, and its tokens (N,).
        Raises BadTemplate."""
        said = self._render(messages, add_generation_prompt=True, special=tokenizer.special)
        ids_N, _ = tokenizer.encode_with_places(said.text, said.special)
        return said.text, ids_N


def template_of(folder: Path) -> str | None:
    """The chat template in a folder (Jinja); None if it has none. Raises BadTemplate."""
    try:
        found = untrusted_files.read(folder.resolve() / FILE, MAX_TEMPLATE)
        return None if found is None else found.decode()
    except (untrusted_files.Refused, UnicodeDecodeError) as error:
        raise BadTemplate(f"{FILE} cannot be read: {error}; write it again") from error


def of(folder: Path) -> Chat | None:
    """How one talks to the model in a folder; None if it has no chat template. Raises
    BadTemplate."""
    template = template_of(folder)
    return None if template is None else Chat(template)


def learned(config: Mapping[str, Any], inputs: Mapping[str, Path]) -> str | None:
    """The chat template of the model that a `train` step makes: that of the last conversations
    that it trains on, or of the model that it continues. Raises BadTemplate."""
    named = (phase.get("tokens") for phase in config["train"].get("phases", ()))
    for name in (*reversed(("tokens", *filter(None, named))), INIT):
        if name in inputs and (found := template_of(inputs[name])) is not None:
            return found
    return None
