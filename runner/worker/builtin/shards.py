"""The shards of a text: which files it has, in which order, what is called what is made of each,
and which of them one process goes through. All of this follows from the files alone, so that what
a step makes is the same for any number of workers."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from engine.data.lab_texts import BadText

SPLITS = ("train", "validation")
TOGETHER = 8 << 20  # bytes of shards for which a process is worth its start, of some 0.2 s


def files(folder: Path, split: str) -> list[Path]:
    """The shards of one split, in order. Raises BadText."""
    found = [path for path in sorted(folder.iterdir()) if path.name.split(".")[0] == split]
    if not found:
        names = ", ".join(path.name for path in sorted(folder.iterdir())) or "nothing"
        raise BadText(
            f"a text has a file {split}.jsonl (or .jsonl.gz, .jsonl.zst, .parquet), and the step "
            f"that made this one left {names}"
        )
    return found


def shards(folder: Path) -> dict[str, Path]:
    """{name of what is made of it: shard}, in order: `train` of an only shard, else `train.00000`
    and so on. Raises BadText."""
    named = {}
    for split in SPLITS:
        found = files(folder, split)
        for number, path in enumerate(found):
            named[f"{split}.{number:05d}" if len(found) > 1 else split] = path
    return named


def groups(shards: Mapping[str, Path]) -> Iterator[dict[str, Path]]:
    """The shards that one process goes through: as many in a row as reach TOGETHER bytes."""
    group: dict[str, Path] = {}
    size = 0
    for name, path in shards.items():
        group[name] = path
        size += path.stat().st_size
        if size >= TOGETHER:
            yield group
            group, size = {}, 0
    if group:
        yield group


def of_split(split: str, name: str) -> bool:
    """Whether what `shards` called `name` belongs to this split."""
    return name.partition(".")[0] == split


def link(source: str | Path, target: str | Path) -> None:
    """The same bytes without room of their own, where the file system can."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
