"""Scores an own model whose code does not run here: it is asked for logits
(`runner.worker.model_client`), which are normalised here.

A model that gets a whole window could look at the tokens that it should predict. So it is asked
again at secret positions, which are drawn after its parameters exist. It gets the window up to that
position and random tokens after it, so that the batch has the same shape and an honest model
returns the same bits. A difference above `MOST_APART` voids the score. So does an answer to windows
of random tokens that gives no probabilities: then its logits are a table of some texts.

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

from engine.data.token_store import TokenStore, validation_windows
from engine.training.evaluate import CannotScore, Evaluation, rows_of_a_batch, score
from runner.worker.models.trained import Planned

PROBES = 2048  # positions that are asked again
MOST_APART = 1e-3  # difference of a logit with and without the rest of the window
NONE = (
    "on windows of random tokens its logits give no probabilities: one is not a number or infinite"
)
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

            found[name] = score(talk.logits, *of, rows, seen)
            if not math.isfinite(found[name].bpb):
                raise CannotScore(
                    "the logits give no probabilities: one is not a number or infinite, or what "
                    "came was given none at all; return finite logits, which are normalised here"
                )
        return found

    def of_prefixes(talk: Talk) -> tuple[float, str]:
        worst, where = 0.0, ""
        for batch in batched(places, rows):
            again = talk.logits(*prefixes(rng, batch, tokens, rows, vocab))
            for place, logits_V in zip(batch, again, strict=False):
                token, difference = difference_of(whole[place], logits_V)
                if difference > worst:
                    worst = difference
                    where = in_words(place, token, whole[place][token], logits_V[token])
        return worst, where

    def of_both(talk: Talk) -> tuple[dict[str, Evaluation], tuple[float, str]]:
        found = of_windows(talk)
        if not made.program:
            return found, (0.0, made.not_exported)
        talk.anew()
        worst, where = of_prefixes(talk)
        random_BS = rng.integers(0, vocab, (rows, length), dtype=np.int32)
        if worst <= MOST_APART and not _sum_to_one(talk.logits(random_BS)):
            worst, where = math.inf, NONE
        return found, (worst, where)

    found, (worst, where) = ask.talk(model, folder, rows, made.program, of_both)
    return found, Examined(
        positions=len(places),
        largest=min(worst, 1e30),
        void=where[:500] if worst > MOST_APART or not made.program else "",
        forward_flops_per_token=made.forward_flops_per_token,
        uncounted=made.uncounted[:500],
    )


def _sum_to_one(logits_BSV: np.ndarray) -> bool:
    """Whether each position's logits are those of probabilities: a softmax of them sums to 1."""
    z_BSV = np.asarray(logits_BSV, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        p_BSV = np.exp(z_BSV - z_BSV.max(axis=2, keepdims=True))
        sums_BS = (p_BSV / p_BSV.sum(axis=2, keepdims=True)).sum(axis=2)
    return bool((np.abs(sums_BS - 1) < MOST_APART).all())  # of nan: no


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
    """Batches of up to `rows` positions in which no row contains another's next token, because a
    program sees all rows of a batch. So no window is in a batch twice, nor together with the window
    that follows it."""
    found: list[list[Place]] = []
    taken: list[set[tuple[str, int]]] = []  # the windows of each batch
    first = 0  # the first batch with room
    for place in places:
        around = {(place.part, place.window + step) for step in (-1, 0, 1)}
        number = next(
            (n for n in range(first, len(found)) if len(found[n]) < rows and not around & taken[n]),
            len(found),
        )
        if number == len(found):
            found.append([])
            taken.append(set())
        found[number].append(place)
        taken[number].add((place.part, place.window))
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
    """Tokens (B, S): a window up to each position, and random after it; and positions (B,). Surplus
    rows are random."""
    length = next(iter(windows.values())).shape[1] - 1
    tokens_BS = rng.integers(0, vocab_size, (rows, length), dtype=np.int32)
    positions_B = np.zeros(rows, np.int32)
    for row, place in enumerate(batch):
        known = place.position + 1
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
        f"is {whole:.6g} when it sees the whole window, and {again:.6g} when it sees no more than "
        "what comes before"
    )
