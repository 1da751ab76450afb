"""Looks for what no digest of its step covers: whatever lies beside it, and where it lies."""

import json
import os
from pathlib import Path


def step(config, inputs, out):
    here = Path(__file__).parent
    seen = sorted(str(path.relative_to(here)) for path in here.rglob("*"))
    above = [name for name in os.listdir(here.parent) if name == "other.py"]
    (out / "reached.json").write_text(json.dumps([*seen, *above]))
    (out / "place.txt").write_text(str(here))
