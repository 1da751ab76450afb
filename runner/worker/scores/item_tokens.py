"""How items become tokens, and tokens the text of an answer. Pure."""

from collections.abc import Sequence

import numpy as np

from engine.data.token_store import WrongTokens
from engine.data.tokenize import Tokenizer
from engine.model.scoring import Continuation


def continuation(tokenizer: Tokenizer, before: str, after: str) -> Continuation:
    """`after`, to be scored after `before`. Both are tokenised together, and spaces at the end of
    `before` belong to `after`, as in EleutherAI's lm_eval: tokens of many tokenizers begin with a
    space. If all of it is one token, it is scored after the one that ends documents. Raises
    WrongTokens if there is none."""
    both, first = tokenizer.encode_batch([before + after, without_spaces(before)])
    ids = np.asarray(both, np.int32)
    if len(ids) < 2:  # nothing is before the one token that is scored
        if tokenizer.end_of_document is None:
            raise WrongTokens(
                f"{before + after!r} is one token, of which nothing can be scored, because no "
                "token of this tokenizer ends documents; write a longer context"
            )
        ids = np.concatenate([np.array([tokenizer.end_of_document], np.int32), ids])
    return Continuation(ids, max(1, min(len(first), len(ids) - 1)))


def without_spaces(before: str) -> str:
    """A context without the spaces at its end, unless it has nothing else."""
    return before.rstrip() or before


def windows(tokenizer: Tokenizer, text: str, context: int) -> tuple[list[Continuation], int]:
    """A text in windows of the model's context that share no scored token, and how many bytes are
    scored. The last window reaches back to fill the context. The first token is scored after the
    one that ends documents; if there is none, it is not scored."""
    ids = np.asarray(tokenizer.encode_batch([text])[0], np.int32)
    size = len(text.encode())
    if tokenizer.end_of_document is not None:
        ids = np.concatenate([np.array([tokenizer.end_of_document], np.int32), ids])
    elif len(ids) < 2:
        raise WrongTokens(
            "a text of one token has nothing to score, because no token of this tokenizer ends "
            "documents; write a longer text"
        )
    else:
        size -= len(tokenizer.text_of(ids[:1]).removeprefix(tokenizer.prefix))
    found = []
    for first in range(1, len(ids), context):
        end = min(first + context, len(ids))
        begin = max(0, end - context - 1)
        found.append(Continuation(ids[begin:end], first - begin))
    return found, size


def until(tokenizer: Tokenizer, tokens: np.ndarray, stops: Sequence[str]) -> str:
    """The text of these tokens up to the first stop string or the end of its document."""
    ids = [int(token) for token in tokens]
    if tokenizer.end_of_document in ids:
        ids = ids[: ids.index(tokenizer.end_of_document)]
    text = tokenizer.decode(ids)
    return text[: min([text.index(stop) for stop in stops if stop in text], default=len(text))]
