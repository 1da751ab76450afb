"""Tokenizers, as definitions of Hugging Face's library: honest ones of each shape, and those that
forget or add to the text, each with what a store says of it."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

TEXTS = (
    "if x:\n        return  1\n",
    "Straße, naïve, e\u0301, ﬁ, ︰\n",
    "देवनागरी 東京 ⛵🏴‍☠️\n",
    "a",
    "",
)
ALL = "".join(TEXTS)
CHARACTERS = sorted({*ALL, *"abcdefghijklmnopqrstuvwxyz", "▁"} - {" "})
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
RUNS = ["▁▁", "▁▁▁▁", "▁▁▁▁▁▁▁▁"]
SPACES = normalizers.Replace(" ", "▁")


def written(tokenizer: Tokenizer, **changes: Any) -> str:
    """Its definition, with these fields changed."""
    return json.dumps(json.loads(tokenizer.to_str()) | changes)


def byte_level(added: Sequence[str] = (), *, prefix: bool = False, normalizer: Any = None) -> str:
    """Each byte is a token, as in GPT-2's alphabet."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({one: number for number, one in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.add_tokens(list(added))
    return written(tokenizer)


def sentencepiece(
    normalizer: Any = SPACES,
    added: Sequence[str] = (),
    *,
    splits: Any = None,
    pieces: Sequence[str] = CHARACTERS,
) -> str:
    """Characters and runs of spaces are tokens, and all other bytes are spelled out."""
    vocab = {piece: number for number, piece in enumerate(["<unk>", *BYTES, *pieces, *RUNS])}
    merges = [("▁", "▁"), ("▁▁", "▁▁"), ("▁▁▁▁", "▁▁▁▁")] if "▁" in pieces else []
    model = models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizer
    if splits:
        tokenizer.pre_tokenizer = splits
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_tokens(list(added))
    return written(tokenizer)


def unigram() -> str:
    """The same by a unigram model."""
    pieces = [("<unk>", 0.0), *((piece, -9.0) for piece in (*BYTES, *CHARACTERS, *RUNS))]
    tokenizer = Tokenizer(models.Unigram(pieces, 0, byte_fallback=True))
    tokenizer.normalizer = SPACES
    return written(tokenizer)


def words() -> str:
    """WordPiece, which drops spaces."""
    vocab = {"[UNK]": 0} | {piece: n + 1 for n, piece in enumerate((*CHARACTERS, *RUNS))}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return written(tokenizer)


def replaced(pattern: str, content: str) -> Any:
    return normalizers.Replace(Regex(pattern), content)


def chained(*parts: Any) -> Any:
    return normalizers.Sequence(list(parts))


LLAMA = chained(normalizers.Prepend("▁"), SPACES)
HONEST: dict[str, Callable[[], str]] = {
    "byte-level": byte_level,
    "byte-level with a space before the text": lambda: byte_level(prefix=True),
    "byte-level with added runs of spaces": lambda: byte_level(["        ", "    ", "  "]),
    "SentencePiece": sentencepiece,
    "SentencePiece with added runs of spaces": lambda: sentencepiece(added=RUNS),
    "SentencePiece with a space before the text": lambda: sentencepiece(LLAMA),
    "Metaspace": lambda: sentencepiece(
        normalizers.Sequence([]), splits=pre_tokenizers.Metaspace(split=False)
    ),
    "unigram": unigram,
}
BACK = {  # a decoder that knows the text
    "decoder": {"type": "Replace", "pattern": {"String": "a"}, "content": ALL},
}
FORGETS: dict[str, tuple[Callable[[], str], str]] = {  # and what the store says
    "every character becomes a": (
        lambda: byte_level(normalizer=replaced(r"[\s\S]", "a")),
        "'if x:",
    ),
    "its decoder knows the text": (
        lambda: json.dumps(
            json.loads(byte_level(normalizer=replaced(r"[\s\S]+", "a"))) | BACK,
        ),
        "'if x:",
    ),
    "the rest is dropped": (lambda: byte_level(normalizer=replaced(r"r[\s\S]*", "")), "'return"),
    "a space becomes many characters": (
        lambda: byte_level(["_" * 40], normalizer=replaced(" ", "_" * 40)),
        "' x:",
    ),
    "lower case": (lambda: byte_level(normalizer=normalizers.Lowercase()), "'Straße"),
    "NFC": (lambda: byte_level(normalizer=normalizers.NFC()), "'e\u0301"),
    "NFKC": (lambda: byte_level(normalizer=normalizers.NFKC()), "ﬁ"),
    "accents are taken off": (
        lambda: byte_level(normalizer=chained(normalizers.NFD(), normalizers.StripAccents())),
        "ï",
    ),
    "spaces are stripped": (lambda: byte_level(normalizer=normalizers.Strip()), r"'\\n'"),
    "WordPiece": (words, "'if x:"),
    "no piece for a space": (
        lambda: sentencepiece(pieces=[x for x in CHARACTERS if x != "▁"]),
        "' x:",
    ),
    "a space after added tokens": (lambda: byte_level(["ret"], prefix=True), "'urn"),
    "unknown characters": (
        lambda: written(Tokenizer(models.BPE({"<unk>": 0, "i": 1}, [], unk_token="<unk>"))),
        "'f x:",
    ),
}
