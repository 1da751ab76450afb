"""Reads a Parquet file that a declaration names, in a child with bounded time and memory: a few
hundred bytes of a stranger's file can expand to more than a machine has."""

from pathlib import Path

from engine.data.lab_texts import BadText, Text, read_text
from runner.isolation import limited

LIMITS = limited.Limits(seconds=60.0, memory=2 << 30, answer=256 << 20)


def text(source: str, folder: Path) -> Text:
    """The text in a Parquet file of the experiment's folder. Raises BadText."""
    arguments = source, folder.absolute()
    try:
        train, validation = limited.call(_read, *arguments, limits=LIMITS, expected=BadText)
    except limited.Refused as refused:
        words = f"{source} cannot be read: {refused}; write it as .jsonl, or make it smaller"
        raise BadText(words) from refused
    return Text(source, train.encode(), validation.encode())


def _read(source: str, folder: Path) -> tuple[str, str]:
    """The parts of the text, which is JSON lines. Raises BadText."""
    found = read_text(source, folder)
    return found.train.decode(), found.validation.decode()
