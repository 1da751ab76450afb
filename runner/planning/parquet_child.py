"""Reads a Parquet file that a declaration names, in a process with bounded time and memory: a few
hundred bytes of a stranger's file can expand to more than a machine has."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import IO

from engine.data.lab_texts import BadText, Text, read_text
from runner.lib.paths import LAB

SECONDS = 60  # of a processor
MEMORY = 2 << 30  # bytes of address space
MAX_BYTES = 256 << 20  # of the file as JSON lines
ENVIRONMENT = {"LANG": "C.UTF-8", "PYTHONPATH": str(LAB), "OMP_NUM_THREADS": "1"}  # no secrets


def text(source: str, folder: Path) -> Text:
    """The text in a Parquet file of the experiment's folder. Raises BadText."""
    command = [sys.executable, "-m", __name__, source, str(folder.absolute())]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as child:
        assert child.stdout
        head = child.stdout.readline(1 << 16)
        content = _read(child.stdout, MAX_BYTES + 1)
        child.kill()
    if not head.endswith(b"\n") or len(content) > MAX_BYTES:
        raise BadText(
            f"{source} takes more than {SECONDS} seconds, {MEMORY >> 20:,} MB of memory or "
            f"{MAX_BYTES >> 20} MB as JSON lines; write it as .jsonl, or make it smaller"
        )
    told = json.loads(head)
    if "error" in told:
        raise BadText(str(told["error"]))
    return Text(source, content[: told["train"]], content[told["train"] :])


def _read(file: IO[bytes], most: int) -> bytes:
    """At most so many bytes, without room for all of them at once."""
    content = bytearray()
    while len(content) < most and (block := file.read(min(1 << 20, most - len(content)))):
        content += block
    return bytes(content)


def main(source: str, folder: str) -> None:
    """Print how many bytes are for training, and all of the text."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    told: dict[str, object]
    try:
        found = read_text(source, Path(folder))
        told, parts = {"train": len(found.train)}, (found.train, found.validation)
    except BadText as error:
        told, parts = {"error": str(error)[:2000]}, (b"", b"")
    except MemoryError:
        return  # the parent says so
    sys.stdout.buffer.write(json.dumps(told).encode() + b"\n")
    sys.stdout.buffer.writelines(parts)


if __name__ == "__main__":
    main(*sys.argv[1:])
