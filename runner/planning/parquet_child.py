"""Reads a Parquet file that a declaration names, in a child with bounded time and memory: a few
hundred bytes of a stranger's file can expand to more than a machine has."""

from pathlib import Path

from engine.data.lab_texts import BadText, Text, read_text
from runner.isolation import limited

LIMITS = limited.Limits(seconds=60.0, memory=2 << 30, answer=256 << 20)


def text(source: str, folder: Path) -> Text:
    """The text in a Parquet file of the experiment's folder. Raises BadText."""
    try:
        error, train, validation = limited.call(_read, source, folder.absolute(), limits=LIMITS)
    except limited.Refused as refused:
        words = f"{source} cannot be read: {refused}; write it as .jsonl, or make it smaller"
        raise BadText(words) from refused
    if error:
        raise BadText(error)
    return Text(source, train.encode(), validation.encode())


def _read(source: str, folder: Path) -> tuple[str, str, str]:
    """What is wrong, or nothing; the parts of the text, which is JSON lines."""
    try:
        found = read_text(source, folder)
    except BadText as error:
        return str(error)[:2000], "", ""
    return "", found.train.decode(), found.validation.decode()
