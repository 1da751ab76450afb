"""Asks a trained model how likely given tokens are, and how it continues a prompt. The lab's models
compute here. Own models run isolated and are asked for logits.

An own model that gets a whole window could look at the tokens that it should predict. So it is
asked again at secret positions, each with random tokens after it and in the other rows, in a
process that knows nothing of the earlier questions (`runner.worker.models.look_ahead_probe`)."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol, TypeVar

import jax
import numpy as np

from engine.data.token_store import WrongTokens
from engine.data.tokenize import Tokenizer
from engine.model.decoder import Decoder, Model, Params
from engine.model.generation import Completion, Prompt, Sampling, generate, generate_from
from engine.model.scoring import Continuation, Scored, score, score_from
from engine.training.evaluate import NO_PROBABILITIES, CannotScore, rows_of_a_batch
from runner.lib.own_code_errors import blamed
from runner.worker.models import look_ahead_probe, trained
from runner.worker.models.look_ahead_probe import Ask, Place, Talk
from runner.worker.models.plugin_model import Functions

PROBES = 128  # positions that are asked again, one at a time, of those that are scored together
T = TypeVar("T")


class Answers(Protocol):
    """A model that answers."""

    seq_len: int

    def score(self, asked: Sequence[Continuation]) -> list[Scored]:
        """The log-probabilities of these tokens. Raises CannotScore."""

    def generate(
        self, prompts: Sequence[Prompt], count: int, sampling: Sampling
    ) -> list[Completion]:
        """`count` tokens after each prompt."""


def check_vocabulary(tokenizer: Tokenizer, said: Mapping[str, trained.Planned]) -> None:
    """Raises WrongTokens if a model does not know all of the tokenizer's tokens, as if it was
    trained with another one."""
    known = min(int(of.config["vocab_size"]) for of in said.values())
    if tokenizer.vocab_size > known:
        raise WrongTokens(
            f"the tokenizer has {tokenizer.vocab_size} tokens and a model's vocab_size is {known}; "
            "let the input `tokens` be what the models were trained on"
        )


def answered(
    this: trained.Planned,
    folder: Path,
    functions: Functions,
    ask: Ask | None,
    about: Callable[[Answers], T],
) -> tuple[T, str]:
    """The result of `about`, which asks the model with its parameters in `folder`; and why scores
    of these answers do not count, empty if they do. Raises CannotScore and BadOwnCode."""
    length, vocab = int(this.config["seq_len"]), int(this.config["vocab_size"])
    rows = rows_of_a_batch(length, vocab)
    with blamed(this.own, "asked") if this.own else nullcontext():
        if ask and this.own:
            made = ask.export(this, rows)

            def of_talk(talk: Talk) -> tuple[T, str]:
                model = _FromLogits(talk, rows, length, vocab, ask.exact)
                result = about(model)
                if not made.program:
                    return result, made.not_exported
                return result, model.void()

            return ask.talk(this, folder, rows, made.program, of_talk)
        model = trained.model_of(this, functions)
        params = jax.device_put(trained.params_of(folder, model))
        if isinstance(model, Decoder):
            answers = _OfTheLab(model, params)
            return about(answers), answers.void
        return about(_FromLogits(_Here(model, params), rows, length, vocab)), ""


class _OfTheLab:
    def __init__(self, decoder: Decoder, params: Params) -> None:
        self._decoder, self._params, self.seq_len = decoder, params, decoder.config.seq_len
        self.void = ""

    def score(self, asked: Sequence[Continuation]) -> list[Scored]:
        found = score(self._decoder, self._params, asked)
        self.void = self.void or ("" if _finite(found) else NO_PROBABILITIES)
        return found

    def generate(
        self, prompts: Sequence[Prompt], count: int, sampling: Sampling
    ) -> list[Completion]:
        return generate(self._decoder, self._params, prompts, count, sampling)


class _FromLogits:
    def __init__(
        self, talk: Talk, rows: int, seq_len: int, vocab_size: int, exact: bool = True
    ) -> None:
        self._talk, self._rows, self._vocab, self._exact = talk, rows, vocab_size, exact
        self.seq_len = seq_len
        self._rng = np.random.default_rng(secrets.randbits(128))
        # Numbers of questions, tokens, positions and logits.
        self._seen: list[tuple[int, np.ndarray, int, np.ndarray]] = []

    def score(self, asked: Sequence[Continuation]) -> list[Scored]:
        # Of each call, because a program may know a task by its tokens and cheat in it alone.
        drawn = self._rng.choice(len(asked), size=min(PROBES, len(asked)), replace=False)
        positions = {
            int(number): int(self._rng.integers(asked[number].start, len(asked[number].tokens))) - 1
            for number in drawn
        }

        def seen(number: int, logits_SV: np.ndarray) -> None:
            if (position := positions.get(number)) is not None:
                tokens = np.asarray(asked[number].tokens)
                self._seen.append((number, tokens, position, logits_SV[position].copy()))

        found = score_from(self._talk.logits, asked, self._rows, self.seq_len, seen)
        if not _finite(found):
            raise CannotScore(
                f"{NO_PROBABILITIES}; return finite logits, which are normalised here"
            )
        return found

    def generate(
        self, prompts: Sequence[Prompt], count: int, sampling: Sampling
    ) -> list[Completion]:
        return generate_from(self._talk.logits, prompts, count, sampling, self._rows, self.seq_len)

    def void(self) -> str:
        """Where the model's logits depend on what comes after, or that they give no probabilities
        on random tokens; empty if neither."""
        if not self._seen:
            return ""
        comparison = look_ahead_probe.Comparison(self._exact)
        self._talk.anew()
        for number, tokens, position, whole_V in self._seen:
            row = number % self._rows
            windows = np.zeros((row + 1, self.seq_len + 1), np.int32)
            windows[row, : len(tokens)] = tokens
            again_BV = self._talk.logits(
                *look_ahead_probe.prefixes(
                    self._rng, [Place("", row, position)], {"": windows}, self._rows, self._vocab
                )
            )
            place, target = Place("", number, position), int(tokens[position + 1])
            comparison.add(place, target, whole_V, again_BV[row])
        return comparison.void() or look_ahead_probe.void_on_random_tokens(
            self._talk, self._rng, (self._rows, self.seq_len), self._vocab
        )


def _finite(found: Sequence[Scored]) -> bool:
    return all(np.isfinite(of.logprobs).all() for of in found)


class _Here:
    """Answers as an isolated process would (`runner.worker.models.look_ahead_probe.Talk`)."""

    def __init__(self, model: Model, params: Any) -> None:
        self._run, self._params = jax.jit(model.logits), params

    def logits(self, tokens_BS: np.ndarray, positions_B: np.ndarray | None = None) -> np.ndarray:
        logits_BSV = self._run(self._params, tokens_BS)
        if positions_B is not None:
            return np.asarray(logits_BSV[np.arange(len(tokens_BS)), positions_B])
        return np.asarray(logits_BSV)

    def anew(self) -> None:
        """It has no memory between questions that anybody would have to distrust."""
