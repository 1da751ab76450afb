import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from engine.data import lab_texts, tokenize
from engine.data.lab_texts import BadText, Text, read_text
from engine.data.tokenize import (
    END,
    BadTokenizer,
    Tokenizer,
    byte_tokenizer,
    load_tokenizer,
    train_bpe,
)

ROWING = ["row, row, row your boat\n", "gently down the stream, the stream\n"] * 20
BPE = train_bpe(ROWING, 280)
LOOKS_UP = Tokenizer(BPE.definition)
LOOKS_UP._words = tokenize._Words(LOOKS_UP._tokenizer)  # also where there are many cores
BYTES = byte_tokenizer()
texts = st.text(st.characters(codec="utf-8"))


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
    monkeypatch.setattr(lab_texts.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})

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


def test_the_split_starts_at_the_beginning_of_a_line(tmp_path: Path) -> None:
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


# ── Tokenizers ───────────────────────────────────────────────────────────────────────────────


@given(texts)
def test_a_byte_is_a_token_also_for_who_loads_the_saved_file(text: str) -> None:
    [ids] = BYTES.encode_batch([text])
    assert ids.tobytes() == text.encode()
    theirs = tokenizers.Tokenizer.from_str(BYTES.definition)
    assert theirs.encode(text).ids == ids.tolist()
    assert theirs.decode(ids.tolist()) == text
    assert (BYTES.vocab_size, BYTES.end_of_document) == (256, None)


@given(texts)
def test_the_bytes_of_a_bpes_tokens_add_up_to_the_text(text: str) -> None:
    [ids] = BPE.encode_batch([text])
    assert BPE.token_bytes[ids].sum() == len(text.encode())
    assert tokenizers.Tokenizer.from_str(BPE.definition).decode(ids.tolist()) == text


@given(st.text(st.characters(max_codepoint=127)), texts)
@example("row  row\n\n don't 're I'll''s 12row3 \t\x0b\x1c.", "ä row")
def test_words_that_are_looked_up_have_the_librarys_ids(ascii_only: str, other: str) -> None:
    library = tokenizers.Tokenizer.from_str(BPE.definition)
    library.encode_special_tokens = True
    found = LOOKS_UP.encode_batch([ascii_only, other, ascii_only])
    wanted = [library.encode(text, add_special_tokens=False).ids for text in (ascii_only, other)]
    assert [ids.tolist() for ids in found] == [*wanted, wanted[0]]


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                           "use_regex": False}},
    ],
)  # fmt: skip
def test_only_what_is_cut_as_gpt2_cuts_it_is_looked_up(
    change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenize, "_cores", lambda: 2)
    assert Tokenizer(BPE.definition)._words is not None
    assert Tokenizer(json.dumps(json.loads(BPE.definition) | change))._words is None


def test_no_more_words_are_remembered_than_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize, "MOST_WORDS", 3)
    monkeypatch.setattr(tokenize, "_cores", lambda: 2)
    tokenizer = Tokenizer(BPE.definition)
    text = "row your boat gently down the stream"
    assert np.array_equal(tokenizer.encode_batch([text])[0], BPE.encode_batch([text])[0])
    assert tokenizer._words is not None
    assert len(tokenizer._words) <= 3


def test_a_trained_bpe_merges_what_is_frequent_and_saves_what_it_is(tmp_path: Path) -> None:
    BPE.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json", END)
    assert (again.sha256, again.vocab_size, again.end_of_document) == (BPE.sha256, 280, 0)
    assert len(BPE.encode_batch([" stream"])[0]) == 1
    assert BPE.token_bytes[BPE.encode_batch([" stream"])[0]] == [7]
    assert len(BYTES.encode_batch([" stream"])[0]) == 7
    few = train_bpe(["ab"], 1000)
    assert few.vocab_size == 258  # END, the bytes, and the one pair there is
    with pytest.raises(BadTokenizer, match="vocab_size is 256; raise it to 257"):
        train_bpe(ROWING, 256)


def test_a_trained_bpe_has_the_special_tokens_that_only_chat_templates_write() -> None:
    chat = train_bpe(ROWING, 280, ["<|im_start|>", "<|im_end|>"])
    assert [chat.as_token(one) for one in (END, "<|im_start|>", "<|im_end|>")] == [0, 1, 2]
    assert chat.as_token("<|im_end|>\n") is None
    [ids] = chat.encode_batch(["row<|im_end|>"])
    assert 2 not in ids
    assert chat.encode_with_places("row<|im_end|>", [3])[0][-1] == 2
    assert BYTES.as_token("<|im_end|>") is None
    with pytest.raises(BadTokenizer, match=r"2 special ones and 1 that ends .* raise it to 259"):
        train_bpe(ROWING, 258, ["<a>", "<b>"])


def test_the_name_of_a_special_token_in_a_text_is_ordinary_text() -> None:
    [ids] = BPE.encode_batch([f"row{END}row"])
    assert BPE.end_of_document not in ids
    assert BPE.token_bytes[ids].sum() == len(f"row{END}row")
    assert BPE.token_bytes[BPE.end_of_document] == 0


def test_a_document_is_encoded_whatever_the_file_says_of_length_and_frame() -> None:
    framed = tokenizers.Tokenizer.from_str(BPE.definition)
    framed.enable_truncation(3)
    framed.enable_padding(length=50)
    framed.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{END} $A {END}", special_tokens=[(END, 0)]
    )
    assert framed.encode(ROWING[0]).ids[0] == 0
    for ids, plain in zip(
        Tokenizer(framed.to_str()).encode_batch(ROWING[:2]),
        BPE.encode_batch(ROWING[:2]),
        strict=True,
    ):
        np.testing.assert_array_equal(ids, plain)


def test_the_digest_is_over_what_the_definition_says_and_not_its_layout() -> None:
    fields = json.loads(BPE.definition)
    spread = Tokenizer(json.dumps(dict(reversed(fields.items())), indent=4))
    assert spread.sha256 == BPE.sha256
    fields["model"]["merges"].pop()
    assert Tokenizer(json.dumps(fields)).sha256 != BPE.sha256
    assert BYTES.sha256 == "7d3370162d595f7bc5ce5e0f32de4077bbb8a1b868a699608171f1a45fd09347"


def test_other_tokenizers_lengths_are_those_of_their_pieces() -> None:
    pieces = {
        "<unk>": 0,
        "▁": 1,
        "a": 2,
        "▁a": 3,
        "ä": 4,
        **{f"<0x{b:02X}>": 5 + b for b in range(256)},
    }
    sentencepiece = tokenizers.Tokenizer(
        tokenizers.models.BPE(pieces, [("▁", "a")], unk_token="<unk>", byte_fallback=True)
    )
    sentencepiece.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    sentencepiece.add_special_tokens(["<s>"])
    one = Tokenizer(sentencepiece.to_str())
    [ids] = one.encode_batch(["a ä\n"])
    assert one.token_bytes[ids].tolist() == [2, 1, 2, 1]  # the space before the text counts
    assert one.token_bytes[one.id_of("<s>")] == 0


def test_an_invalid_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for content in (b"{}", b"no JSON", b"\xff", b"[1]"):
        path.write_bytes(content)
        with pytest.raises(BadTokenizer, match=r"tokenizer\.json"):
            load_tokenizer(path)
    with pytest.raises(BadTokenizer, match="No such file"):
        load_tokenizer(tmp_path / "missing.json")
    BPE.save(path)
    with pytest.raises(BadTokenizer, match="has no token '</s>' to end documents with"):
        load_tokenizer(path, "</s>")
    with pytest.raises(BadTokenizer, match="end_of_document 280 is no id of a tokenizer with 280"):
        Tokenizer(BPE.definition, 280)
