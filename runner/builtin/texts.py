"""Steps on texts: folders with `train.jsonl` and `validation.jsonl`, one {"text": …} a line."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.documents import documents
from engine.tokenize import BadText

SPLITS = ("train", "validation")


def write_text(out: Path, split: str, texts: Iterable[str]) -> int:
    """Write one split of a text, and return how many documents it has."""
    count = 0
    with (out / f"{split}.jsonl").open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            count += 1
    return count


def read_split(folder: Path, split: str) -> Iterator[str]:
    """The documents of one split, in order. Raises BadText."""
    found = [path for path in sorted(folder.iterdir()) if path.name.split(".")[0] == split]
    if not found:
        names = ", ".join(path.name for path in sorted(folder.iterdir())) or "nothing"
        raise BadText(
            f"a text has a file {split}.jsonl (or .jsonl.gz, .jsonl.zst, .parquet), and the step "
            f"that made this one left {names}"
        )
    return documents(*found)


def filter_documents(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """The documents that pass, in their order."""
    least, most = config["least_characters"] or 0, config["most_characters"] or float("inf")
    pattern = re.compile(config["matching"] or "")

    def passes(text: str) -> bool:
        return least <= len(text) <= most and pattern.search(text) is not None

    for split in SPLITS:
        if not write_text(out, split, filter(passes, read_split(inputs["text"], split))):
            raise BadText(f"no document of the {split} split passes; loosen the filter")
