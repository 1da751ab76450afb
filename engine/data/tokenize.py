"""Tokenizers: text to ids, by definitions of Hugging Face's `tokenizers`. That library is imported
only if there is a definition; JAX and TensorStore never are."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

END = "<|endoftext|>"  # ends each document, for a BPE trained here
FEW_CORES = 4  # with more cores, the library (which uses all) is faster than the cache of words
MOST_WORDS = 2**20  # that a tokenizer remembers
# GPT-2's words (Radford et al., 2019). For ASCII its Unicode classes are equal to these.
WORD = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII
)


class BadTokenizer(Exception):
    """A tokenizer cannot be used; the message says why and what to do."""


class _Words(dict[str, bytes]):
    """A cache from word to its ids, uint32. Most words of a text repeat, and a look-up takes a
    quarter of the library's time."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> bytes:
        if len(self) >= MOST_WORDS:
            self.clear()
        encoding = self._tokenizer.encode(word, add_special_tokens=False)
        self[word] = found = np.array(encoding.ids, np.uint32).tobytes()
        return found

    def ids(self, text: str) -> np.ndarray:
        """The ids of a text in ASCII."""
        return np.frombuffer(b"".join(map(self.__getitem__, WORD.findall(text))), np.uint32)


class Tokenizer:
    """Text → ids, by the definition in a `tokenizer.json` of Hugging Face's `tokenizers`.

    Documents are encoded unchanged: truncation, padding and added prefixes of the definition are
    off, and the name of a special token in a text is ordinary text. `end_of_document` is the id
    that a store puts after each document, or None. `sha256` is the digest of the definition as
    canonical JSON, so it does not depend on the file's layout or the library's version.
    """

    def __init__(self, definition: str, end_of_document: int | None = None) -> None:
        import tokenizers

        try:
            self._fields = json.loads(definition)
            self._tokenizer = tokenizers.Tokenizer.from_str(definition)
        except Exception as error:  # the library raises Exception itself
            raise BadTokenizer(
                f"this is no tokenizer.json that can be read: {str(error)[:200]}; save it with "
                "Hugging Face's tokenizers"
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self.definition = _canonical(self._fields)
        self.sha256 = sha256(self.definition.encode()).hexdigest()
        self._ids = self._tokenizer.get_vocab(with_added_tokens=True)
        if not self._ids:
            raise BadTokenizer("this tokenizer.json has no tokens; save it after it was trained")
        self.vocab_size = max(self._ids.values()) + 1
        if end_of_document is not None and not 0 <= end_of_document < self.vocab_size:
            raise BadTokenizer(
                f"end_of_document {end_of_document} is no id of a tokenizer with "
                f"{self.vocab_size}; name one of its tokens"
            )
        self.end_of_document = end_of_document
        self._is_bytes = self.definition == _bytes_definition()

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, uint8 for bytes and else uint32. The ids of all texts are in memory
        at once; during the call, the library takes about 100 bytes for each byte of text."""
        if self._is_bytes:
            return [np.frombuffer(text.encode(), np.uint8) for text in texts]
        words = self._words
        others = [text for text in texts if words is None or not text.isascii()]
        encodings = iter(self._tokenizer.encode_batch_fast(others, add_special_tokens=False))
        return [
            np.array(next(encodings).ids, np.uint32)
            if words is None or not text.isascii()
            else words.ids(text)
            for text in texts
        ]

    def encode_with_places(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """The ids of a text (N,), and the first and end character of each token (N, 2). Here, the
        name of a special token is that token, because chat templates write these names."""
        found = self._with_special_tokens.encode(text, add_special_tokens=False)
        places = np.array(found.offsets, np.int64).reshape(-1, 2)
        return np.array(found.ids, np.uint32), places

    def as_token(self, text: str) -> int | None:
        """The id of the token that is this whole text in a chat template; None if it is several."""
        ids, _ = self.encode_with_places(text)
        return int(ids[0]) if len(ids) == 1 else None

    @cached_property
    def _with_special_tokens(self) -> Any:
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_str(self.definition)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids. Bytes that are no UTF-8 become U+FFFD, unknown ids nothing."""
        if self._is_bytes:
            return bytes(one for one in ids if one < self.vocab_size).decode(errors="replace")
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def id_of(self, token: str) -> int | None:
        return self._ids.get(token)

    @cached_property
    def _words(self) -> "_Words | None":
        """The cache of words, or None. It needs a definition that splits texts as GPT-2 does and
        encodes each word alone, and is used only where the library has too few cores to be
        faster."""
        fields = self._fields.get("pre_tokenizer") or {}
        gpt2 = fields.get("type") == "ByteLevel" and fields.get("use_regex", True)
        alone = gpt2 and not fields.get("add_prefix_space") and not self._fields.get("normalizer")
        added = self._tokenizer.get_added_tokens_decoder().values()
        if not alone or not all(token.special for token in added) or _cores() > FEW_CORES:
            return None
        return _Words(self._tokenizer)

    @cached_property
    def token_bytes(self) -> np.ndarray:
        """(V,) int32: how many bytes of text each token represents, to convert a loss to bits per
        byte. Special tokens represent none.

        Exact if `counts_every_byte`. Other tokenizers hold pieces of normalized text ("▁" is a
        space, <0x0A> a byte); for these it is the pieces' length in UTF-8, so an added leading
        space counts, and changes by normalization count as changed.

        Raises BadTokenizer if pieces do not show which spaces were between them (WordPiece).
        """
        kind = type(self._tokenizer.model).__name__  # older files do not name it
        if kind in ("WordPiece", "WordLevel"):
            raise BadTokenizer(
                f"a {kind} tokenizer drops spaces, so that its tokens "
                "have no length in bytes; use a byte-level one for bits per byte"
            )
        lengths = np.zeros(self.vocab_size, np.int32)
        added = self._tokenizer.get_added_tokens_decoder()
        for token, number in self._ids.items():
            if number in added:
                lengths[number] = 0 if added[number].special else len(token.encode())
            elif self._is_byte_level:
                lengths[number] = len(token)  # a character of GPT-2's alphabet is a byte
            elif len(token) == 6 and token.startswith("<0x"):
                lengths[number] = 1
            else:
                lengths[number] = len(token.replace("▁", " ").encode())
        return lengths

    @property
    def counts_every_byte(self) -> bool:
        """Whether the token_bytes of any text's tokens sum to the text's bytes."""
        prefixed = any(part.get("add_prefix_space") for part in self._parts)
        return self._is_byte_level and not prefixed and self._fields.get("normalizer") is None

    @property
    def _is_byte_level(self) -> bool:
        return any(part["type"] == "ByteLevel" for part in self._parts)

    @property
    def _parts(self) -> list[dict[str, Any]]:
        first = self._fields.get("pre_tokenizer") or {"type": "none"}
        return first["pretokenizers"] if first["type"] == "Sequence" else [first]

    def save(self, path: Path) -> None:
        """Write the definition as a `tokenizer.json` that other tools can load."""
        path.write_text(self.definition, encoding="utf-8")


def byte_tokenizer() -> Tokenizer:
    """Each token is a byte of UTF-8, and its id is the byte. No token ends a document."""
    return Tokenizer(_bytes_definition())


def train_bpe(texts: Iterable[str], vocab_size: int, special: Sequence[str] = ()) -> Tokenizer:
    """Train a byte-level BPE (Sennrich et al., 2016; Radford et al., 2019) of at most `vocab_size`
    tokens, fewer if the texts have no more pairs to merge. Id 0 is END, and the next ones are
    `special`: tokens that only chat templates write. The same texts in the same order give the same
    tokenizer."""
    import tokenizers

    if vocab_size < (least := 257 + len(special)):
        own = f", {len(special)} special ones" if special else ""
        raise BadTokenizer(
            f"a byte-level BPE needs 256 tokens for bytes{own} and 1 that ends a document, and "
            f"vocab_size is {vocab_size}; raise it to {least} or more, or use the byte tokenizer"
        )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END, *special],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return Tokenizer(tokenizer.to_str(), end_of_document=0)


def load_tokenizer(path: Path, end_of_document: str | None = None) -> Tokenizer:
    """Load any `tokenizer.json`. `end_of_document` is the token that a store puts after each
    document, such as "</s>". Raises BadTokenizer."""
    try:
        tokenizer = Tokenizer(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, BadTokenizer) as error:
        raise BadTokenizer(f"{path}: {error}") from error
    if end_of_document is None:
        return tokenizer
    number = tokenizer.id_of(end_of_document)
    if number is None:
        raise BadTokenizer(
            f"{path} has no token {end_of_document!r} to end documents with; name one that it has"
        )
    return Tokenizer(tokenizer.definition, number)


def _cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _bytes_definition() -> str:
    """GPT-2's byte-level alphabet without merges, in which the id of each byte's character is the
    byte. Printable Latin-1 characters represent themselves; the other bytes, in order, are
    represented by the characters from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    character = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    model = {
        "type": "BPE",
        "vocab": {character[byte]: byte for byte in range(256)},
        "merges": [],
    }
    return _canonical(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {**level, "use_regex": False},
            "post_processor": None,
            "decoder": {**level, "use_regex": True},
            "model": model,
        }
    )


def _canonical(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
