"""The step that applies an own function to each document of a text."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.data.documents import Document, whole_documents
from runner.lib.own_code_errors import BadOwnCode, blamed
from runner.worker.texts import reports
from runner.worker.texts.filter_and_join import write_text
from runner.worker.texts.shards import shards

Functions = Mapping[str, Callable[[str], Any]]  # own functions, by name


def map_documents(
    config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path, functions: Functions
) -> None:
    """Apply the function to the text of each document, in order; None removes a document. Each
    shard gives a shard."""
    map_shards(config, {"shards": shards(inputs["text"])}, out, functions)
    reports.finish(out, [out])


def map_shards(
    config: Mapping[str, Any],
    inputs: Mapping[str, Mapping[str, Path]],
    out: Path,
    functions: Functions,
) -> None:
    """The same for the input `shards`, {name: file}. Raises BadOwnCode."""
    tally = reports.Tally()
    for name, path in inputs["shards"].items():
        write_text(out, name, _made(config["function"], functions, path, tally))
    tally.write_sums(out)


def _made(name: str, functions: Functions, path: Path, tally: reports.Tally) -> Iterator[Document]:
    function = functions[name]
    for number, document in enumerate(whole_documents(path), 1):
        with blamed(name, f"{path.name}, document {number}"):
            made = function(document["text"])
        if isinstance(made, str):
            tally.keep(document, changed := document | {"text": made})
            yield changed
        elif made is None:
            tally.leave_out(document, f"{name} gave None")
        else:
            raise BadOwnCode(
                f"{name}, {path.name}, document {number}: it gave {type(made).__name__}; it gives "
                "a string, or None to leave the document out"
            )
