"""Packs whole documents into rows of S positions, so that attention never crosses documents and few
positions are wasted. The index says which document is in which row. It is computed once per store
and S and is kept beside the store; a batch then reads its rows of the index and their tokens.

A document of n tokens has n − 1 targets (each token but the first) and takes n − 1 positions. A
document with more than S targets is cut into pieces of S targets; the token at a cut is the last
target of one piece and the first input of the next, so each target is scored exactly once per
epoch. Documents of fewer than 2 tokens are left out.

Pieces are placed in order, each into the open row with the least room that still holds it (best
fit). If there is none, a new row is opened; if then more than OPEN_ROWS are open, the fullest is
closed. This takes constant memory, and the same documents always give the same rows.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.data.arrays import MANIFEST, Array, Folder, WrongTokens, read
from engine.data.token_store import Batch, TokenStore

ALGORITHM = "best fit, 4096 open rows, version 1"  # names how rows are made
OPEN_ROWS = 4096
TOGETHER = 2**16  # rows that are written at a time

Piece = tuple[int, int]  # its first token and its number of targets


class Manifest(BaseModel):
    """What an index was made from. Digests are those of the store's manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    algorithm: str
    seq_len: int
    tokens_sha256: str
    offsets_sha256: str
    rows: int = Field(gt=0)
    pieces: int = Field(gt=0)
    targets: int = Field(gt=0)


class Index(NamedTuple):
    """Row i has the pieces ends[i] … ends[i + 1] − 1 (ends[0] = 0)."""

    ends: Array  # uint64, rows + 1
    starts: Array  # uint64, pieces: the first token
    lengths: Array  # uint32, pieces: targets


Part = tuple[np.ndarray, np.ndarray, np.ndarray]  # the same three, of some rows


class PackedRows:
    """A store as rows of whole documents. A store on disk needs an index from `build`; a store in
    memory is packed here, or, with `alone`, has one document in each row, and no segments. Tokens
    that the store does not score are no targets. Raises WrongTokens if the index is missing,
    belongs to another store or has another version."""

    def __init__(self, store: TokenStore, seq_len: int, *, alone: bool = False) -> None:
        self._store, self._seq_len, self._alone = store, seq_len, alone
        if store.folder is None:
            parts = zip(*_parts(store, seq_len, alone), strict=True)
            ends, starts, lengths = (np.concatenate(part) for part in parts)
            self._index = Index(ends, starts, lengths)
            sizes = len(ends) - 1, len(starts), int(lengths.sum())
            self.manifest = _manifest(store, seq_len, *sizes)
        else:
            self.manifest, self._index = _open(store, seq_len, store.folder / f"packing-{seq_len}")

    def __len__(self) -> int:
        return self.manifest.rows

    def read(self, rows_B: np.ndarray) -> Batch:
        """Read these rows. Positions after a row's documents have input 0, target −1 and segment
        0."""
        name = f"the packing of {self._store.name} for seq_len {self._seq_len}"
        first_B, end_B = read(self._index.ends, np.stack([rows_B, rows_B + 1]), name).astype(
            np.int64
        )
        if (first_B >= end_B).any() or (end_B > self.manifest.pieces).any():
            raise WrongTokens(f"{name} has rows that cannot be; build it again")
        count_B = end_B - first_B
        in_row_P = _counted(count_B)  # P: pieces of all these rows
        row_P, piece_P = np.repeat(np.arange(len(rows_B)), count_B), np.repeat(first_B, count_B)
        piece_P = piece_P + in_row_P
        start_P = read(self._index.starts, piece_P, name).astype(np.int64)
        length_P = read(self._index.lengths, piece_P, name).astype(np.int64)
        used_P = _before(length_P, row_P)
        beyond = (start_P < 0) | (start_P + length_P >= self._store.manifest.tokens)
        if beyond.any() or (used_P + length_P > self._seq_len).any():
            raise WrongTokens(f"{name} has documents that cannot be; build it again")
        # One read for all tokens. A piece with n targets has n + 1 tokens, and its last token is no
        # input.
        at_T = _counted(length_P + 1)
        places_T = np.repeat(start_P, length_P + 1) + at_T
        tokens_T = self._store.read(places_T)
        targets_T = tokens_T.astype(np.int32)
        if self._store.scored is not None:
            targets_T = np.where(self._store.scored[places_T], targets_T, -1)
        ends_T = at_T == np.repeat(length_P, length_P + 1)
        place_N = np.repeat(row_P * self._seq_len + used_P, length_P) + _counted(length_P)
        shape = len(rows_B), self._seq_len
        inputs_BS = np.zeros(shape, np.int32)
        targets_BS = np.full(shape, -1, np.int32)
        segments_BS = np.zeros(shape, np.int32)
        inputs_BS.flat[place_N] = tokens_T[~ends_T]
        targets_BS.flat[place_N] = targets_T[at_T > 0]
        segments_BS.flat[place_N] = np.repeat(in_row_P + 1, length_P)
        return Batch(inputs_BS, targets_BS, None if self._alone else segments_BS)


def build(store: TokenStore, seq_len: int) -> Manifest:
    """Write the index for rows of `seq_len` positions beside the store, replacing an earlier one.
    Takes about a second per million documents. Raises WrongTokens."""
    if store.folder is None:
        raise WrongTokens(f"{store.name} has no folder for an index; it is packed when it is used")
    folder = store.folder / f"packing-{seq_len}"
    folder.write(MANIFEST, None)
    arrays = {
        "ends": folder.create("ends", "uint64"),
        "starts": folder.create("starts", "uint64"),
        "lengths": folder.create("lengths", "uint32"),
    }
    targets = 0
    for part in _parts(store, seq_len):
        for array, values in zip(arrays.values(), part, strict=True):
            array.append(values)
        targets += int(part[2].sum())
    lengths = {name: array.finish()[0] for name, array in arrays.items()}
    manifest = _manifest(store, seq_len, lengths["ends"] - 1, lengths["starts"], targets)
    folder.write(MANIFEST, manifest.model_dump_json(indent=1).encode())
    return manifest


def best_fit(pieces: Iterable[Piece], seq_len: int) -> Iterator[list[Piece]]:
    """Pack `pieces` of 1 … seq_len targets and yield each row when it is closed."""
    open_rows: list[list[list[Piece]]] = [[] for _ in range(seq_len + 1)]  # by their remaining room
    rooms = 0  # bit n is set if there is an open row with room for exactly n
    count = 0

    def take(room: int) -> list[Piece]:
        nonlocal rooms
        row = open_rows[room].pop()
        if not open_rows[room]:
            rooms ^= 1 << room
        return row

    for piece in pieces:
        enough = rooms >> piece[1]
        if enough:
            room = piece[1] + _lowest_bit(enough)
            row = take(room)
        else:
            room, row, count = seq_len, [], count + 1
            if count > OPEN_ROWS:
                yield take(_lowest_bit(rooms))
                count -= 1
        row.append(piece)
        room -= piece[1]
        if room:
            open_rows[room].append(row)
            rooms |= 1 << room
        else:
            yield row
            count -= 1
    for rows in open_rows:
        yield from rows


def _parts(store: TokenStore, seq_len: int, alone: bool = False) -> Iterator[Part]:
    """The index, in parts of TOGETHER rows; `ends` begins with the 0 before the first row."""
    ends, starts, lengths, count = [0], list[int](), list[int](), 0
    pieces = _pieces(store, seq_len)
    for row in ([piece] for piece in pieces) if alone else best_fit(pieces, seq_len):
        starts += [start for start, _ in row]
        lengths += [length for _, length in row]
        count += len(row)
        ends.append(count)
        if len(ends) >= TOGETHER:
            yield _arrays(ends, starts, lengths)
            ends, starts, lengths = [], [], []
    if not count:
        raise WrongTokens(
            f"{store.name} has no document of 2 tokens or more; nothing can be packed"
        )
    if ends:
        yield _arrays(ends, starts, lengths)


def _arrays(ends: list[int], starts: list[int], lengths: list[int]) -> Part:
    return (np.array(ends, np.uint64), np.array(starts, np.uint64), np.array(lengths, np.uint32))


def _pieces(store: TokenStore, seq_len: int) -> Iterator[Piece]:
    start = None
    for offsets in store.offsets_in_parts():
        for end in offsets.tolist():
            if start is not None:
                targets = end - start - 1
                while targets > seq_len:
                    yield start, seq_len
                    start, targets = start + seq_len, targets - seq_len
                if targets > 0:
                    yield start, targets
            start = end


def _manifest(store: TokenStore, seq_len: int, rows: int, pieces: int, targets: int) -> Manifest:
    return Manifest(
        algorithm=ALGORITHM,
        seq_len=seq_len,
        tokens_sha256=store.manifest.tokens_sha256,
        offsets_sha256=store.manifest.offsets_sha256,
        rows=rows,
        pieces=pieces,
        targets=targets,
    )


def _open(store: TokenStore, seq_len: int, folder: Folder) -> tuple[Manifest, Index]:
    remedy = f"build it with packing.build(store, {seq_len})"
    content = folder.read(MANIFEST)
    if content is None:
        raise WrongTokens(f"{store.name} has no packing for seq_len {seq_len}; {remedy}")
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        raise WrongTokens(f"{MANIFEST} in {folder.name} is not a packing's; {remedy}") from error
    wanted = _manifest(store, seq_len, manifest.rows, manifest.pieces, manifest.targets)
    for field, found in manifest:
        if found != (value := getattr(wanted, field)):
            raise WrongTokens(
                f"the packing in {folder.name} is of another store or version: its {field} is "
                f"{found} and not {value}; {remedy}"
            )
    index = Index(
        ends=folder.open("ends", "uint64", manifest.rows + 1),
        starts=folder.open("starts", "uint64", manifest.pieces),
        lengths=folder.open("lengths", "uint32", manifest.pieces),
    )
    return manifest, index


def _counted(lengths: np.ndarray) -> np.ndarray:
    """0 … n − 1 for each n of `lengths`, concatenated."""
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) - np.repeat(before, lengths)


def _before(length_P: np.ndarray, row_P: np.ndarray) -> np.ndarray:
    """The sum of the lengths that come before each piece in its row."""
    before_P = np.cumsum(length_P) - length_P
    return before_P - before_P[np.searchsorted(row_P, row_P)]


def _lowest_bit(number: int) -> int:
    return (number & -number).bit_length() - 1
