"""The files when an execution started: an experiment's folder and the lab's own code, by digests,
and by Git's ids if they are in a Git checkout."""

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from runner.lib.paths import LAB, ROOMS
from runner.schema.record import Lab, Source

LOCK = "requirements.lock"
MAY_TAKE = 20.0  # seconds for Git to answer
LEFT_OUT = "__pycache__"


def source(folder: Path) -> Source:
    """The experiment in `folder` as it is now. Raises OSError for unreadable files."""
    tree = tree_of(folder)
    if commit := _git(folder, "rev-parse", "HEAD"):
        changed = _git(folder, "rev-parse", "HEAD:./") != tree
        return Source(tree=tree, commit=commit, changed=changed)
    return Source(tree=tree)


def lab(root: Path = LAB) -> Lab:
    """The lab's own code as it is now; `root` is the folder of its packages."""
    whole = hashlib.sha256()
    for path in sorted(path for room in ROOMS for path in (root / room).rglob("*.py")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(root).as_posix()}\0{digest}\n".encode())
    lock = root / LOCK
    inside = _git(root, "rev-parse", f"HEAD:./{ROOMS[0]}")  # and not only inside another checkout
    return Lab(
        code_sha256=whole.hexdigest(),
        lock_sha256=hashlib.sha256(lock.read_bytes()).hexdigest() if lock.is_file() else None,
        commit=_git(root, "rev-parse", "HEAD") if inside else "",
        changed=bool(inside and _git(root, "status", "--porcelain", "--", *ROOMS, LOCK)),
    )


def _git(folder: Path, *words: str) -> str:
    """Git's output in that folder; empty if it fails or there is no Git."""
    command = ["git", "--no-optional-locks", *words]
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    try:
        answer = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=MAY_TAKE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


# ── Git's trees ──────────────────────────────────────────────────────────────────────────────


def tree_of(folder: Path) -> str:
    """Git's tree id of a folder as it is on disk, 40 hexadecimal digits. Leaves out folders whose
    names begin with a dot, Python's caches and stores; includes files that Git ignores."""
    return tree_id(dict(_blobs(folder, "")))


def tree_id(files: Mapping[str, tuple[str, str]]) -> str:
    """Git's id of the tree with these files, {path: (mode, id of its blob)}: SHA-1 over its entries
    (git-scm.com, "Git Internals – Git Objects")."""
    entries: dict[str, tuple[str, str]] = {}
    below: dict[str, dict[str, tuple[str, str]]] = {}
    for path, blob in files.items():
        first, _, rest = path.partition("/")
        if rest:
            below.setdefault(first, {})[rest] = blob
        else:
            entries[first] = (blob[0].lstrip("0"), blob[1])
    entries |= {name: ("40000", tree_id(inner)) for name, inner in below.items()}

    def place(name: str) -> bytes:  # Git sorts a folder as if its name ended with a slash
        return os.fsencode(f"{name}/" if name in below else name)

    lines = (
        os.fsencode(f"{entries[name][0]} {name}\0") + bytes.fromhex(entries[name][1])
        for name in sorted(entries, key=place)
    )
    content = b"".join(lines)
    return hashlib.sha1(b"tree %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _blobs(folder: Path, under: str) -> Iterator[tuple[str, tuple[str, str]]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == ".git":  # in a submodule it is a file
                continue
            path, mode = Path(entry.path), entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                yield under + entry.name, ("120000", _blob(os.fsencode(path.readlink())))
            elif stat.S_ISREG(mode):
                kind = "100755" if mode & stat.S_IXUSR else "100644"
                yield under + entry.name, (kind, _blob_in(path))
            elif stat.S_ISDIR(mode) and not _left_out(path):
                yield from _blobs(path, f"{under}{entry.name}/")


def _left_out(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name == LEFT_OUT
    return hidden or (folder / "store.json").is_file()


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _blob_in(path: Path) -> str:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
