"""What a step is given of its experiment's folder: the files that count in its fingerprint, and no
others. A plan's own modules lie together in the store; a step that saw all of them could read what
other steps run, and come out differently without another fingerprint. Light."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from runner.planning.code_digest import BadCode
from runner.store.backends import remove_tree

FOLDER = "own"  # in a maker's scratch folder
MODE, TIME = 0o444, 0


@contextmanager
def laid(code: Mapping[str, str], of: Path, scratch: Path) -> Iterator[Path]:
    """A folder with copies of those files of the folder `of` that `code` {file: SHA-256} names, for
    the `with` body. Raises BadCode where one is another than was planned, and OSError."""
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
