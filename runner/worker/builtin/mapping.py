"""The step that has a function of the experiment's change each document of a text."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.data.documents import documents
from runner.worker.builtin.own_code_errors import BadOwnCode, blamed
from runner.worker.builtin.shards import shards
from runner.worker.builtin.texts import write_text

Functions = Mapping[str, Callable[[str], Any]]  # of the experiment's own, by name


def map_documents(
    config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path, functions: Functions
) -> None:
    """What the function makes of each document, in their order; None leaves one out. Of each shard
    a shard."""
    map_shards(config, {"shards": shards(inputs["text"])}, out, functions)


def map_shards(
    config: Mapping[str, Any],
    inputs: Mapping[str, Mapping[str, Path]],
    out: Path,
    functions: Functions,
) -> None:
    """The same of the input `shards`, {name: file}. Raises BadOwnCode."""
    for name, path in inputs["shards"].items():
        write_text(out, name, _made(config["function"], functions, path))


def _made(name: str, functions: Functions, path: Path) -> Iterator[str]:
    function = functions[name]
    for number, text in enumerate(documents(path), 1):
        with blamed(name, f"{path.name}, document {number}"):
            made = function(text)
        if isinstance(made, str):
            yield made
        elif made is not None:
            raise BadOwnCode(
                f"{name}, {path.name}, document {number}: it gave {type(made).__name__}; it gives "
                "a string, or None to leave the document out"
            )
