"""The text an experiment trains on: read, split into train and validation, and named by its
digests. Tokens are bytes, so a split's bytes are its tokens and its digest is over both. It needs
neither JAX nor TensorStore: a plan reads the text too, to say what it would train on."""

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path, PurePosixPath

VALIDATION_PART = 32  # a validation split is about one part in so many


class BadText(Exception):
    """The text cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Text:
    """A text in two splits. `source` is as declared: "stdlib" or a relative path."""

    source: str
    train: bytes
    validation: bytes

    @cached_property
    def train_sha256(self) -> str:
        return sha256(self.train).hexdigest()

    @cached_property
    def validation_sha256(self) -> str:
        return sha256(self.validation).hexdigest()

    def check_lengths(self, seq_len: int, num_targets: int) -> None:
        """Raise BadText unless windows of `seq_len` tokens fit into the train split and
        `num_targets` targets in such windows into the validation split."""
        for split, data, needed in (
            ("train", self.train, shortest_train(seq_len)),
            ("validation", self.validation, shortest_validation(seq_len, num_targets)),
        ):
            if len(data) < needed:
                raise BadText(
                    f"the {split} split of {self.source} has {len(data):,} tokens, and seq_len "
                    f"{seq_len} with {num_targets:,} tokens to evaluate needs {needed:,}; use a "
                    "longer text or lower seq_len or the evaluation's tokens"
                )


def shortest_train(seq_len: int) -> int:
    """Tokens that one window needs: each position's target is the token after it."""
    return seq_len + 1


def shortest_validation(seq_len: int, num_targets: int) -> int:
    """Tokens from which `num_targets` targets can be taken in windows that share no target."""
    return -(-num_targets // seq_len) * seq_len + 1


def read_text(source: str, folder: Path | None) -> Text:
    """Read "stdlib", or a UTF-8 file at the relative path `source` below `folder`.

    stdlib: this Python's `*.py` files, sorted by relative path and concatenated as they are; a
    file is validation if the SHA-256 of its path begins with hex 00 to 07 (one in 32).
    A file: validation is its last 1/32, begun at a line's start.

    Raises BadText.
    """
    if source == "stdlib":
        return _read_stdlib(Path(sysconfig.get_paths()["stdlib"]))
    return _split_file(source, _read_file(source, folder))


def _read_stdlib(root: Path) -> Text:
    train, validation = bytearray(), bytearray()
    for name, content in _stdlib_files(root):
        held_out = sha256(name.encode()).digest()[0] < 256 // VALIDATION_PART
        (validation if held_out else train).extend(content)
    if not train or not validation:
        raise BadText(
            f"this Python's standard library at {root} has no readable source files; install "
            "Python with its sources"
        )
    return Text("stdlib", bytes(train), bytes(validation))


def _stdlib_files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Relative path and content, sorted by path. Left out: what others installed, and
    `_sysconfigdata*`, which says how this Python was built and differs between machines."""
    paths = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    for name, path in sorted(paths.items()):
        foreign = {"site-packages", "__pycache__"} & set(path.relative_to(root).parts)
        if foreign or path.name.startswith("_sysconfigdata") or not path.is_file():
            continue
        content = path.read_bytes()
        if _is_utf8(content):
            yield name, content


def _read_file(source: str, folder: Path | None) -> bytes:
    relative = PurePosixPath(source)
    if relative.is_absolute() or ".." in relative.parts or "\0" in source or not relative.parts:
        raise BadText(
            f"data source {source!r} is neither stdlib nor a path below the experiment's folder; "
            "put the text there and name it by its relative path"
        )
    if folder is None:
        raise BadText(
            f"data source {source!r} is a file of an experiment's folder, and there is no folder "
            "here; use stdlib"
        )
    path = folder
    for part in relative.parts:
        path = path / part
        if path.is_symlink():
            raise BadText(f"data source {source!r} leads through a symbolic link; copy the text")
    if not path.is_file():
        raise BadText(
            f"data source {source!r} is not a file in the experiment's folder; add it, or write "
            "stdlib for Python's standard library"
        )
    content = path.read_bytes()
    if not _is_utf8(content):
        raise BadText(f"data source {source!r} is not UTF-8 text; save it as UTF-8")
    return content


def _split_file(source: str, content: bytes) -> Text:
    about = len(content) - len(content) // VALIDATION_PART
    cut = content.find(b"\n", max(about - 1, 0)) + 1
    train, validation = content[:cut], content[cut:]
    if not train or not validation:
        raise BadText(
            f"data source {source!r} has {len(content):,} bytes and no line begins in its last "
            f"1/{VALIDATION_PART}, so that nothing is left to validate on; use a longer text "
            "with line breaks"
        )
    return Text(source, train, validation)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
