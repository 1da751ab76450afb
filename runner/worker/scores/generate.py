"""The step that has models continue prompts: `completions.jsonl`, a line for each model, prompt and
seed, in this order. Own models run isolated; they are asked for logits, from which this process
draws."""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.data.chat_template import BadTemplate
from engine.data.sampling import apportion
from engine.data.token_store import TokenStore, WrongTokens
from engine.data.tokenize import Tokenizer
from engine.model.generation import Completion, Prompt, Sampling
from engine.training.evaluate import CannotScore
from runner.worker.models import chat, look_ahead_probe
from runner.worker.models.plugin_model import Functions
from runner.worker.scores.answers import Answers, answered, check_vocabulary
from runner.worker.scores.evaluate import planned_model
from runner.worker.texts.mixtures import parts_of


class Text(NamedTuple):
    """What a model continues."""

    text: str
    ids: np.ndarray  # (N,) its tokens
    stops: Sequence[str]  # what ends a completion


def generate(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path | Mapping[str, Path]],
    out: Path,
    functions: Functions = {},  # noqa: B006  # never changed
    ask: look_ahead_probe.Ask | None = None,
) -> None:
    """Lines of {model, prompt, seed, completion, tokens, logprob, ended} from each of the input
    `models`: how many tokens the completion has, their log-probability under the model in nats
    (sampling aside), and why it ended. Raises WrongTokens, CannotScore, BadTemplate and
    BadOwnCode."""
    models, tokens = inputs["models"], inputs["tokens"]
    assert isinstance(tokens, Path)
    stores = [store for store, _ in parts_of(tokens, "validation").values()]
    tokenizer = stores[0].tokenizer()
    every = models.items() if isinstance(models, Mapping) else [("", models)]
    said = {label: planned_model(ask, label, folder) for label, folder in every}
    sampling = Sampling(*(config[key] for key in Sampling._fields))
    lines: dict[str, list[dict[str, Any]]] = {}
    check_vocabulary(tokenizer, said)
    # Own models come first: children are forked, and JAX has many threads once it is used.
    for label, folder in sorted(every, key=lambda of: not said[of[0]].own):
        context = int(said[label].config["seq_len"])
        texts = _texts(config, tokenizer, stores, context)
        texts += _chats(config, tokenizer, label, folder)
        prompts = _prompts(config, [text.ids for text in texts], context)
        about = partial(_completions, prompts, config["tokens"], sampling)
        made, _ = answered(said[label], folder, functions, ask, about)
        lines[label] = [
            {"model": label, "prompt": texts[prompt.number].text, "seed": prompt.seed}
            | ended(tokenizer, completion, texts[prompt.number].stops)
            for prompt, completion in zip(prompts, made, strict=True)
        ]
    with (out / "completions.jsonl").open("w", encoding="utf-8") as file:
        for line in (line for label, _ in every for line in lines[label]):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _texts(
    config: Mapping[str, Any], tokenizer: Tokenizer, stores: Sequence[TokenStore], context: int
) -> list[Text]:
    """The prompts that are written, then those of the validation text, an equal share of each of
    its parts. Raises WrongTokens."""
    written, stops = config["prompts"], config["stop"]
    encoded = tokenizer.encode_batch(written)
    found = [Text(text, ids, stops) for text, ids in zip(written, encoded, strict=True)]
    shares = apportion([1] * len(stores), config["held_out"])
    for store, share in zip(stores, shares, strict=True):
        for ids in _beginnings(store, share, config["held_out_tokens"], context):
            text = tokenizer.decode([int(token) for token in ids])
            found.append(Text(text, ids, stops))
    return found


def _chats(config: Mapping[str, Any], tokenizer: Tokenizer, label: str, folder: Path) -> list[Text]:
    """The conversations as the model's chat template writes them. Raises BadTemplate."""
    if not config.get("chats"):
        return []
    if (talk := chat.of(folder)) is None:
        raise BadTemplate(
            f"the model {label} has no chat template, so it answers no `chats`; name one that was "
            "trained on conversations, or write `prompts`"
        )
    stops = [*config["stop"], *([talk.end] if talk.end else [])]
    return [Text(*talk.prompt(messages, tokenizer), stops) for messages in config["chats"]]


def _beginnings(store: TokenStore, count: int, length: int, window: int) -> list[np.ndarray]:
    """The first `length` tokens of the first `count` documents that are as long; of windows, if
    there are fewer such documents. Raises WrongTokens."""
    offsets = np.concatenate(list(store.offsets_in_parts()))
    starts = offsets[:-1][np.diff(offsets) >= length][:count]
    if len(starts) < count:
        last = int(offsets[-1]) - length
        starts = np.arange(0, max(last + 1, 0), window)[:count]
    if len(starts) < count:
        raise WrongTokens(
            f"the validation text has {int(offsets[-1]):,} tokens, too few for {count:,} prompts; "
            "lower `held_out`"
        )
    return [np.asarray(store.read(slice(int(at), int(at) + length))) for at in starts]


def _prompts(
    config: Mapping[str, Any], encoded: Sequence[np.ndarray], context: int
) -> list[Prompt]:
    """One for each seed and prompt. Raises WrongTokens."""
    for number, ids in enumerate(encoded):
        if not 0 < len(ids) <= context - config["tokens"]:
            raise WrongTokens(
                f"prompt {number} has {len(ids)} tokens, and with {config['tokens']} more the "
                f"model's context of {context} (seq_len) is full; shorten it, or lower `tokens`"
            )
    return [
        Prompt(np.asarray(ids, np.int32), seed, number)
        for seed in config["seeds"]
        for number, ids in enumerate(encoded)
    ]


def _completions(
    prompts: Sequence[Prompt], count: int, sampling: Sampling, model: Answers
) -> list[Completion]:
    return model.generate(prompts, count, sampling)


def ended(tokenizer: Tokenizer, made: Completion, stops: Sequence[str]) -> dict[str, Any]:
    """The completion up to the end of its document or a stop string, neither of them included."""
    ids, why = [int(token) for token in made.tokens], "length"
    if tokenizer.end_of_document in ids:
        ids, why = ids[: ids.index(tokenizer.end_of_document)], "end of document"
    text = tokenizer.decode(ids)
    if found := [text.index(stop) for stop in stops if stop in text]:
        text, why = text[: min(found)], "stop"
        # The last tokens that are no longer; not the first as long: half a character counts as one.
        longer = bisect_right(
            range(len(ids) + 1), len(text), key=lambda n: len(tokenizer.decode(ids[:n]))
        )
        exact = tokenizer.decode(ids[: longer - 1]) == text
        ids = ids[: longer - 1 if exact else longer]  # otherwise the stop begins within a token
    logprobs = made.logprobs[: len(ids)]
    if not np.isfinite(logprobs).all():
        raise CannotScore(
            "a model's logits give no probabilities: one is not a number or infinite; let it "
            "return finite logits"
        )
    logprob = float(np.sum(logprobs, dtype=np.float64))
    return {"completion": text, "tokens": len(ids), "logprob": logprob, "ended": why}
