"""Writes where no look at its folders shows it, or what does harm to who reads or copies it."""

import json
import os
import time
from pathlib import Path

BLOCK = b"x" * (1 << 20)


def step(config, inputs, out):
    reached = globals()[config["how"]](out)
    (out / "reached.json").write_text(json.dumps(reached or []))


def stdin(out):
    """What it was given lies in a file somewhere."""
    reached = []
    for name in (0, "/proc/self/fd/0"):
        try:
            descriptor = name if name == 0 else os.open(name, os.O_RDWR)
            os.pwrite(descriptor, BLOCK, 0)
            reached.append(f"{name} of {os.fstat(0).st_size} bytes")
        except OSError:
            pass
    return reached


def unlinked(out):
    held = []
    for number in range(8):
        held.append((out / f"{number}.bin").open("wb"))
        (out / f"{number}.bin").unlink()
        held[-1].write(BLOCK * 12)
        held[-1].flush()
    time.sleep(20)


def deep(out):
    """Beyond the longest name that the kernel takes."""
    for _ in range(20):
        os.mkdir("d" * 250)
        os.chdir("d" * 250)
    Path("x.bin").write_bytes(BLOCK)


def sparse(out):
    for number in range(8):
        with (out / f"{number}.bin").open("wb") as file:
            os.truncate(file.fileno(), 12 << 20)


def setuid(out):
    place = Path.cwd() / "checkpoints" / "sh"
    place.write_bytes(b"#!/bin/sh\n")
    place.chmod(0o6755)
