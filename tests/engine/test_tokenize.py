from hashlib import sha256
from pathlib import Path

import pytest

from engine import tokenize
from engine.tokenize import BadText, Text, read_text


def test_the_standard_library_is_split_by_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = [f"m{i:02}.py" for i in range(60)]
    for name in modules:
        (tmp_path / name).write_text(f"{name}\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/z.py").write_text("nested\n")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages/other.py").write_text("installed by others\n")
    (tmp_path / "_sysconfigdata__linux.py").write_text("of this machine\n")
    (tmp_path / "latin.py").write_bytes(b"caf\xe9\n")
    (tmp_path / "notes.txt").write_text("no source\n")
    monkeypatch.setattr(tokenize.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})

    text = read_text("stdlib", None)

    held_out = [n for n in modules if sha256(n.encode()).hexdigest() < "08"]
    assert held_out, "60 names, one in 32: at least one is expected"
    assert text.validation.decode().split() == held_out
    assert text.train.decode().split() == ["nested", *(n for n in modules if n not in held_out)]


def test_the_digests_are_over_the_bytes() -> None:
    text = Text("x", b"abc", b"")
    assert text.train_sha256.startswith("ba7816bf")
    assert text.validation_sha256.startswith("e3b0c442")


def test_a_file_keeps_its_last_lines_for_validation(tmp_path: Path) -> None:
    lines = [f"line {i:03}\n" for i in range(320)]
    (tmp_path / "poem.txt").write_text("".join(lines))
    text = read_text("poem.txt", tmp_path)
    assert text.train + text.validation == "".join(lines).encode()
    assert text.validation == "".join(lines[-10:]).encode()  # exactly 1/32, on a line's start


def test_the_cut_moves_on_to_the_next_line(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("a" * 950 + "\n" + "b" * 30 + "\n" + "c" * 18)
    assert read_text("poem.txt", tmp_path).validation == b"c" * 18


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("/etc/passwd", "relative path"),
        ("../secret.txt", "relative path"),
        ("a/../../secret.txt", "relative path"),
        (".", "relative path"),
        ("nul\0.txt", "relative path"),
        ("link.txt", "symbolic link"),
        ("linked/inside.txt", "symbolic link"),
        ("missing.txt", "not a file"),
        ("folder", "not a file"),
        ("binary.bin", "not UTF-8"),
        ("short.txt", "no line begins in its last 1/32"),
        ("empty.txt", "0 bytes"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused(
    tmp_path: Path, source: str, sentence: str
) -> None:
    here = tmp_path / "experiment"
    (here / "folder").mkdir(parents=True)
    (here / "folder/inside.txt").write_text("line\n" * 100)
    (tmp_path / "secret.txt").write_text("line\n" * 100)
    (here / "link.txt").symlink_to(tmp_path / "secret.txt")
    (here / "linked").symlink_to(here / "folder")
    (here / "binary.bin").write_bytes(b"\xff\xfe" * 100)
    (here / "short.txt").write_text("one line and no other\n")
    (here / "empty.txt").write_text("")
    with pytest.raises(BadText, match=sentence):
        read_text(source, here)


def test_a_file_needs_a_folder() -> None:
    with pytest.raises(BadText, match="there is no folder here"):
        read_text("poem.txt", None)


def test_lengths_are_checked_to_the_token() -> None:
    text = Text("poem.txt", b"x" * 17, b"y" * 33)
    text.check_lengths(seq_len=16, num_targets=32)
    with pytest.raises(BadText, match=r"train split of poem\.txt has 17 tokens"):
        text.check_lengths(seq_len=17, num_targets=17)
    with pytest.raises(BadText, match=r"validation split of poem\.txt has 33 tokens.*needs 49"):
        text.check_lengths(seq_len=16, num_targets=33)
