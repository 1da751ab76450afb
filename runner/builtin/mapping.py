"""The step that has a function of the experiment's change each document of a text."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runner.builtin.blame import blamed
from runner.builtin.texts import SPLITS, read_split, write_text


def map_documents(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path],
    out: Path,
    functions: Mapping[str, Callable[[str], str | None]],
) -> None:
    """What the function makes of each document, in their order; None leaves one out."""
    name = config["function"]
    function = functions[name]

    def made(text: str) -> str | None:
        with blamed(name):
            return function(text)

    for split in SPLITS:
        each = map(made, read_split(inputs["text"], split))
        write_text(out, split, (text for text in each if text is not None))
