"""The step that has a function of the experiment's change each document of a text."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.documents import documents
from runner.builtin.shards import shards
from runner.builtin.texts import write_text


class BadDocument(Exception):
    """The function could not do a document; the message says which, of which shard."""


def map_documents(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """What the function makes of each document, in their order; None leaves one out. Of each shard
    a shard."""
    map_shards(config, {"shards": shards(inputs["text"])}, out)


def map_shards(
    config: Mapping[str, Any], inputs: Mapping[str, Mapping[str, Path]], out: Path
) -> None:
    """The same of the input `shards`, {name: file}. Raises BadDocument."""
    function = config["function"]  # itself, and not its name: `runner.step_child` imports it
    for name, path in inputs["shards"].items():
        write_text(out, name, _made(function, path))


def _made(function: Callable[[str], Any], path: Path) -> Iterator[str]:
    for number, text in enumerate(documents(path), 1):
        try:
            made = function(text)
        except Exception as error:
            words = f"{path.name}, document {number}: {type(error).__name__}: {error}"
            raise BadDocument(words) from error
        if isinstance(made, str):
            yield made
        elif made is not None:
            raise BadDocument(
                f"{path.name}, document {number}: the function gave {type(made).__name__}; it "
                "gives a string, or None to leave the document out"
            )
