"""The files of its experiment's folder that a step gets: exactly those that its fingerprint covers.
All own modules of a plan are in one folder of the store; a step that saw the others could read
them, and its output would depend on code that its fingerprint does not cover. Light."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from runner.planning.code_digest import BadCode
from runner.store.backends import remove_tree

FOLDER = "own"  # in the scratch folder of the process that runs the step
MODE, TIME = 0o444, 0


@contextmanager
def laid(code: Mapping[str, str], of: Path, scratch: Path) -> Iterator[Path]:
    """A folder with copies of the files of `of` that `code` {file: SHA-256} names, during the
    `with` body. Raises BadCode if a file has changed since it was planned, and OSError."""
    folder = scratch / FOLDER
    folder.mkdir()
    try:
        for name, sha256 in code.items():
            if name.startswith("lab:"):
                continue
            content = (of / name).read_bytes()
            if hashlib.sha256(content).hexdigest() != sha256:
                raise BadCode(f"`{name}` is no longer what was planned; plan again with it")
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
            (folder / name).chmod(MODE)
            os.utime(folder / name, (TIME, TIME))
        yield folder
    finally:
        with suppress(OSError):
            remove_tree(folder)
