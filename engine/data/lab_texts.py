"""The text of an experiment: reads it, splits it into train and validation, and computes its
digests (for larger texts see `engine.data.documents`). It needs neither JAX nor TensorStore,
because a plan reads the text, too."""

import json
import os
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path, PurePosixPath

VALIDATION_PART = 32  # the validation split is about one part of this many
# Texts that ship with the lab and never change, unlike a Python's library. Isolated code cannot see
# this folder.
SHIPPED = ("lab-2026-11",)
TEXTS = Path(__file__).parent / "texts"


class BadText(Exception):
    """The text cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Text:
    """A text in two splits. `source` is as declared: "stdlib", the name of a shipped text, or a
    relative path."""

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
        """Raise BadText unless the train split holds a window of `seq_len` tokens and the
        validation split holds `num_targets` targets in such windows."""
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
    """How many tokens one window needs: each target is the next token."""
    return seq_len + 1


def shortest_validation(seq_len: int, num_targets: int) -> int:
    """How many tokens are needed for `num_targets` targets in windows that share no target."""
    return -(-num_targets // seq_len) * seq_len + 1


def read_text(source: str, folder: Path | None) -> Text:
    """Read "stdlib", one of SHIPPED, or a UTF-8 file at the relative path `source` below `folder`.

    stdlib: this Python's `*.py` files, sorted by relative path and concatenated; a file is
    validation if the SHA-256 of its path begins with hex 00 to 07 (one in 32). lab-2026-11: the
    lab's own files of that month (its bot, tests and docs), split alike. A file: validation is its
    last 1/32, starting at the beginning of a line. A Parquet file is read as one line of JSON for
    each row.

    Raises BadText.
    """
    if source == "stdlib":
        return _read_stdlib(Path(sysconfig.get_paths()["stdlib"]))
    if source in SHIPPED:
        return _split_files(source, _shipped_files(source))
    return _split_file(source, read_file(source, folder))


def _read_stdlib(root: Path) -> Text:
    text = _split_files("stdlib", _stdlib_files(root))
    if not text.train or not text.validation:
        raise BadText(
            f"this Python's standard library at {root} has no readable source files; install "
            "Python with its sources"
        )
    return text


def _split_files(source: str, files: Iterable[tuple[str, bytes]]) -> Text:
    train, validation = bytearray(), bytearray()
    for name, content in files:
        held_out = sha256(name.encode()).digest()[0] < 256 // VALIDATION_PART
        (validation if held_out else train).extend(content)
    return Text(source, bytes(train), bytes(validation))


def _shipped_files(source: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of a shipped text, sorted by name."""
    import zstandard

    path = TEXTS / f"{source}.jsonl.zst"
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise BadText(
            f"{path}, which ships with the lab, cannot be read ({error}); install the lab again"
        ) from error
    for line in zstandard.ZstdDecompressor().decompress(packed).splitlines():
        file = json.loads(line)
        yield file["name"], file["text"].encode()


def _stdlib_files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Relative path and content, sorted by path. Leaves out installed packages and
    `_sysconfigdata*`, which describes how this Python was built and differs between machines."""
    paths: dict[str, Path] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in ("site-packages", "__pycache__")]
        here = Path(folder)
        paths |= {
            (here / name).relative_to(root).as_posix(): here / name
            for name in names
            if name.endswith(".py") and not name.startswith("_sysconfigdata")
        }
    for name, path in sorted(paths.items()):
        if path.is_file() and _is_utf8(content := path.read_bytes()):
            yield name, content


def read_file(source: str, folder: Path | None) -> bytes:
    """The content of a UTF-8 file of the experiment's folder. Raises BadText."""
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
    if path.suffix == ".parquet":
        from engine.data.documents import rows_as_lines  # it imports this module

        return rows_as_lines(path)
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
