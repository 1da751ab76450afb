"""Scores an own model whose code does not run here: it is asked for logits
(`runner.worker.model_client`), which are normalised here.

A model that gets a whole window could look at the tokens that it should predict. So it is asked
again at secret positions, which are drawn after its parameters exist. It gets the window up to that
position and random tokens after it, in the same row of a batch of the same shape, so that on a CPU
an honest model returns the same bits: there any difference voids the score. Accelerators may round
differently: there a logit may differ by `MAX_DIFFERENCE`, and the nats of the true next tokens by
`MAX_MEAN_FORESIGHT` on average. An answer to windows of random tokens that gives no probabilities
voids the score, too: then its logits are a table of some texts.

The lab asks a program that it runs itself (`runner.worker.models.programs`), and asks again in a
fresh process. A program is a function of parameters and tokens: it has no memory between questions
and knows a question only by its tokens. A model that cannot be exported as a program answers with
its own code, which could do both; it has a figure, but that does not count.

Limits: a model can memorise a public text, and a single look-up in thirty thousand positions will
hardly be found."""

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from engine.data.scored_windows import validation_windows
from engine.data.token_store import TokenStore
from engine.model.log_likelihood import nats_of_targets, sum_to_one
from engine.training.evaluate import (
    MAX_MEAN_FORESIGHT,
    NO_PROBABILITIES,
    CannotScore,
    Evaluation,
    rows_of_a_batch,
    score,
)
from runner.worker.models.trained import Planned

PROBES = 2048  # positions that are asked again
MAX_DIFFERENCE = 1e-3  # of a logit with and without the rest of the window, on an accelerator
T = TypeVar("T")


class Program(NamedTuple):
    """A model's program, and what its own process reports about it."""

    program: bytes  # empty if there is none
    not_exported: str  # why there is no program
    forward_flops_per_token: int | None
    uncounted: str  # why there is no count of FLOPs


class Examined(NamedTuple):
    """The result of asking again."""

    positions: int
    largest: float  # difference of a logit
    void: str  # why the score does not count; empty if it does
    forward_flops_per_token: int | None
    uncounted: str


# Protocols instead of an import of `runner.worker.model_client`, because a step's fingerprint
# covers what it imports.
class Talk(Protocol):
    """A conversation with a process of the model."""

    def logits(self, tokens_BS: np.ndarray, positions_B: np.ndarray | None = None) -> np.ndarray:
        """The logits of windows: (B, S, V), or at one position of each (B, V)."""

    def anew(self) -> None:
        """Continue with a fresh process, which knows nothing of earlier questions."""


class Ask(Protocol):
    """Starts processes for the models of a step."""

    models: Mapping[str, Planned]  # by label, as planned
    exact: bool  # whether equal programs give equal bits where they compute, as on a CPU

    def export(self, model: Planned, rows: int) -> Program:
        """Its program for batches of so many windows."""

    def talk(
        self, model: Planned, folder: Path, rows: int, program: bytes, about: Callable[[Talk], T]
    ) -> T:
        """The result of `about` for a conversation about the parameters in `folder`."""


class Place(NamedTuple):
    """A position to ask about again."""

    part: str  # of the mixture
    window: int
    position: int


class Comparison:
    """Answers to whole windows beside answers to prefixes of them."""

    def __init__(self, exact: bool) -> None:
        self.largest = 0.0  # difference of a logit
        self._max_difference = 0.0 if exact else MAX_DIFFERENCE
        self._where, self._positions = "", 0
        self._gain = 0.0  # nats that the true next tokens cost more without the rest of the window

    def add(self, place: Place, target: int, whole_V: np.ndarray, prefix_V: np.ndarray) -> None:
        """Compare the logits at a place where `target` comes next."""
        token, difference = difference_of(whole_V, prefix_V)
        self._positions += 1
        if difference > self.largest:
            self.largest = difference
            self._where = in_words(place, token, whole_V[token], prefix_V[token])
        if 0 < difference <= self._max_difference:
            nats_21 = nats_of_targets(np.stack((whole_V, prefix_V)), np.full((2, 1), target))
            self._gain += float(nats_21[1, 0] - nats_21[0, 0])

    def void(self) -> str:
        """Why the score does not count; empty if it does."""
        if self.largest > self._max_difference:
            return self._where
        mean = self._gain / max(1, self._positions)
        if abs(mean) <= MAX_MEAN_FORESIGHT:
            return ""
        return (
            f"at {self._positions} positions the next token costs {mean:+.2g} nats more on average "
            "without what follows than when it sees the whole window"
        )


def exported(ask: Ask, model: Planned) -> Program:
    """The model's program for scoring. Raises BadOwnCode."""
    return ask.export(model, rows_of_a_batch(*_sizes(model)))


def _sizes(model: Planned) -> tuple[int, int]:
    return int(model.config["seq_len"]), int(model.config["vocab_size"])


def scored(
    ask: Ask,
    model: Planned,
    made: Program,
    folder: Path,
    parts: Mapping[str, tuple[TokenStore, int]],
    rng: np.random.Generator | None = None,
) -> tuple[dict[str, Evaluation], Examined]:
    """The scores of each part {name: (validation split, targets to score)}, and the result of the
    look-ahead probe for the model, `exported` as `made`, with its parameters in `folder`. `rng`
    draws the positions; by default they are unpredictable. Raises CannotScore and BadOwnCode."""
    rng = rng or np.random.default_rng(secrets.randbits(128))
    length, vocab = _sizes(model)
    rows = rows_of_a_batch(length, vocab)
    windows = {name: validation_windows(of, length, n) for name, (of, n) in parts.items()}
    tokens = {name: of.tokens_NW for name, of in windows.items()}
    places = drawn(rng, {name: of.scored_NS for name, of in windows.items()})
    places = places if made.program else []
    whole: dict[Place, np.ndarray] = {}

    def of_windows(talk: Talk) -> dict[str, Evaluation]:
        found = {}
        for name, of in windows.items():
            mine = [place for place in places if place.part == name]

            def seen(start: int, logits: Any, mine: list[Place] = mine) -> None:
                logits_BSV = np.asarray(logits)
                for place in mine:
                    if start <= place.window < start + rows:
                        whole[place] = logits_BSV[place.window - start, place.position].copy()

            found[name] = score(
                *(talk.logits, *of, rows, seen),
                exact=ask.exact,
                random_too=False,  # below, where it voids the score
            )
            if not math.isfinite(found[name].bpb):
                raise CannotScore(
                    f"{NO_PROBABILITIES}; return finite logits, which are normalised here"
                )
        return found

    def of_both(talk: Talk) -> tuple[dict[str, Evaluation], Comparison, str]:
        found, comparison = of_windows(talk), Comparison(ask.exact)
        if not made.program:
            return found, comparison, made.not_exported
        talk.anew()
        for batch in batched(places, rows):
            again = talk.logits(*prefixes(rng, batch, tokens, rows, vocab))
            for place in batch:
                target = int(tokens[place.part][place.window, place.position + 1])
                comparison.add(place, target, whole[place], again[place.window % rows])
        no_probabilities = void_on_random_tokens(talk, rng, (rows, length), vocab)
        return found, comparison, comparison.void() or no_probabilities

    found, comparison, void = ask.talk(model, folder, rows, made.program, of_both)
    return found, Examined(
        positions=len(places),
        largest=min(comparison.largest, 1e30),
        void=void[:500],
        forward_flops_per_token=made.forward_flops_per_token,
        uncounted=made.uncounted[:500],
    )


def void_on_random_tokens(
    talk: Talk, rng: np.random.Generator, shape: tuple[int, int], vocab_size: int
) -> str:
    """Why the score does not count; empty if probabilities of windows of random tokens sum to 1."""
    logits_BSV = talk.logits(rng.integers(0, vocab_size, shape, dtype=np.int32))
    return (
        ""
        if all(sum_to_one(row_SV).all() for row_SV in logits_BSV)
        else f"on windows of random tokens {NO_PROBABILITIES}"
    )


def drawn(rng: np.random.Generator, scored: Mapping[str, np.ndarray]) -> list[Place]:
    """Scored positions to ask about again, each once, in random order."""
    every = [
        Place(name, int(window), int(position))
        for name, mask_NS in scored.items()
        for window, position in np.argwhere(mask_NS)
    ]
    chosen = rng.choice(len(every), size=min(PROBES, len(every)), replace=False)
    return [every[n] for n in chosen]


def batched(places: Sequence[Place], rows: int) -> list[list[Place]]:
    """Batches of up to `rows` positions, each in the row where its window was, in which no row
    contains another's next token, because a program sees all rows of a batch. So no window is in a
    batch twice, nor together with the window that follows it."""
    found: list[list[Place]] = []
    taken: list[set[tuple[str | None, int]]] = []  # the windows of each batch, and (None, row)
    first = 0  # the first batch with room
    for place in places:
        row = None, place.window % rows
        around = {(place.part, place.window + step) for step in (-1, 0, 1)} | {row}
        number = next((n for n in range(first, len(found)) if not around & taken[n]), len(found))
        if number == len(found):
            found.append([])
            taken.append(set())
        found[number].append(place)
        taken[number] |= {(place.part, place.window), row}
        while first < len(found) and len(found[first]) == rows:
            first += 1
    return found


def prefixes(
    rng: np.random.Generator,
    batch: Sequence[Place],
    windows: Mapping[str, np.ndarray],
    rows: int,
    vocab_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (B, S): in its row a window up to each position, and random after it; and positions
    (B,). Surplus rows are random."""
    length = next(iter(windows.values())).shape[1] - 1
    tokens_BS = rng.integers(0, vocab_size, (rows, length), dtype=np.int32)
    positions_B = np.zeros(rows, np.int32)
    for place in batch:
        row, known = place.window % rows, place.position + 1
        tokens_BS[row, :known] = windows[place.part][place.window, :known]
        positions_B[row] = place.position
    return tokens_BS, positions_B


def difference_of(whole_V: np.ndarray, again_V: np.ndarray) -> tuple[int, float]:
    """The token whose logit differs most, and the difference; infinite if a logit is nan."""
    with np.errstate(invalid="ignore"):
        apart_V = np.abs(whole_V.astype(np.float64) - again_V.astype(np.float64))
    apart_V = np.where(whole_V == again_V, 0.0, np.where(np.isnan(apart_V), np.inf, apart_V))
    token = int(np.argmax(apart_V))
    return token, float(apart_V[token])


def in_words(place: Place, token: int, whole: float, again: float) -> str:
    part = f" of {place.part}" if place.part else ""
    return (
        f"at position {place.position} of window {place.window}{part} its logit of token {token} "
        f"is {whole:.9g} when it sees the whole window, and {again:.9g} when it sees no more than "
        "what comes before"
    )
