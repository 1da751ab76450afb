"""Which tokens each step sees. A batch is a pure function of (seed, step), without any state
between batches. So a resumed run sees the same tokens, and each of many hosts reads only its own
rows.

Rows are numbered through the whole run: row r of step n has the number g = r + the rows of all
steps before, (n − 1)·B if each has B. A source of N rows is read in epochs. Each epoch has another
order of the rows: a permutation of 0 … N − 1 that can be computed at any position alone. With
several sources, each block of consecutive g holds every source's share, in an order of its own; see
`Sampler`. Phases change B or the shares at a step; this is a function of the step, too.

The permutation is our own because the order must never change with a library's version. It is a
Feistel network (Luby and Rackoff, 1988) over the smallest number of bits that can count N, with
cycle-walking for values outside 0 … N − 1 (Black and Rogaway, 2002, "Ciphers with Arbitrary Finite
Domains"); its round function is the output function of SplitMix64 (Steele, Lea and Flood, 2014,
"Fast Splittable Pseudorandom Number Generators"). It mixes well; it is not cryptography.
"""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from engine.config.phases import BatchSizes
from engine.data.lab_texts import shortest_train
from engine.data.packing import PackedRows
from engine.data.token_store import Batch, TokenStore, WrongTokens

ROUNDS = 8  # of the Feistel network
BLOCK = 1024  # in each block of so many rows, a mixture has exactly its weights
LEAST_BITS = 4  # smaller networks have too few different permutations

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd: SplitMix64's increment

T = TypeVar("T")


class Batches(Protocol):
    """What training reads from: a Sampler, or anything else that returns rows of a step's batch."""

    @property
    def seq_len(self) -> int: ...
    @property
    def batch_sizes(self) -> BatchSizes: ...
    @property
    def packed(self) -> bool: ...
    @property
    def vocab_size(self) -> int: ...
    def bytes_per_token(self, step: int) -> float: ...
    def rows(self, step: int, rows: Sequence[int] | np.ndarray) -> Batch: ...


class Rows(Protocol):
    """A store cut into rows of one length."""

    def __len__(self) -> int: ...

    def read(self, rows_B: np.ndarray) -> Batch:
        """Read the rows with these numbers."""


class Windows:
    """A store as one stream of tokens, cut every S tokens: row i has inputs i·S … i·S + S − 1, and
    their targets are the next tokens. So a row reads S + 1 tokens, and each token is a target once;
    the last few tokens that fill no window are left out. Windows cross document borders."""

    def __init__(self, store: TokenStore, seq_len: int) -> None:
        count = store.manifest.tokens
        if count < shortest_train(seq_len):
            raise WrongTokens(
                f"the train split has {count:,} tokens and a window of seq_len {seq_len} needs "
                f"{shortest_train(seq_len):,}; use a longer text or a lower seq_len"
            )
        self._store, self._seq_len = store, seq_len
        self._len = (count - 1) // seq_len

    def __len__(self) -> int:
        return self._len

    def read(self, rows_B: np.ndarray) -> Batch:
        places_BW = (rows_B * self._seq_len)[:, None] + np.arange(self._seq_len + 1)
        windows_BW = self._store.read(places_BW).astype(np.int32)
        return Batch(inputs_BS=windows_BW[:, :-1], targets_BS=windows_BW[:, 1:])


class Turn(NamedTuple):
    """The sampling between two changes of the shares. N is the number of sources."""

    first_row: int  # numbered through the whole run
    block: int  # rows that hold every source's share
    counts_N: np.ndarray  # rows of each source in a block
    drawn_N: np.ndarray  # rows of each source in the blocks of earlier turns
    blocks: int  # of earlier turns
    bytes_per_token: float


class Sampler:
    """Returns the batch of a step, as a function of (seed, step).

    `sources` is a store, an array of bytes ((N,) uint8), or a list of (store, weight). Weights are
    shares of rows. Each block of `block` consecutive rows has exactly each source's share, rounded
    once to whole rows by largest remainder (`block_counts` holds the result). Each source has
    epochs of its own. `batch_size` is the rows of every step, or those of each.

    `phases` are later shares: (finished steps, a weight for each source), in order; a source with
    weight 0 is not read. A phase starts new blocks, and each source continues after the blocks that
    it had a share in: if a phase cuts a block short, the rest of that block is skipped. A phase
    with the same shares as the one before changes nothing.

    `most_epochs` is, for each source, how often the `steps` of the run may pass over it; infinity
    for a source without a limit. What is beyond goes to the other sources, by their weights, in
    all blocks of a turn alike.

    The first `skip` batches are passed over, with the shares of the run's first step: step 1 has
    what would be the batch of step `skip` + 1. They count for `most_epochs`.

    With `packed`, rows hold whole documents (`engine.data.packing`), and each store must have its
    index for this seq_len. Otherwise rows are windows that cross documents, or what `rows` makes of
    a store.

    Raises WrongTokens for stores that are too short or of different tokenizers, and for a weight
    that is not positive (with phases: negative, or 0 in all) or too small to have a row in a
    block, and if the sources together have too few rows within `most_epochs`.
    """

    def __init__(
        self,
        sources: TokenStore | np.ndarray | Sequence[tuple[TokenStore, float]],
        seed: int,
        batch_size: int | BatchSizes,
        seq_len: int,
        *,
        packed: bool = False,
        rows: Callable[[TokenStore, int], Rows] | None = None,
        block: int = BLOCK,
        phases: Sequence[tuple[int, Sequence[float]]] = (),
        steps: int = 0,
        most_epochs: Sequence[float] = (),
        skip: int = 0,
    ) -> None:
        if isinstance(sources, np.ndarray):
            sources = TokenStore.of(sources)
        mixture = [(sources, 1.0)] if isinstance(sources, TokenStore) else list(sources)
        stores = [store for store, _ in mixture]
        if isinstance(batch_size, int):
            batch_size = BatchSizes((0,), (batch_size,))
        self.seq_len, self.batch_sizes, self.packed = seq_len, batch_size, packed
        _check_sources(mixture, phases)
        self.vocab_size = stores[0].manifest.vocab_size
        self._seed, self._skip = seed, skip
        rows = rows or (PackedRows if packed else Windows)
        self._sources: list[Rows] = [rows(store, seq_len) for store in stores]
        turns = [(0, [weight for _, weight in mixture]), *phases]
        self._turns: list[Turn] = []
        turns = [
            turn
            for number, turn in enumerate(turns)
            if not number or turn[1] != turns[number - 1][1]
        ]
        self._most_rows_N = np.array([len(one) for one in self._sources]) * (
            np.array(most_epochs) if most_epochs else np.inf
        )
        begin = [0, *(self._rows_before(before + 1) for before, _ in turns[1:])]
        begin.append(self._rows_before(steps + 1))
        for (_, weights), (first, end) in zip(turns, pairwise(begin), strict=True):
            self._turns.append(self._turn(first, end - first, stores, weights, block))
        self.block_counts: list[int] = self._turns[0].counts_N.tolist()

    def _turn(
        self,
        first_row: int,
        rows: int,
        stores: Sequence[TokenStore],
        weights: Sequence[float],
        block: int,
    ) -> Turn:
        """The turn of so many `rows` that follows the existing ones."""
        block = block if np.count_nonzero(weights) > 1 else 1
        counts_N = np.array(_counts(stores, weights, block))
        drawn_N, blocks = np.zeros_like(counts_N), 0
        if self._turns:
            last = self._turns[-1]
            begun = -(-(first_row - last.first_row) // last.block)
            drawn_N, blocks = last.drawn_N + begun * last.counts_N, last.blocks + begun
        if np.isfinite(self._most_rows_N).any():
            left_N = np.maximum(self._most_rows_N - drawn_N, 0) / max(-(-rows // block), 1)
            counts_N = np.array(within(counts_N.tolist(), weights, left_N.tolist()))
        sizes_N = [store.manifest.bytes_per_token for store in stores]
        mean = float(np.average(sizes_N, weights=counts_N))
        return Turn(first_row, block, counts_N, drawn_N, blocks, mean)

    def bytes_per_token(self, step: int) -> float:
        """Mean number of bytes of text per token of this step's batch."""
        return self._at(step).bytes_per_token

    def _rows_before(self, step: int) -> int:
        """The rows of the batches that are skipped and of all earlier steps."""
        return self._skip * self.batch_sizes.sizes[0] + self.batch_sizes.until(step - 1)

    def _at(self, step: int) -> Turn:
        row = self._rows_before(step)
        return next(turn for turn in reversed(self._turns) if row >= turn.first_row)

    def rows(self, step: int, rows: Sequence[int] | np.ndarray) -> Batch:
        """Read these rows (from 0) of the batch of `step` (from 1), and no others."""
        if step < 1:
            raise ValueError(f"there is no step {step}; the first is 1")
        rows_B = np.asarray(rows, np.int64)
        source_B, row_B = self.places(step, rows_B)
        parts, places = [], []
        for source in np.unique(source_B).tolist():
            places.append(np.flatnonzero(source_B == source))
            parts.append(self._sources[source].read(row_B[places[-1]]))
        if len(parts) == 1:
            return parts[0]
        order_B = np.argsort(np.concatenate(places))
        segments = [part.segments_BS for part in parts if part.segments_BS is not None]
        return Batch(
            np.concatenate([part.inputs_BS for part in parts])[order_B],
            np.concatenate([part.targets_BS for part in parts])[order_B],
            np.concatenate(segments)[order_B] if segments else None,
        )

    def places(self, step: int, rows_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each of these rows: the number of its source, and the number of its row in that
        source."""
        turn = self._at(step)
        number_B = self._rows_before(step) + rows_B - turn.first_row
        block_B, place_B = number_B // turn.block, number_B % turn.block
        if turn.block > 1:
            place_B = permute(place_B, turn.block, _key(self._seed, 0, turn.blocks + block_B))
        ends_N = np.cumsum(turn.counts_N)
        source_B = np.searchsorted(ends_N, place_B, side="right")
        counts_B = turn.counts_N[source_B]
        begun_B = turn.drawn_N[source_B] + block_B * counts_B
        drawn_B = begun_B + place_B - (ends_N[source_B] - counts_B)
        lengths_B = np.array([len(source) for source in self._sources])[source_B]
        epoch_B, position_B = drawn_B // lengths_B, drawn_B % lengths_B
        row_B = permute(position_B, lengths_B, _key(self._seed, 1 + source_B, epoch_B))
        return source_B, row_B


def apportion(weights: Sequence[float], total: int) -> list[int]:
    """Divide `total` by weight into whole numbers, by largest remainder: each gets its share
    rounded down, and the rest goes one each to the largest remainders, the first on a tie."""
    shares = np.asarray(weights, np.float64) * total / np.sum(weights)
    counts = np.floor(shares).astype(np.int64)
    left = total - int(counts.sum())
    counts[np.argsort(counts - shares, kind="stable")[:left]] += 1
    return counts.tolist()


def within(counts: list[int], weights: Sequence[float], most: Sequence[float]) -> list[int]:
    """These counts, none above `most`: what is beyond goes to the others, by their weights. Raises
    WrongTokens if all are at their `most` and something is left."""
    total, counts = sum(counts), list(counts)
    have = sum(min(of, total) for of, weight in zip(most, weights, strict=True) if weight) / total
    full: set[int] = set()
    while over := {i for i, count in enumerate(counts) if i not in full and count > most[i]}:
        full |= over
        for i in over:
            counts[i] = math.floor(most[i])
            if 0 < most[i] < 1 < total:
                raise WrongTokens(
                    f"most_epochs allows a part less than one row in each block of {total:,}; "
                    "raise it, lower num_train_steps, or leave the part out"
                )
        left = total - sum(counts[i] for i in full)
        others = [i for i in range(len(counts)) if i not in full and weights[i]]
        if left and not others:
            raise WrongTokens(
                f"within most_epochs, the mixture has {have:.1%} of the tokens that "
                "the run needs; raise most_epochs, lower num_train_steps, or add a part"
            )
        shares = apportion([weights[i] for i in others], left) if others else []
        for i, share in zip(others, shares, strict=True):
            counts[i] = share
    return counts


def permute(place: np.ndarray | int, size: np.ndarray | int, key: np.ndarray | int) -> np.ndarray:
    """Where each `place` (0 … size − 1) goes in the permutation of `key` (uint64); the three are
    broadcast. The construction is described at the top of this file."""
    place, size, key = np.broadcast_arrays(
        np.atleast_1d(np.asarray(place, np.uint64)),
        np.asarray(size, np.uint64),
        np.asarray(key, np.uint64),
    )
    # frexp's exponent is the number of bits, exact below 2^53.
    bits = np.maximum(np.frexp((size - 1).astype(np.float64))[1], LEAST_BITS).astype(np.uint64)
    out = _feistel(place, bits, key)
    while (outside := np.flatnonzero(out >= size)).size:
        out[outside] = _feistel(out[outside], bits[outside], key[outside])
    return out.astype(np.int64)


def _feistel(x: np.ndarray, bits: np.ndarray, key: np.ndarray) -> np.ndarray:
    """One pass over numbers of `bits` bits; if `bits` is odd, the left half has one more."""
    right_bits = bits // 2
    left_bits = bits - right_bits
    left, right = x >> right_bits, x & _ones(right_bits)
    for number in range(1, ROUNDS + 1):
        mixed = _mix(right ^ _mix(key + np.uint64(number * GOLDEN % 2**64)))
        left, right = right, left ^ (mixed & _ones(left_bits))
        left_bits, right_bits = right_bits, left_bits
    return (left << right_bits) | right


def _ones(bits: np.ndarray) -> np.ndarray:
    return (np.uint64(1) << bits) - np.uint64(1)


def _key(*parts: np.ndarray | int) -> np.ndarray:
    """A uint64 hash of these numbers."""
    key = np.zeros(1, np.uint64)
    for part in parts:
        number = part % 2**64 if isinstance(part, int) else part  # a seed may be negative
        key = _mix((key ^ np.asarray(number, np.uint64)) + np.uint64(GOLDEN))
    return key


def _mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's output function: a bijection of uint64 in which each bit depends on all bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _check_sources(
    mixture: Sequence[tuple[TokenStore, float]], phases: Sequence[tuple[int, Sequence[float]]]
) -> None:
    """Raise WrongTokens unless the sources can be mixed and each has a weight in some turn."""
    if not mixture:
        raise WrongTokens("there is nothing to sample from; name a token store")
    for before, of in phases:
        if not any(of):
            raise WrongTokens(f"nothing is left to sample from after step {before}; raise a weight")
    first = mixture[0][0]
    for (store, weight), *later in zip(mixture, *(of for _, of in phases), strict=True):
        weights = [weight, *later]
        for one in weights:
            if not 0 <= one < float("inf") or not any(weights):
                raise WrongTokens(
                    f"{store.name} has weight {one}; make it positive, or leave the store out"
                )
        if store.manifest.tokenizer_sha256 != first.manifest.tokenizer_sha256:
            raise WrongTokens(
                f"{first.name} and {store.name} were made by different tokenizers, so that one id "
                "means two things; build both with one tokenizer"
            )


def _counts(stores: Sequence[TokenStore], weights: Sequence[float], block: int) -> list[int]:
    """The rows of each source in a block. Raises WrongTokens."""
    counts = apportion(weights, block)
    for store, weight, count in zip(stores, weights, counts, strict=True):
        if weight and count == 0:
            total = sum(weights)
            raise WrongTokens(
                f"{store.name} has weight {weight} of {total:g}, which is no row in a block of "
                f"{block}; raise the weight, or make blocks of at least {int(total / weight) + 1}"
            )
    return counts


def ahead(
    read: Callable[[int], T], steps: Iterable[int], depth: int = 2
) -> Generator[T, None, None]:
    """Yield read(step) for each of `steps` in order, computed by a background thread that is up to
    `depth` steps ahead. An exception of `read` is raised at its step. Closing the generator ends
    the thread after its current step."""
    remaining = iter(steps)
    thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
    try:
        pending = deque(thread.submit(read, step) for step in islice(remaining, depth))
        while pending:
            batch = pending.popleft().result()
            pending.extend(thread.submit(read, step) for step in islice(remaining, 1))
            yield batch
    finally:
        thread.shutdown(wait=True, cancel_futures=True)
