"""What users of other tools reported of tokenizers: the tokens of a text are the text's bytes, or
no bits per byte are computed and the place is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from engine.data.token_store import TokenStore, WrongTokens
from engine.data.tokenize import END, Tokenizer, train_bpe
from tests.cheats.tokenizers import CHARACTERS, RUNS, byte_level, sentencepiece, words, written


def learned(special: list[str], **flags: bool) -> str:
    """A byte-level BPE with these special tokens."""
    fields = json.loads(train_bpe(["say hello to the image\n"] * 9, 280, special).definition)
    for token in fields["added_tokens"]:
        token |= flags
    return json.dumps(fields)


def unigram(special: list[str], normalizer: Any = None) -> str:
    """As T5's and XLM-R's: control symbols are pieces of the model, too."""
    pieces = [("<unk>", 0.0), *((one, 0.0) for one in special)]
    pieces += [(f"<0x{byte:02X}>", -9.0) for byte in range(256)]
    pieces += [(one, -5.0) for one in sorted({*CHARACTERS, *"<>/", "hello"})]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, 0, byte_fallback=True))
    tokenizer.normalizer = normalizer or normalizers.Replace(" ", "▁")
    tokenizer.add_special_tokens(special)
    return written(tokenizer)


def promoted(token: str) -> str:
    """An ordinary piece of the vocabulary that is named a special token, as CLIP's "!"."""
    tokenizer = tokenizers.Tokenizer.from_str(byte_level())
    tokenizer.add_special_tokens([token])
    return written(tokenizer)


def word_level() -> str:
    vocab = {"[UNK]": 0, "[PAD]": 1, "artery": 2, "disease": 3}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]"])
    return written(tokenizer)


def metaspace(scheme: str, added: list[str]) -> str:
    splits = pre_tokenizers.Metaspace(split=False, prepend_scheme=scheme)
    return sentencepiece(normalizers.Sequence([]), added, splits=splits)


def chained(*parts: Any) -> str:
    return byte_level(normalizer=normalizers.Sequence(list(parts)))


class Case(NamedTuple):
    definition: Callable[[], str]
    text: str
    pieces: list[str] | str  # each token's text; or what the tokens make of the text, and where
    never: str = ""  # a token that the text must not become


SPELLED = list("</s>")
CASES = {
    # Added tokens, special or not
    "ggml-org/llama.cpp#8324 runs of spaces are added tokens": Case(
        lambda: sentencepiece(added=RUNS), "if x:\n    a", [*"if", " ", *"x:", "\n", "    ", "a"]
    ),
    "kekzl/imp#661 the same runs in the vocabulary only": Case(
        sentencepiece, "if x:\n    a", [*"if", " ", *"x:", "\n", "    ", "a"]
    ),
    "huggingface/transformers#28218 a space is added after an added token": Case(
        lambda: metaspace("always", ["abc"]), "abcmy", "'my' at character 4, and .* ' my'"
    ),
    "huggingface/tokenizers#1357 a space is added before the first part only": Case(
        lambda: metaspace("first", ["abc"]), "abc my", ["abc", " ", "m", "y"]
    ),
    # Names of special tokens in a text
    "google/sentencepiece#102 a control symbol of a unigram model": Case(
        lambda: unigram(["<s>", "</s>"]), "hello</s>", ["hello", *SPELLED], "</s>"
    ),
    "google/sentencepiece#667 each of them": Case(
        lambda: unigram(["<s>", "<pad>"]), "<s><pad>", [*"<s>", *"<pad>"], "<pad>"
    ),
    "PrimeIntellect-ai/renderers#116 a placeholder for an image": Case(
        lambda: learned(["<image>"]),
        "{type<image>|b}",
        [*"{type<", "im", "age", *">|b}"],
        "<image>",
    ),
    "paiml/aprender#2013 the end of a document in a document": Case(
        lambda: learned([]), f"a{END}b", ["a", *END, "b"], END
    ),
    "stanford-futuredata/ColBERT#18 a document has [PAD]": Case(
        word_level, "artery [PAD] disease", "has ' .PAD. disease' at character 7", "[PAD]"
    ),
    "huggingface/diffusers#4153 an ordinary character is the padding": Case(
        lambda: promoted("!"), "a! b!", ["a", "!", " ", "b", "!"]
    ),
    # Parts of characters
    "karpathy/nanochat#693 parts of a character are not U+FFFD": Case(
        byte_level, "é🐕", ["\udcc3", "\udca9", "\udcf0", "\udc9f", "\udc90", "\udc95"]
    ),
    "huggingface/tokenizers#1217 bytes of a unigram model": Case(
        lambda: unigram([]), "ñ", ["\udcc3", "\udcb1"]
    ),
    "zml/zml#37 the name of a byte in a text": Case(sentencepiece, "<0x40>", [*"<0x40>"]),
    # A text that cannot be got back
    "openai/parameter-golf#1604 lower case is an easier text": Case(
        lambda: chained(normalizers.Lowercase()), "The cat", "'The cat' at character 1"
    ),
    "google/sentencepiece#329 two dots above each other become two dots": Case(
        lambda: chained(normalizers.NFKC()), "a ︰", "'︰' at character 3, and its tokens say '..'"
    ),
    "huggingface/transformers#6680 accents and the dotless i": Case(
        lambda: chained(normalizers.NFD(), normalizers.StripAccents()), "ÖĞÜN", "character 1"
    ),
    "google/sentencepiece#442 Devanagari by words": Case(words, "बर'", "at character 1"),
    "google/sentencepiece#282 a space before the text is not the text's": Case(
        lambda: sentencepiece(
            normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        ),
        "a b",
        [" ", "a", " ", "b"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_tokens_of_a_text_are_its_bytes_or_the_place_is_named(
    name: str, tmp_path: Path
) -> None:
    definition, text, pieces, never = CASES[name]
    tokenizer = Tokenizer(definition())
    store = TokenStore.build(tmp_path / "store", [text], tokenizer)
    places_N = np.arange(store.manifest.tokens)
    ids_N = store.read(places_N)
    assert not never or tokenizer.id_of(never) not in ids_N
    if isinstance(pieces, str):
        with pytest.raises(WrongTokens, match=f"no bits per byte .*{pieces}"):
            store.text_bytes(ids_N, places_N)
        return
    said = [tokenizer.text_of(ids_N[n : n + 1]) for n in places_N]
    assert [one.decode(errors="surrogateescape") for one in said] == pieces
    assert store.text_bytes(ids_N, places_N).sum() == len(text.encode())
