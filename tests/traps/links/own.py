"""Lays links where the lab will look: in the output, for the log, the reason and the receipt."""

import os
import shutil
from pathlib import Path


def step(config, inputs, out):
    if config["where"] == "output":
        os.symlink(config["wanted"][0], out / "stolen.txt")
        os.symlink("/", out / "all")
        return
    scratch = Path.cwd()
    for name in ("log.txt", "why.txt", "receipt.json"):
        for place in (scratch, scratch.parent, scratch / "checkpoints"):
            try:
                (place / name).unlink(missing_ok=True)
                (place / name).symlink_to(config["wanted"][0])
            except OSError:
                pass
    for folder in (scratch / "checkpoints", scratch / "curve"):
        try:
            shutil.rmtree(folder)
        except OSError:
            pass
        try:
            folder.symlink_to("/")
        except OSError:
            pass
