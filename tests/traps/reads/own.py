"""Looks for all that is worth taking: keys, tokens, records, other runs, environments."""

import json
import os
import pwd
from pathlib import Path


def step(config, inputs, out):
    reached = [path for path in config["wanted"] if os.path.lexists(path)]
    reached += [f"{k}={v}" for k, v in os.environ.items() if config["canary"] in v]
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("environ", "cmdline"):
            try:
                found = (process / name).read_bytes()
            except OSError:
                continue
            if config["canary"].encode() in found or b"RAY_" in found:
                reached.append(str(process / name))
        for link in ("root", "cwd"):
            try:
                seen = os.listdir(f"{process}/{link}{config['wanted'][0].rpartition('/')[0]}")
            except OSError:
                continue
            reached += seen
    for folder, below, names in os.walk("/"):
        below[:] = [name for name in below if name not in ("proc", "usr", "dev", "lib")]
        reached += [f"{folder}/{name}" for name in names if name in config["names"]]
    try:
        reached.append(pwd.getpwuid(0).pw_dir)
    except KeyError:
        pass
    try:
        import bot

        reached += list(bot.__path__)
    except ImportError:
        pass
    (out / "reached.json").write_text(json.dumps(reached))
