"""Writes more than it may: one file beyond its limit, and then many files."""

import signal
from pathlib import Path


def step(config, inputs, out):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    block = b"x" * (1 << 20)
    try:
        with (out / "large.bin").open("wb") as file:
            for _ in range(64):
                file.write(block)
    except OSError:
        (out / "large.bin").unlink()
    for number in range(400):
        (Path.cwd() / f"{number}.bin").write_bytes(block)
        (out / f"{number}.bin").write_bytes(block)
