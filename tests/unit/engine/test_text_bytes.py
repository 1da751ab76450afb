"""Bits per byte: the bytes are those of the text, whatever the tokens are called."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.scored_windows import validation_windows
from engine.data.token_store import TokenStore, WrongTokens
from engine.data.tokenize import Tokenizer
from tests.cheats import tokenizers
from tests.cheats.tokenizers import FORGETS, HONEST, RUNS, TEXTS

SHAPES = {name: Tokenizer(definition()) for name, definition in HONEST.items()}


@pytest.mark.parametrize("name", HONEST)
def test_the_bytes_of_all_tokens_are_those_of_the_text(name: str, tmp_path: Path) -> None:
    tokenizer = SHAPES[name]
    store = TokenStore.build(tmp_path / "store", TEXTS, tokenizer)
    assert store.manifest.changed == ""
    count = store.manifest.tokens
    places_N = np.arange(count)
    bytes_N = store.text_bytes(store.read(places_N), places_N)
    assert bytes_N.sum() == store.manifest.bytes == sum(len(text.encode()) for text in TEXTS)
    tokens_NW, _, bytes_NS = validation_windows(store, 4, count - 1 - (count - 1) % 4)
    assert (bytes_NS == np.array([store.token_bytes[row] for row in tokens_NW[:, 1:]])).mean() > 0.8


@pytest.mark.parametrize("name", HONEST)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="▁")))
def test_the_pieces_of_a_texts_tokens_are_its_bytes_or_the_text_is_named(
    name: str, text: str
) -> None:
    tokenizer = SHAPES[name]
    ids = tokenizer.encode_batch([text])
    if text and tokenizer.prefix and text[0] == " ":
        assert tokenizer.first_changed([text.encode()], ids) in (None, 0), "a space more, or not"
        return
    assert tokenizer.first_changed([text.encode()], ids) is None
    assert tokenizer.text_of(ids[0]) == (tokenizer.prefix * bool(text) + text.encode())


@pytest.mark.parametrize("name", FORGETS)
def test_on_what_a_tokenizer_changes_no_bits_per_byte_are_computed(
    name: str, tmp_path: Path
) -> None:
    definition, where = FORGETS[name]
    store = TokenStore.build(tmp_path / "store", TEXTS, Tokenizer(definition()))
    assert np.isnan(store.manifest.bytes_per_token)
    with pytest.raises(WrongTokens, match=f"no bits per byte.*document [1-4] has .*{where}"):
        _ = store.token_bytes


def test_runs_of_spaces_count_as_spaces_whether_they_are_added_tokens_or_not(
    tmp_path: Path,
) -> None:
    listed, unlisted = (
        TokenStore.build(tmp_path / name, TEXTS, Tokenizer(tokenizers.sentencepiece(added=added)))
        for name, added in (("listed", RUNS), ("unlisted", ()))
    )
    ours, theirs = (validation_windows(store, 8, 32) for store in (listed, unlisted))
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert (ours.bytes_NS > 1).any()


def test_a_sign_that_stands_for_a_space_is_named_where_it_is_written(tmp_path: Path) -> None:
    store = TokenStore.build(tmp_path, ["a b", "ab ▁c"], Tokenizer(tokenizers.sentencepiece()))
    assert store.manifest.changed == ("document 2 has '▁c' at character 4, and its tokens say ' c'")


def test_a_space_that_the_tokenizer_may_have_put_there_is_named(tmp_path: Path) -> None:
    tokenizer = SHAPES["Metaspace"]
    assert tokenizer.prefix == b" "
    store = TokenStore.build(tmp_path, ["a b", " a b"], tokenizer)
    assert store.manifest.changed.startswith("document 2 has ' a b' at character 1")


@pytest.mark.parametrize("special", [False, True])
def test_the_token_that_ends_documents_is_no_text_however_long_its_name_is(
    tmp_path: Path, special: bool
) -> None:
    end = "_" * 1000
    fields = json.loads(tokenizers.byte_level([end]))
    fields["added_tokens"][0]["special"] = special
    number = fields["added_tokens"][0]["id"]
    store = TokenStore.build(tmp_path / "a", TEXTS, Tokenizer(json.dumps(fields), number))
    ids_N = store.read(slice(0, store.manifest.tokens))
    assert store.token_bytes[ids_N].sum() == store.manifest.bytes
    if not special:
        written = TokenStore.build(
            tmp_path / "b", [f"x{end}y"], Tokenizer(json.dumps(fields), number)
        )
        assert "document 1 has '____" in written.manifest.changed


def forged(folder: Path, **fields: Any) -> TokenStore:
    """The store with another manifest, as own code could write it."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return TokenStore.open(folder)


def test_a_store_whose_manifest_was_written_by_others_is_measured_by_its_tokens(
    tmp_path: Path,
) -> None:
    definition, _ = FORGETS["every character becomes a"]
    TokenStore.build(tmp_path / "a", TEXTS, Tokenizer(definition()))
    store = forged(tmp_path / "a", changed="")
    with pytest.raises(WrongTokens, match="what its tokens say is not the text of its manifest"):
        validation_windows(store, 4, 8)
    TokenStore.build(tmp_path / "b", TEXTS, SHAPES["byte-level"])
    assert "changed" not in (tmp_path / "b" / "manifest.json").read_text(), "as older stores are"
    assert TokenStore.open(tmp_path / "b").token_bytes.sum() > 0
    with pytest.raises(WrongTokens, match="what its tokens say"):
        _ = forged(tmp_path / "b", end_of_document=5).token_bytes


def test_of_many_documents_the_first_that_is_changed_is_named(tmp_path: Path) -> None:
    definition, _ = FORGETS["lower case"]
    texts = [*["low\n"] * 300_000, "low High\n", "Higher\n"]
    store = TokenStore.build(tmp_path, texts, Tokenizer(definition()))
    assert store.manifest.changed == (
        "document 300001 has 'High\\n' at character 5, and its tokens say 'high\\n'"
    )
