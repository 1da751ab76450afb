"""Scores a model of the experiment's own, none of whose code runs here: it is asked for logits
(`runner.asking`), which are normalised here.

A model that is asked for a whole window could look at what it should predict. So afterwards, at
positions that are drawn in secret once its parameters are there, a fresh process of it is asked
again. It is given the window up to that position, and random tokens after it, so that the batch has
the same shape and an honest model gives the same bits. What differs by more than `MOST_APART` voids
the score. A model that finds out what it is being asked for gains nothing: its answers to whole
windows stand by then, and the next token is nowhere in sight. For that, of several questions about
one window the shorter come first, and windows that touch are asked about in different processes.

What this leaves open: a public text can be learnt by heart, and one position in thirty thousand
that is looked up will hardly be found."""

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from engine.data import TokenStore, validation_windows, window_starts
from engine.evaluate import CannotScore, Evaluation, rows_of_a_batch, score, token_bytes

PROBES = 2048  # positions that are asked about again
MOST_APART = 1e-3  # of a logit, with the rest of the window and without
T = TypeVar("T")


class Counted(NamedTuple):
    """What a model's process says of the trace that it answers by."""

    forward_flops_per_token: int | None
    uncounted: str  # why there is none


class Examined(NamedTuple):
    """What asking again has shown."""

    positions: int
    largest: float  # difference of a logit
    void: str  # why the score does not count; empty: it does
    forward_flops_per_token: int | None
    uncounted: str


class Talk(Protocol):
    """A talk with one process of the model."""

    def counted(self) -> Counted:
        """What it says of itself."""

    def logits(self, tokens_BS: np.ndarray, positions_B: np.ndarray | None = None) -> np.ndarray:
        """The logits of windows: (B, S, V), or at one position of each (B, V)."""


class Ask(Protocol):
    """Begins a talk with a fresh process of the model in a folder."""

    def __call__(
        self, model: Path, rows: int, vocab_size: int, about: Callable[[Talk], T]
    ) -> T: ...


class Place(NamedTuple):
    """A position that is asked about again."""

    part: str  # of the mixture
    window: int
    position: int


def scored(
    ask: Ask,
    model: Path,
    config: Mapping[str, int],
    parts: Mapping[str, tuple[TokenStore, int]],
    rng: np.random.Generator | None = None,
) -> tuple[dict[str, Evaluation], Examined]:
    """The scores of each part {name: (validation split, targets to score)}, and what was found
    about the model whose `config` has seq_len and vocab_size. `rng` draws the positions; without
    it nobody can know them. Raises CannotScore and BadOwnCode."""
    rng = rng or np.random.default_rng(secrets.randbits(128))
    length, vocab = config["seq_len"], config["vocab_size"]
    rows = rows_of_a_batch(length, vocab)
    windows = {name: validation_windows(of, length, n) for name, (of, n) in parts.items()}
    tokens = {name: tokens_NW for name, (tokens_NW, _) in windows.items()}
    places = drawn(rng, {name: mask_NS for name, (_, mask_NS) in windows.items()})
    whole: dict[Place, np.ndarray] = {}

    def of_windows(talk: Talk) -> tuple[dict[str, Evaluation], Counted]:
        found = {}
        for name, (tokens_NW, scored_NS) in windows.items():
            mine = [place for place in places if place.part == name]

            def seen(start: int, logits: Any, mine: list[Place] = mine) -> None:
                logits_BSV = np.asarray(logits)
                for place in mine:
                    if start <= place.window < start + rows:
                        whole[place] = logits_BSV[place.window - start, place.position].copy()

            bytes_V = token_bytes(parts[name][0])
            found[name] = score(talk.logits, tokens_NW, scored_NS, bytes_V, rows, seen)
            if not math.isfinite(found[name].bpb):
                raise CannotScore(
                    "the logits give no probabilities: one is not a number or infinite, or what "
                    "came was given none at all; return finite logits, which are normalised here"
                )
        return found, talk.counted()

    found, counted = ask(model, rows, vocab, of_windows)
    worst, where = 0.0, ""
    for some in apart(places, {name: _touching(of, length, n) for name, (of, n) in parts.items()}):
        batches = [*batched(some, rows)]

        def of_prefixes(talk: Talk, batches: list[list[Place]] = batches) -> list[np.ndarray]:
            return [talk.logits(*prefixes(rng, x, tokens, rows, vocab))[: len(x)] for x in batches]

        for batch, again in zip(batches, ask(model, rows, vocab, of_prefixes), strict=True):
            for place, logits_V in zip(batch, again, strict=True):
                token, difference = difference_of(whole[place], logits_V)
                if difference > worst:
                    worst = difference
                    where = _words(place, token, whole[place][token], logits_V[token])
    return found, Examined(
        positions=len(places),
        largest=min(worst, 1e30),
        void=where if worst > MOST_APART else "",
        forward_flops_per_token=counted.forward_flops_per_token,
        uncounted=counted.uncounted[:500],
    )


def drawn(rng: np.random.Generator, scored: Mapping[str, np.ndarray]) -> list[Place]:
    """Scored positions to ask about again, each once: shorter prefixes of a window first."""
    every = [
        Place(name, int(window), int(position))
        for name, mask_NS in scored.items()
        for window, position in np.argwhere(mask_NS)
    ]
    chosen = rng.choice(len(every), size=min(PROBES, len(every)), replace=False)
    return sorted((every[n] for n in chosen), key=lambda x: (x.part, x.window, x.position))


def apart(places: Sequence[Place], touching: Mapping[str, bool]) -> Iterator[list[Place]]:
    """The places by the process that is asked about them: none sees a window that begins with
    what another one should predict."""
    for number in (0, 1):
        some = [x for x in places if (x.window % 2 if touching[x.part] else 0) == number]
        if some:
            yield some


def batched(places: Sequence[Place], rows: int) -> Iterator[list[Place]]:
    """Batches in which no window stands twice, a window's shorter prefixes before its longer."""
    turn: dict[tuple[str, int], int] = {}
    turns: dict[int, list[Place]] = {}
    for place in places:  # which are in the order of their positions
        key = place.part, place.window
        turn[key] = turn.get(key, 0) + 1
        turns.setdefault(turn[key], []).append(place)
    batch: list[Place] = []
    for number in sorted(turns):
        for place in turns[number]:
            twice = any((x.part, x.window) == (place.part, place.window) for x in batch)
            if len(batch) == rows or twice:
                yield batch
                batch = []
            batch.append(place)
    if batch:
        yield batch


def prefixes(
    rng: np.random.Generator,
    batch: Sequence[Place],
    windows: Mapping[str, np.ndarray],
    rows: int,
    vocab_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (B, S) that are a window's as far as each place, and random after it; and positions
    (B,). Rows that are left are random."""
    length = next(iter(windows.values())).shape[1] - 1
    tokens_BS = rng.integers(0, vocab_size, (rows, length), dtype=np.int32)
    positions_B = np.zeros(rows, np.int32)
    for row, place in enumerate(batch):
        known = place.position + 1
        tokens_BS[row, :known] = windows[place.part][place.window, :known]
        positions_B[row] = place.position
    return tokens_BS, positions_B


def difference_of(whole_V: np.ndarray, again_V: np.ndarray) -> tuple[int, float]:
    """The token whose logit differs most, and by how much; infinite where one is no number."""
    with np.errstate(invalid="ignore"):
        apart_V = np.abs(whole_V.astype(np.float64) - again_V.astype(np.float64))
    apart_V = np.where(whole_V == again_V, 0.0, np.where(np.isnan(apart_V), np.inf, apart_V))
    token = int(np.argmax(apart_V))
    return token, float(apart_V[token])


def _touching(validation: TokenStore, length: int, targets: int) -> bool:
    """Whether a window begins with the last one's last target."""
    starts = window_starts(validation.manifest.tokens, length, targets)
    return bool((np.diff(starts) <= length).any())


def _words(place: Place, token: int, whole: float, again: float) -> str:
    part = f" of {place.part}" if place.part else ""
    return (
        f"at position {place.position} of window {place.window}{part} its logit of token {token} "
        f"is {whole:.6g} when it sees the whole window, and {again:.6g} when it sees no more than "
        "what comes before"
    )
