"""Tokenizers: text to ids, by definitions of Hugging Face's `tokenizers`. That library is imported
only if there is a definition; JAX and TensorStore never are."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from engine.data import special_names

END = "<|endoftext|>"  # ends each document, for a BPE trained here
FEW_CORES = 4  # with more cores, the library (which uses all) is faster than the cache of words
MOST_WORDS = 2**20  # that a tokenizer remembers
# GPT-2's words (Radford et al., 2019). For ASCII its Unicode classes are equal to these.
WORD = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII
)

MARK = special_names.BREAK  # before the name of a special token that a chat template writes
BYTE = re.compile("<0x([0-9A-F]{2})>")  # a token of SentencePiece's fallback


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
        try:
            self._fields = json.loads(definition)
            self._tokenizer = _read(definition)
        except Exception as error:  # the library raises Exception itself
            raise BadTokenizer(
                f"this is no tokenizer.json that can be read: {str(error)[:200]}; save it with "
                "Hugging Face's tokenizers"
            ) from error
        self.definition = _canonical(self._fields)
        self.sha256 = sha256(self.definition.encode()).hexdigest()
        self._ids = self._tokenizer.get_vocab(with_added_tokens=True)
        self._added = self._tokenizer.get_added_tokens_decoder()
        if not self._ids:
            raise BadTokenizer("this tokenizer.json has no tokens; save it after it was trained")
        self.vocab_size = max(self._ids.values()) + 1
        if end_of_document is not None and not 0 <= end_of_document < self.vocab_size:
            raise BadTokenizer(
                f"end_of_document {end_of_document} is no id of a tokenizer with "
                f"{self.vocab_size}; name one of its tokens"
            )
        self.end_of_document = end_of_document
        named = _unnamed(self._fields, self.special)
        self._encoder = self._tokenizer if named is self._fields else _read(json.dumps(named))
        self._encoder.encode_special_tokens = True
        self.is_bytes = self.definition == _bytes_definition()

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, uint8 for bytes and else uint32. The ids of all texts are in memory
        at once; during the call, the library takes about 100 bytes for each byte of text."""
        if self.is_bytes:
            return [np.frombuffer(text.encode(), np.uint8) for text in texts]
        words = self._words
        others = [text for text in texts if words is None or not text.isascii()]
        encodings = iter(self._encoder.encode_batch_fast(others, add_special_tokens=False))
        return [
            np.array(next(encodings).ids, np.uint32)
            if words is None or not text.isascii()
            else words.ids(text)
            for text in texts
        ]

    def encode_with_places(
        self, text: str, special: Sequence[int] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ids of a text (N,), and the first and end character of each token (N, 2), spaces
        included. At the characters `special`, the name of a special token is that token, because a
        chat template wrote it there; elsewhere it is ordinary text."""
        tokenizer, ids_V = self._with_special_tokens
        marked = MARK.join(text[a:b] for a, b in pairwise([0, *special, len(text)]))
        found = tokenizer.encode(marked, add_special_tokens=False)
        places = np.array(found.offsets, np.int64).reshape(-1, 2)
        places -= np.searchsorted(np.array(special, np.int64) + np.arange(len(special)), places)
        return ids_V[found.ids], places

    def as_token(self, text: str) -> int | None:
        """The id of the token that is this whole text in a chat template; None if it is several."""
        ids, _ = self.encode_with_places(text, special_names.places(text, self.special))
        return int(ids[0]) if len(ids) == 1 else None

    @cached_property
    def special(self) -> tuple[str, ...]:
        """The names of the special tokens, which only a chat template writes."""
        return tuple(one.content for one in self._added.values() if one.special and one.content)

    @cached_property
    def _with_special_tokens(self) -> tuple[Any, np.ndarray]:
        """Takes a special token only with the MARK before its name; and the id of each of its ids.
        Without the post-processor, which may take spaces out of places."""
        fields = _unnamed(self._fields, self.special) | {"post_processor": None}
        flags = {"normalized": False, "single_word": False}
        fields["added_tokens"] = [
            one | flags | {"content": MARK + one["content"]} if one["special"] else one
            for one in self._fields.get("added_tokens", ())
            if one["content"]
        ]
        tokenizer = _read(json.dumps(fields))
        added = tokenizer.get_added_tokens_decoder()
        ids_V = np.arange(max(self.vocab_size, *added, 0) + 1, dtype=np.uint32)
        for number, token in added.items():
            ids_V[number] = self._ids[token.content.removeprefix(MARK)]
        return tokenizer, ids_V

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids. Bytes that are no UTF-8 become U+FFFD, unknown ids nothing."""
        if self.is_bytes:
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
        added = all(token.special for token in self._added.values())
        if not alone or not added or _cores() > FEW_CORES:
            return None
        return _Words(self._encoder)

    @cached_property
    def token_bytes(self) -> np.ndarray:
        """(V,) int32: how many bytes of text each token represents, to convert a loss to bits per
        byte; the one that ends documents and special tokens represent none, unless a text gives
        them. Right for a text whose tokens give it back (`first_changed`), without its `prefix`."""
        names = {number: token.content for number, token in self._added.items() if token.special}
        found = self.encode_batch([*names.values()])
        special = {number for number, ids in zip(names, found, strict=True) if number not in ids}
        texts = list({*self._ids.values()} - special - {self.end_of_document})
        lengths_V = np.zeros(self.vocab_size, np.int32)
        lengths_V[texts] = self._pieces[1][texts]
        return lengths_V

    def text_of(self, ids_N: np.ndarray) -> bytes:
        """What these tokens say, piece by piece, in UTF-8 unless they end within a character.
        Unlike `decode`, it does not follow the definition's decoder, which could write any text."""
        starts_V, lengths_V, text = self._pieces
        lengths_N = lengths_V[ids_N]
        before_N = np.cumsum(lengths_N) - lengths_N
        places = np.repeat(starts_V[ids_N] - before_N, lengths_N)
        return text[places + np.arange(len(places))].tobytes()

    @cached_property
    def prefix(self) -> bytes:
        """The space that the definition puts before a text (not before an added token, as the case
        may be), or nothing."""
        return b" " if self.text_of(self.encode_batch(["a"])[0]) == b" a" else b""

    @cached_property
    def begins_with_prefix(self) -> np.ndarray:
        """(V,) bool: whether a token may have the `prefix`."""
        starts_V, lengths_V, text = self._pieces
        begun_V = np.append(text, 0)[starts_V] == ord(" ")
        return begun_V & (lengths_V > 0) & bool(self.prefix)

    def first_changed(self, texts: Sequence[bytes], ids: Sequence[np.ndarray]) -> int | None:
        """The number of the first of these texts that its tokens do not give back; None if all
        do."""
        ids_N = np.concatenate([np.zeros(0, np.int64), *ids])
        text, ends_N = self.text_of(ids_N), np.append(0, np.cumsum(self._pieces[1][ids_N]))
        ends = ends_N[np.cumsum([0, *map(len, ids)])].tolist()
        for number, (start, end) in enumerate(pairwise(ends)):
            read, written = text[start:end], texts[number]
            # A space at the beginning may be the text's or the definition's.
            same = read == written and not written.startswith(self.prefix)
            if not same and read != self.prefix + written:
                return number
        return None

    def changes(self, text: str) -> bool:
        """Whether the tokens of a text do not give it back, so that their bits are not its own."""
        return self.first_changed([text.encode()], self.encode_batch([text])) is not None

    @cached_property
    def _pieces(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the text of each token begins, (V,), its length (V,), and all texts, uint8."""
        starts_V = np.zeros(self.vocab_size, np.int64)
        lengths_V = np.zeros(self.vocab_size, np.int32)
        pieces, size = list[bytes](), 0
        for token, number in self._ids.items():
            pieces.append(piece := self._piece(token, number))
            starts_V[number], lengths_V[number] = size, len(piece)
            size += len(piece)
        return starts_V, lengths_V, np.frombuffer(b"".join(pieces), np.uint8)

    def _piece(self, token: str, number: int) -> bytes:
        """The text of a token by its name: in GPT-2's alphabet, or as SentencePiece writes it ("▁"
        is a space, <0x0A> a byte). Special tokens are what a chat template writes, and one that
        ends documents is nothing, because in a text it would be taken for its end."""
        added = self._added.get(number)
        if number == self.end_of_document and not (added and added.special):
            return b""
        if added and (added.special or self._is_byte_level):
            return token.encode()
        if self._is_byte_level:
            return b"".join(_byte_of_character().get(one) or one.encode() for one in token)
        if byte := BYTE.fullmatch(token):
            return bytes.fromhex(byte[1])
        return token.replace("▁", " ").encode()

    @cached_property
    def _is_byte_level(self) -> bool:
        parts = [self._fields.get(key) or {} for key in ("pre_tokenizer", "normalizer", "decoder")]
        lists = ("pretokenizers", "normalizers", "decoders")
        inner = [one for part in parts for key in lists for one in part.get(key, ())]
        return any(part.get("type") == "ByteLevel" for part in parts + inner)

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


def _read(definition: str) -> Any:
    """The library's tokenizer, which encodes texts unchanged."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(definition)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _unnamed(fields: dict[str, Any], special: Sequence[str]) -> dict[str, Any]:
    """The definition, in which a model that looks up whole words (and is no BPE) finds no special
    token by its name in a text."""
    model, names = fields["model"], {*special}
    vocab = model.get("vocab", ())
    if model.get("type") == "Unigram" and any(piece in names for piece, _ in vocab):
        vocab = [[MARK * (piece in names) + piece, score] for piece, score in vocab]
    elif model.get("type") in ("WordLevel", "WordPiece") and not names.isdisjoint(vocab):
        names -= {model.get("unk_token")}
        vocab = {MARK * (word in names) + word: number for word, number in vocab.items()}
    else:
        return fields
    return fields | {"model": model | {"vocab": vocab}}


def _cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _byte_of_character() -> dict[str, bytes]:
    """GPT-2's byte-level alphabet. Printable Latin-1 characters represent themselves; the other
    bytes, in order, are represented by the characters from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    characters |= {byte: chr(256 + number) for number, byte in enumerate(others)}
    return {characters[byte]: bytes([byte]) for byte in range(256)}


@cache
def _bytes_definition() -> str:
    """GPT-2's byte-level alphabet without merges, in which the id of each byte's character is the
    byte."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    model = {
        "type": "BPE",
        "vocab": {character: byte[0] for character, byte in _byte_of_character().items()},
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
