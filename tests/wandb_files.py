"""Reads W&B's `.wandb` files by their format and wandb's own protocol buffers, for tests."""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2 as pb

BLOCK = 32_768


def read(path: Path) -> list[Any]:
    """The `Record`s of a file."""
    return [pb.Record.FromString(data) for data in _logged(path.read_bytes())]


def _logged(data: bytes) -> Iterator[bytes]:
    assert data[:7] == b":W&B\xe1\xbe\x00"
    place, whole = 7, b""
    while place < len(data):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        checksum, length, kind = struct.unpack_from("<IHB", data, place)
        body = data[place + 7 : place + 7 + length]
        assert zlib.crc32(bytes([kind]) + body) == checksum
        whole, place = whole + body, place + 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def write(path: Path, records: list[Any]) -> None:
    """Write a file of these records."""
    data = b":W&B\xe1\xbe\x00"
    for record in records:
        left, first = record.SerializeToString(), True
        while first or left:
            room = BLOCK - len(data) % BLOCK
            if room < 7:
                data += bytes(room)
                room = BLOCK
            body, left = left[: room - 7], left[room - 7 :]
            kind = bytes([(1 if first else 4) if not left else (2 if first else 3)])
            data += struct.pack("<IH", zlib.crc32(kind + body), len(body)) + kind + body
            first = False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def history(path: Path) -> dict[int, dict[str, Any]]:
    """What was logged at each step."""
    found = {}
    for record in read(path):
        if record.WhichOneof("record_type") == "history":
            items = {
                item.key or ".".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            step = items.pop("_step")
            assert step not in found
            found[step] = {key: value for key, value in items.items() if key[0] != "_"}
    return found


def run(path: Path) -> Any:
    """Its `RunRecord`."""
    [found] = [one.run for one in read(path) if one.WhichOneof("record_type") == "run"]
    return found


def config(path: Path) -> dict[str, Any]:
    """Its configuration."""
    return {item.key: json.loads(item.value_json) for item in run(path).config.update}
