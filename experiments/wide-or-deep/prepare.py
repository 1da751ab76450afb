"""Python's own library as documents: one file each, without the very short ones."""

import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

HELD_OUT = 10  # each tenth document is for validation


def documents(config: dict[str, int], inputs: dict[str, Path], out: Path) -> None:
    """Writes `train.jsonl` and `validation.jsonl`."""
    assert not inputs
    with (out / "train.jsonl").open("w") as train, (out / "validation.jsonl").open("w") as held_out:
        for number, text in enumerate(_files(config)):
            file = train if number % HELD_OUT else held_out
            file.write(json.dumps({"text": text}) + "\n")


def _files(config: dict[str, int]) -> Iterator[str]:
    root = Path(sysconfig.get_paths()["stdlib"])
    left = config["most_documents"]
    for path in sorted(root.glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="ignore")
        if path.name.startswith("_sysconfigdata"):  # how this Python was built
            continue
        if left and len(text) >= config["least_characters"]:
            left -= 1
            yield text
