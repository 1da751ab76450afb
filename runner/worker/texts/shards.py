"""The shards of a text: its files in order, the names of what is made from each, and which of them
one process handles. All of this depends on the files alone, so a step's output is the same for any
number of workers."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from engine.data.documents import grouped, split_files
from runner.lib import bounds, untrusted_files
from runner.schema.corpora import FILES_OF, MAX_LIST
from runner.store import digests

SPLITS = ("train", "validation")
TOGETHER = 8 << 20  # bytes of shards that are worth a process, whose start takes 0.2 s


def shards(folder: Path) -> dict[str, Path]:
    """{name of the output: shard}, in order: `train` for a single shard, otherwise `train.00000`
    and so on. Raises BadText."""
    named = {}
    for split in SPLITS:
        found = split_files(folder, split)
        for number, path in enumerate(found):
            named[f"{split}.{number:05d}" if len(found) > 1 else split] = path
    return named


def corpus_files(folder: Path) -> dict[str, Path]:
    """{path within the corpus: file}, in order, of a corpus that the store keeps in `folder`: those
    of its list, as a fetch that was killed may have left others. Raises Refused and ValueError."""
    said = untrusted_files.read(folder.resolve() / FILES_OF, MAX_LIST) or b"{}"
    files = bounds.parse(digests.FILES, said, MAX_LIST)
    return {path: folder / "files" / path for path in sorted(files)}


def groups(shards: Mapping[str, Path]) -> Iterator[dict[str, Path]]:
    """The shards for each process: consecutive ones, until they reach TOGETHER bytes."""
    return map(dict, grouped(shards.items(), lambda shard: shard[1].stat().st_size, TOGETHER))


def of_split(split: str, name: str) -> bool:
    """Whether this name from `shards` belongs to the split."""
    return name.partition(".")[0] == split


def link(source: str | Path, target: str | Path) -> None:
    """A hard link, or a copy where the file system has none."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
