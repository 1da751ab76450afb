"""The step that has a function of the experiment's change each document of a text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.builtin.texts import SPLITS, read_split, write_text


def map_documents(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """What the function makes of each document, in their order; None leaves one out."""
    function = config["function"]  # itself, and not its name: `runner.step_child` imports it
    for split in SPLITS:
        made = (function(text) for text in read_split(inputs["text"], split))
        write_text(out, split, (text for text in made if text is not None))
