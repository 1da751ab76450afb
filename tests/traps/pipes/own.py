"""Lays pipes where the lab will look, so that who opens them waits for ever; then it fails."""

import os
from pathlib import Path


def step(config, inputs, out):
    for name in ("why.txt", "receipt.json", "log.txt"):
        (Path.cwd() / name).unlink(missing_ok=True)
        os.mkfifo(Path.cwd() / name)
    os.mkfifo(out / "pipe.txt")
    os._exit(config["code"])
