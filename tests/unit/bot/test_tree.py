"""The files of a stranger's commit: each is what its tree says it is, or is refused in words."""

import hashlib
from pathlib import Path
from typing import Any, cast

import pytest

from bot.github import Entry, GitHub, commit_tree
from bot.github.branches import blob_id
from bot.github.commit_tree import Tree, Unfit

FOLDER = "experiments/warm"


class Answers:
    """What GitHub says of one commit."""

    def __init__(self, entries: list[Entry], blobs: dict[str, bytes]) -> None:
        self.entries, self.blobs, self.asked = entries, blobs, list[str]()

    def tree(self, commit: str, folder: str) -> list[Entry]:
        assert commit == "c" * 40
        return [entry for entry in self.entries if entry.path.startswith(f"{folder}/")]

    def blob(self, sha: str) -> bytes:
        self.asked.append(sha)
        return self.blobs[sha]


def sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def a_tree(*files: tuple[str, str, bytes], says: bytes | None = None) -> tuple[Tree, Answers]:
    """A commit's folder with these (name, mode, content); GitHub sends `says` in their place."""
    entries = [
        Entry(f"{FOLDER}/{name}", mode, sha1(content), len(content))
        for name, mode, content in files
    ]
    blobs = {sha1(content): content if says is None else says for _, _, content in files}
    answers = Answers([*entries, Entry("README.md", "120000", "0" * 40, 1)], blobs)
    return Tree(cast(GitHub, answers), "c" * 40, FOLDER), answers


def test_only_the_experiments_folder_is_seen_and_only_what_is_read_is_fetched(
    tmp_path: Path,
) -> None:
    found, answers = a_tree(("a.py", "100644", b"a"), ("b/c.py", "100755", b"c"))
    assert list(found) == ["a.py", "b/c.py"]
    found.check()
    found.lay(tmp_path, ["b/c.py"])
    assert answers.asked == [sha1(b"c")]
    assert (tmp_path / "b/c.py").read_bytes() == b"c"
    assert [path.name for path in tmp_path.rglob("*.py")] == ["c.py"]


def test_other_bytes_than_the_commit_names_are_refused() -> None:
    found, _ = a_tree(("a.py", "100644", b"good"), says=b"evil")
    with pytest.raises(Unfit, match=r"a\.py came with other bytes than its commit names"):
        found.fetch("a.py")


def test_a_repository_of_sha256_is_compared_likewise() -> None:
    whole = hashlib.sha256(b"blob 1\0x").hexdigest()
    assert blob_id(b"x", whole) == whole
    assert blob_id(b"x", "0" * 40) == sha1(b"x")


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("120000", "is a link; add the file itself"),
        ("160000", "is a submodule; add its files themselves"),
        ("100664", "is of the odd mode 100664; write 100644"),
        ("000000", "is of the odd mode 000000; write 100644"),
    ],
)
def test_a_non_regular_file_is_refused_unread(mode: str, words: str) -> None:
    found, answers = a_tree(("a.py", "100644", b"a"), ("data.bin", mode, b"x"))
    for look in (found.check, lambda: found.fetch("data.bin")):
        with pytest.raises(Unfit, match=f"^{FOLDER}/data.bin {words}"):
            look()
    assert not answers.asked


def test_a_pointer_to_lfs_is_refused() -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"
    found, _ = a_tree(("text.txt", "100644", pointer))
    with pytest.raises(Unfit, match="is a pointer to Git LFS; add the file itself"):
        found.fetch("text.txt")


@pytest.mark.parametrize(
    "name",
    ["../out.txt", "a/../../out.txt", "/out.txt", "a//b", ".", "a\nb", "a\x1b[2J", "b/.git/config"],
)
def test_a_name_that_leads_anywhere_else_is_refused(tmp_path: Path, name: str) -> None:
    found, answers = a_tree((name, "100644", b"x"))
    looks: list[Any] = [found.check, lambda: found.lay(tmp_path / "in", [name])]
    for look in looks:
        with pytest.raises(Unfit, match="no file can have this name"):
            look()
    assert not answers.asked
    assert not list(tmp_path.rglob("*"))


def test_files_and_bytes_are_counted_while_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [(f"{n}.py", "100644", b"%d" % n) for n in range(4)]
    found, answers = a_tree(*files)
    monkeypatch.setattr(commit_tree, "MAX_FILES", 3)
    with pytest.raises(Unfit, match="more than 3 files of experiments/warm would be read"):
        [found.fetch(name) for name in found]
    assert len(answers.asked) == 3
    monkeypatch.setattr(commit_tree, "MAX_ENTRIES", 3)
    with pytest.raises(Unfit, match="has 4 files"):
        found.check()
    large, _ = a_tree(("a.py", "100644", b"12345"))
    monkeypatch.setattr(commit_tree, "MAX_BYTES", 4)
    with pytest.raises(Unfit, match="larger than 4 bytes"):
        large.fetch("a.py")
