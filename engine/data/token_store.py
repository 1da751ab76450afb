"""Tokens on disk or in a bucket: one long array, the offset of each document, and a manifest with
digests of what they were made from. Opening reads the manifest and two pages of metadata, so it
costs the same for a thousand tokens and for 100 billion; a batch reads what it needs. The manifest
is a claim until `verify` or `load` has checked the whole store."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.data.arrays import FILE, MANIFEST, Array, Folder, little_endian, read
from engine.data.arrays import WrongTokens as WrongTokens
from engine.data.documents import grouped
from engine.data.tokenize import BadTokenizer, Tokenizer, byte_tokenizer

VERSION = 1  # of the format; others are refused
TOGETHER = 2**20  # characters that the tokenizer gets at once
SHOWN = 20  # characters of a text that its tokens do not give back


class Batch(NamedTuple):
    """What a step trains on, int32: NumPy arrays when read, JAX arrays in the step. A target of −1
    is not scored. `segments_BS` numbers the documents of each row from 1, with 0 for padding; it is
    None unless documents are packed."""

    inputs_BS: Any
    targets_BS: Any
    segments_BS: Any = None


class Manifest(BaseModel):
    """Describes a store. Digests are SHA-256 in hex."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: int
    tokens: int = Field(gt=0)
    documents: int = Field(gt=0)
    bytes: int = Field(gt=0, description="of the documents' UTF-8 text")
    dtype: Literal["uint8", "uint16", "uint32"]
    vocab_size: int = Field(gt=0, le=2**31)
    end_of_document: int | None = Field(description="the token after each document, if any")
    source_sha256: str = Field(description="over each document's length (8 bytes) and UTF-8 text")
    tokenizer_sha256: str
    tokens_sha256: str = Field(description="over the tokens; of bytes, it is the text's digest")
    offsets_sha256: str = Field(description="over the uint64 offsets; all are little-endian")
    changed: str = Field(
        default="",
        exclude_if=lambda where: not where,  # older stores do not have it
        description="where the tokens do not give the text back",
    )

    @property
    def bytes_per_token(self) -> float:
        """The mean over all tokens; nan where the tokens do not give the text back."""
        return math.nan if self.changed else self.bytes / self.tokens


@dataclass(frozen=True, eq=False)
class TokenStore:
    """`tokens`: N values of the manifest's dtype. `offsets`: uint64, one more than there are
    documents; document i is tokens[offsets[i]:offsets[i + 1]]. Both are in memory (NumPy) or on
    disk."""

    manifest: Manifest
    tokens: Array
    offsets: Array
    folder: Folder | None = None  # None: in memory only
    scored: np.ndarray | None = None  # of conversations: whether each token is scored, (N,) bool

    @staticmethod
    def build(
        place: Path | str,
        documents: Iterable[str],
        tokenizer: Tokenizer | None = None,
        ids: Iterable[np.ndarray] | None = None,
    ) -> "TokenStore":
        """Write the documents to the folder or gs:// URL `place` and open the store. Without a
        tokenizer, tokens are bytes. Needs 100 MB of memory and what the largest document needs (see
        `Tokenizer.encode_batch`). Replaces an unfinished store; raises WrongTokens for a finished
        one. `ids`: the ids of each document, if the same tokenizer has encoded it before."""
        tokenizer = tokenizer or byte_tokenizer()
        encode = tokenizer.encode_batch if ids is None else _encoded_before(ids)
        folder = Folder(place)
        if folder.read(MANIFEST) is not None:
            raise WrongTokens(
                f"{place} already holds a token store; name another folder, or remove this one"
            )
        dtype = smallest_dtype(tokenizer.vocab_size)
        tokens, offsets = folder.create("tokens", dtype), folder.create("offsets", "uint64")
        offsets.append(np.zeros(1, np.uint64))
        source, count, size, number, changed = sha256(), 0, 0, 0, ""
        ending = [] if tokenizer.end_of_document is None else [tokenizer.end_of_document]
        for texts in together(documents):
            encoded, contents = encode(texts), [text.encode() for text in texts]
            if not changed and not tokenizer.is_bytes:
                changed = _changed(tokenizer, contents, encoded, number)
            number += len(texts)
            for content, ids in zip(contents, encoded, strict=True):
                source.update(len(content).to_bytes(8, "little") + content)
                size += len(content)
                tokens.append(ids)
                tokens.append(np.array(ending, dtype))
            lengths = np.array([len(ids) + len(ending) for ids in encoded])
            offsets.append((count + np.cumsum(lengths)).astype(np.uint64))
            count += int(lengths.sum())
        if not count:
            raise WrongTokens(
                f"the documents for {place} have no tokens; there is nothing to train on"
            )
        _, tokens_sha256 = tokens.finish()
        starts, offsets_sha256 = offsets.finish()
        folder.write("tokenizer.json", tokenizer.definition.encode())
        manifest = Manifest(
            version=VERSION,
            tokens=count,
            documents=starts - 1,
            bytes=size,
            dtype=dtype,
            vocab_size=tokenizer.vocab_size,
            end_of_document=tokenizer.end_of_document,
            source_sha256=source.hexdigest(),
            tokenizer_sha256=tokenizer.sha256,
            tokens_sha256=tokens_sha256,
            offsets_sha256=offsets_sha256,
            changed=changed,
        )
        if changed:
            print(f"no bits per byte can be computed on {place}: {changed}", flush=True)
        folder.write(MANIFEST, manifest.model_dump_json(indent=1).encode())
        return TokenStore.open(place)

    @staticmethod
    def open(place: Path | str, **digests: str) -> "TokenStore":
        """Open the store at a folder or gs:// URL. `digests` are those that its manifest must have
        (`tokens_sha256=…`, `tokenizer_sha256=…`, `source_sha256=…`). Raises WrongTokens."""
        folder = Folder(place)
        manifest = _read_manifest(folder)
        for name, wanted in digests.items():
            if (found := getattr(manifest, name)) != wanted:
                what = name.removesuffix("_sha256")
                raise WrongTokens(
                    f"the store at {place} has a {what} with SHA-256 {found} and not {wanted} as "
                    "asked for; build it from what is asked for, or name another store"
                )
        return TokenStore(
            manifest,
            tokens=folder.open("tokens", manifest.dtype, manifest.tokens),
            offsets=folder.open("offsets", "uint64", manifest.documents + 1),
            folder=folder,
        )

    @staticmethod
    def of(
        tokens: np.ndarray,
        *,
        vocab_size: int | None = None,
        bytes_per_token: float | None = None,
        offsets: np.ndarray | None = None,
    ) -> "TokenStore":
        """A store in memory, of one document unless `offsets` are given. Tokens in uint8 are bytes;
        other dtypes need `vocab_size` and `bytes_per_token`. Stores with equal vocabulary sizes
        count as having the same tokenizer."""
        if tokens.dtype == np.uint8:
            vocab_size, bytes_per_token = vocab_size or 256, bytes_per_token or 1.0
        if vocab_size is None or bytes_per_token is None:
            raise WrongTokens(
                f"tokens of type {tokens.dtype} are no bytes; say their vocab_size and "
                "bytes_per_token, or give them as uint8"
            )
        if len(tokens) == 0 or not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab_size:
            raise WrongTokens(
                f"an array of {len(tokens):,} tokens is not one of ids below {vocab_size}; say the "
                "vocab_size of the tokenizer that made them"
            )
        dtype = smallest_dtype(vocab_size)
        tokens = tokens.astype(dtype, copy=False)
        if offsets is None:
            offsets = np.array([0, len(tokens)])
        offsets = offsets.astype(np.uint64)
        digest = sha256(little_endian(tokens)).hexdigest()
        manifest = Manifest(
            version=VERSION,
            tokens=len(tokens),
            documents=len(offsets) - 1,
            bytes=max(1, round(len(tokens) * bytes_per_token)),
            dtype=dtype,
            vocab_size=vocab_size,
            end_of_document=None,
            source_sha256=digest,
            tokenizer_sha256=byte_tokenizer().sha256 if vocab_size == 256 else str(vocab_size),
            tokens_sha256=digest,
            offsets_sha256=sha256(little_endian(offsets)).hexdigest(),
        )
        store = TokenStore(manifest, tokens, offsets)
        store._check_offsets(store.offsets_in_parts())
        return store

    def read(self, where: slice | np.ndarray) -> np.ndarray:
        """Read tokens[where]. Raises WrongTokens if a needed piece is missing or damaged or has an
        id beyond the vocabulary."""
        found = read(self.tokens, where, f"the array tokens of {self.name}")
        if (highest := int(found.max(initial=0))) >= self.manifest.vocab_size:
            raise WrongTokens(
                f"{self.name} has a token with id {highest} and its tokenizer only "
                f"{self.manifest.vocab_size}; build it again"
            )
        return found

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the tokens. Raises WrongTokens."""
        content = self.folder.read("tokenizer.json") if self.folder else None
        if content is None:
            raise WrongTokens(f"{self.name} has no tokenizer.json; name the tokenizer's own file")
        try:
            tokenizer = Tokenizer(content.decode(), self.manifest.end_of_document)
        except (UnicodeDecodeError, BadTokenizer) as error:
            raise WrongTokens(
                f"the tokenizer.json of {self.name} is damaged ({error}); build the store again"
            ) from error
        if tokenizer.sha256 != self.manifest.tokenizer_sha256:
            raise WrongTokens(
                f"the tokenizer.json of {self.name} has SHA-256 {tokenizer.sha256} and not "
                f"{self.manifest.tokenizer_sha256} as in the manifest; build the store again"
            )
        return tokenizer

    @cached_property
    def token_bytes(self) -> np.ndarray:
        """(V,) int32: how many bytes of text each token represents. Reads the whole store, unless a
        token is a byte. Raises WrongTokens where the tokens do not give back the text of the
        manifest, so that their names do not say how long it was."""
        if self.manifest.tokenizer_sha256 == byte_tokenizer().sha256:
            return np.ones(self.manifest.vocab_size, np.int32)
        tokenizer, where = self.tokenizer(), self.manifest.changed
        if not where and self._source_sha256(tokenizer) != self.manifest.source_sha256:
            where = "what its tokens say is not the text of its manifest"
        if where:
            raise WrongTokens(
                f"no bits per byte can be computed on {self.name}: {where}; use a tokenizer that "
                "keeps every character, such as `bpe`"
            )
        return tokenizer.token_bytes

    def text_bytes(self, ids: np.ndarray, places: np.ndarray) -> np.ndarray:
        """How many bytes of text the tokens at these places represent, int32. Raises as
        `token_bytes` does."""
        found = self.token_bytes[ids]
        if self.manifest.tokenizer_sha256 == byte_tokenizer().sha256:
            return found
        tokenizer = self.tokenizer()
        if not tokenizer.prefix:
            return found
        starts = np.concatenate(list(self.offsets_in_parts()))
        # The space is not of the text.
        return np.maximum(found - (np.isin(places, starts) & tokenizer.begins_with_prefix[ids]), 0)

    def _source_sha256(self, tokenizer: Tokenizer) -> str:
        """The digest of the documents as their tokens give them back; empty if one has no end."""
        digest, end = sha256(), self.manifest.end_of_document
        offsets = np.concatenate(list(self.offsets_in_parts()))
        ids_N = np.concatenate(list(self.tokens_in_parts()))
        for start, stop in pairwise(offsets.tolist()):
            if end is not None and (start == stop or ids_N[stop - 1] != end):
                return ""
            text = tokenizer.text_of(ids_N[start : stop - (end is not None)])
            text = text.removeprefix(tokenizer.prefix)
            digest.update(len(text).to_bytes(8, "little") + text)
        return digest.hexdigest()

    @property
    def name(self) -> str:
        return f"the store at {self.folder.name}" if self.folder else "a store in memory"

    def verify(self) -> None:
        """Check the whole store, in constant memory. Raises WrongTokens unless tokens and offsets
        have their digests, every token is in the vocabulary and the offsets ascend."""
        self._check_tokens(self.tokens_in_parts())
        self._check_offsets(self.offsets_in_parts())

    def load(self) -> "TokenStore":
        """Load this store into memory and verify it. Later changes of the files have no effect on
        it. Raises WrongTokens as `verify` does."""
        tokens = np.concatenate(list(self.tokens_in_parts()))
        offsets = np.concatenate(list(self.offsets_in_parts()))
        self._check_tokens(iter([tokens]))
        self._check_offsets(iter([offsets]))
        return replace(self, tokens=tokens, offsets=offsets)

    def tokens_in_parts(self) -> Iterator[np.ndarray]:
        """All tokens in order, in arrays of one file's length."""
        for start in range(0, self.manifest.tokens, FILE):
            yield self.read(slice(start, min(start + FILE, self.manifest.tokens)))

    def offsets_in_parts(self) -> Iterator[np.ndarray]:
        """All offsets in order, in arrays of one file's length."""
        length, name = self.manifest.documents + 1, f"the array offsets of {self.name}"
        for start in range(0, length, FILE):
            yield read(self.offsets, slice(start, min(start + FILE, length)), name)

    def _check_tokens(self, parts: Iterator[np.ndarray]) -> None:
        digest = sha256()
        for part in parts:
            digest.update(little_endian(part))
        self._same("tokens", digest.hexdigest(), self.manifest.tokens_sha256)

    def _check_offsets(self, parts: Iterator[np.ndarray]) -> None:
        digest, last = sha256(), np.uint64(0)
        for number, part in enumerate(parts):
            digest.update(little_endian(part))
            if (number == 0 and part[0] != 0) or part[0] < last or (part[1:] < part[:-1]).any():
                raise WrongTokens(f"the documents of {self.name} overlap; build it again")
            last = part[-1]
        self._same("offsets", digest.hexdigest(), self.manifest.offsets_sha256)
        if last != self.manifest.tokens:
            raise WrongTokens(
                f"the documents of {self.name} end at token {last} and its tokens at "
                f"{self.manifest.tokens}; build it again"
            )

    def _same(self, what: str, found: str, wanted: str) -> None:
        if found != wanted:
            raise WrongTokens(
                f"the {what} of {self.name} have SHA-256 {found} and not {wanted} as in its "
                "manifest; copy it again from where it is whole, or build it again"
            )


def smallest_dtype(vocab_size: int) -> Literal["uint8", "uint16", "uint32"]:
    """The smallest type that holds every id below `vocab_size`."""
    if vocab_size <= 2**8:
        return "uint8"
    return "uint16" if vocab_size <= 2**16 else "uint32"


def _read_manifest(folder: Folder) -> Manifest:
    content = folder.read(MANIFEST)
    if content is None:
        raise WrongTokens(
            f"there is no token store at {folder.name}, or it was never finished: it has no "
            f"{MANIFEST}; build it, or copy all of it"
        )
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "its form"
        raise WrongTokens(
            f"{MANIFEST} in {folder.name} is not a token store's: {where}: {first['msg']}; "
            "build the store with this version"
        ) from error
    if manifest.version != VERSION:
        raise WrongTokens(
            f"the token store at {folder.name} has format {manifest.version} and this version "
            f"reads {VERSION}; build it again"
        )
    if np.iinfo(manifest.dtype).max < manifest.vocab_size - 1:
        raise WrongTokens(
            f"{MANIFEST} in {folder.name} has {manifest.vocab_size} ids in {manifest.dtype}, which "
            "cannot hold them; build the store again"
        )
    return manifest


def _changed(
    tokenizer: Tokenizer, texts: Sequence[bytes], ids: Sequence[np.ndarray], before: int
) -> str:
    """Where tokens do not give these texts back, as a clause; empty if they do. `before`: how many
    texts came before these."""
    if (number := tokenizer.first_changed(texts, ids)) is None:
        return ""
    text, back = texts[number], tokenizer.text_of(ids[number]).removeprefix(tokenizer.prefix)
    same = next((n for n in range(len(text)) if text[n : n + 1] != back[n : n + 1]), len(text))
    at = len(text[:same].decode(errors="ignore"))  # characters
    written, read = (of.decode(errors="replace")[at : at + SHOWN] for of in (text, back))
    return (
        f"document {before + number + 1} has {written!r} at character {at + 1}, and its tokens say "
        f"{read!r}"
    )


def _encoded_before(ids: Iterable[np.ndarray]) -> Callable[[Sequence[str]], list[np.ndarray]]:
    left = iter(ids)
    return lambda texts: list(islice(left, len(texts)))


def together(documents: Iterable[str]) -> Iterator[list[str]]:
    """The documents in lists, each large enough for one call of the tokenizer."""
    return grouped(documents, lambda text: len(text) + 1, TOGETHER + 1)
