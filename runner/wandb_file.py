"""What of an offline W&B run is believed: figures, settings and the run's own name.

`wandb sync` does what a `.wandb` file says with the key of whoever calls it: upload files of this
machine, for one. The file is a job's word, so the lab uploads a copy that holds nothing but records
of the kinds named here, of the run that it should be of. The file is a log in LevelDB's format
(github.com/google/leveldb, doc/log_format.md) with a header of its own; each record in it is a
protocol buffer, `Record` in wandb's `wandb_internal.proto`, whose numbers stand below.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

MAGIC = b":W&B\xe1\xbe\x00"  # name, a number, version 0
BLOCK = 32 << 10  # bytes; what begins a block is found again after damage, which we do not try
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4  # which part of a record a chunk is
CHUNK = struct.Struct("<IHB")  # CRC-32 of kind and body, length of the body, kind
MOST_RECORD = 1 << 20  # bytes

RUN = 17
KINDS = {2, 3, 5, 11, 12, RUN, 18, 20, 21, 22}
# history, summary, config, telemetry, metric, run, exit, final, header, footer
BESIDE = {1, 16, 19, 200}  # in every record: its number, control, uuid, _info
RUN_ID = 1
IN_RUN = {RUN_ID, 3, 4, 5, 6, 7, 8, 13, 17, 19, 20, 200}
# id, project, config, summary, group, job type, name, host, start, telemetry, runtime, _info


class NotBelieved(Exception):
    """The file is not what a worker writes; the message says where it is not."""


def copy(source: BinaryIO, target: BinaryIO, run_id: str, most_bytes: int) -> None:
    """Copy the records of a run's file that are believed, up to where it was cut short.

    Raises NotBelieved for another format, another run, and more than `most_bytes`.
    """
    writer, named = _Writer(target), False
    for record in _records(source, most_bytes):
        fields = list(_fields(record))
        kinds = {number for number, _ in fields} - BESIDE
        if not kinds or not kinds <= KINDS:
            continue
        for said in (value for number, value in fields if number == RUN):
            _check_run(said, run_id)
            named = True
        writer.add(record)
    if not named:
        raise NotBelieved("it does not say which run it is of")


def _check_run(said: bytes, run_id: str) -> None:
    fields = list(_fields(said))
    if other := {number for number, _ in fields} - IN_RUN:
        raise NotBelieved(f"its run has fields that the worker never writes ({sorted(other)})")
    if {value for number, value in fields if number == RUN_ID} != {run_id.encode()}:
        raise NotBelieved(f"it is of another run than {run_id}")


# ── The log ──────────────────────────────────────────────────────────────────────────────────


def _records(source: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    """The whole records of a log, up to where it was cut short."""
    if source.read(len(MAGIC)) != MAGIC:
        raise NotBelieved("it is no file of W&B, or of another version than 0")
    place, record = len(MAGIC), b""
    while True:
        if (rest := BLOCK - place % BLOCK) < CHUNK.size:
            place += rest
            source.read(rest)
        head = source.read(CHUNK.size)
        if len(head) < CHUNK.size:
            return
        if place > most_bytes:
            raise NotBelieved(f"it is larger than {most_bytes} bytes")
        checksum, length, kind = CHUNK.unpack(head)
        body = source.read(length)
        if len(body) < length:
            return
        if zlib.crc32(bytes([kind]) + body) != checksum:
            raise NotBelieved(f"byte {place}: a checksum is wrong")
        place += CHUNK.size + length
        record = body if kind in (WHOLE, FIRST) else record + body
        if len(record) > MOST_RECORD:
            raise NotBelieved(f"byte {place}: a record is larger than {MOST_RECORD} bytes")
        if kind in (WHOLE, LAST):
            yield record


class _Writer:
    """Writes a log."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._place = target.write(MAGIC)

    def add(self, record: bytes) -> None:
        begun = False
        while True:
            if (rest := BLOCK - self._place % BLOCK) < CHUNK.size:
                self._place += self._target.write(bytes(rest))
                rest = BLOCK
            body, record = record[: rest - CHUNK.size], record[rest - CHUNK.size :]
            kind = (MIDDLE if record else LAST) if begun else (FIRST if record else WHOLE)
            checksum = zlib.crc32(bytes([kind]) + body)
            self._place += self._target.write(CHUNK.pack(checksum, len(body), kind) + body)
            if not record:
                return
            begun = True


# ── Protocol buffers (protobuf.dev/programming-guides/encoding) ──────────────────────────────


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The number of each field of a message, and its bytes where they have a length."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        number, wire = tag >> 3, tag & 7
        value = b""
        if wire == 0:
            _, place = _varint(message, place)
        elif wire in (1, 5):
            place += 8 if wire == 1 else 4
        elif wire == 2:
            length, place = _varint(message, place)
            value, place = message[place : place + length], place + length
        else:
            raise NotBelieved("a record is no protocol buffer")
        if place > len(message):
            raise NotBelieved("a record is no protocol buffer")
        yield number, value


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise NotBelieved("a record is no protocol buffer")
