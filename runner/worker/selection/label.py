"""The step that labels a sample of a text's train split: `labels.jsonl`, the documents in their
order, with `label` and `labelled_by`. A document that has no label gets −1. What a language model
replied is in the store, where `regatta label` has put it (`runner.publish.asking`)."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.data.documents import Document, as_line, whole_documents
from engine.data.lab_texts import BadText
from runner.lib.own_code_errors import BadOwnCode, blamed
from runner.schema import replies
from runner.spec.step_types import KEPT
from runner.worker.selection.classify import LABELS, UNREADABLE
from runner.worker.selection.select import drawn
from runner.worker.texts.attributes import identity
from runner.worker.texts.reports import Tally
from runner.worker.texts.shards import of_split, shards

MAX_SHOWN = 100  # different labels in the report
NO_LABEL = "it has no label"
NO_SCORE = "its reply has no final score; if it was cut off, raise `reply_tokens`"


class Found(NamedTuple):
    """The label of a document."""

    label: float  # −1: none
    why: str = ""  # it has none
    reply: str | None = None  # of a language model


Labeller = Callable[[Document, str], Found]  # from a document and its identity


def label(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path],
    out: Path,
    functions: Mapping[str, Callable[[Document], Any]] = {},  # never changed
) -> None:
    """Label a sample. Raises BadText and BadOwnCode."""
    by, labeller = _labeller(config, inputs, functions)
    tally, labels = Tally(), Counter[float]()
    with (out / LABELS).open("wb") as file:
        for known, document in sample(inputs["text"], config["documents"], config["seed"]):
            found = labeller(document, known)
            if found.label == UNREADABLE:
                tally.leave_out(document, found.why or NO_LABEL)
            else:
                tally.keep(document)
                labels[found.label] += 1
            more = {"id": known, "label": found.label, "labelled_by": by}
            more |= {} if found.reply is None else {"reply": found.reply}
            file.write(as_line({**document, **more}))
    for value, count in labels.most_common():
        shown = f"label {value:g}" if len(tally.counted) < MAX_SHOWN else "another label"
        tally.counted[f"{shown}, by {by}"] += count
    tally.write(out)


def _labeller(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path],
    functions: Mapping[str, Callable[[Document], Any]],
) -> tuple[str, Labeller]:
    """Who labels, in words, and how."""
    if config["rule"] is not None:
        pattern = re.compile(config["rule"])
        return "rule", lambda document, _: Found(int(bool(pattern.search(document["text"]))))
    if name := config["function"]:
        function = functions[name]
        return f"rule {name}", lambda document, known: _called(name, function, document, known)
    ask = config["ask"]
    recorded = replies.read(inputs.get(KEPT))

    def replied(document: Document, known: str) -> Found:
        one = recorded.get(replies.sha256(replies.request(ask, document["text"])))
        if one is None:
            raise replies.NoReplies(f"document {known}: {replies.MISSING}")
        if one.reply is None:
            return Found(UNREADABLE, one.why)
        label = replies.label_in(one.reply, ask["replies"])
        return Found(label, NO_SCORE if label == UNREADABLE else "", one.reply)

    return ask["model"], replied


def _called(
    name: str, function: Callable[[Document], Any], document: Document, known: str
) -> Found:
    """The label that an own function gives. Raises BadOwnCode."""
    with blamed(name, f"document {known}"):
        found = function(dict(document))
    if found is None:
        return Found(UNREADABLE)
    if isinstance(found, bool) or not isinstance(found, Real) or not isfinite(found):
        raise BadOwnCode(
            f"{name}, document {known}: it gave {found!r}; it gives a number, or None for no label"
        )
    return Found(found if isinstance(found, int) else float(found))  # or a number of numpy


def sample(text: Path, count: int, seed: int) -> Iterator[tuple[str, Document]]:
    """(identity, document) of so many documents of the train split, in order: those whose hashes
    with the seed are lowest. All if there are fewer."""
    mine = {name: path for name, path in shards(text).items() if of_split("train", name)}
    draws = [
        np.fromiter((drawn(seed, known) for known, _ in _identified(*one)), np.uint64)
        for one in mine.items()
    ]
    every = np.concatenate(draws)
    marks = np.zeros(len(every), bool)
    marks[np.argsort(every, kind="stable")[:count]] = True
    ends = np.cumsum([len(one) for one in draws])
    for one, part in zip(mine.items(), np.split(marks, ends[:-1]), strict=True):
        if part.any():
            for found, mark in zip(_identified(*one), part.tolist(), strict=True):
                if mark:
                    yield found


def requests(text: Path, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `regatta label` sends for the text in a folder. Raises BadText."""
    documents = sample(text, config["documents"], config["seed"])
    try:
        return [replies.request(config["ask"], document["text"]) for _, document in documents]
    except OSError as error:
        raise BadText(" ".join(str(error).split())) from error


def _identified(name: str, path: Path) -> Iterator[tuple[str, Document]]:
    for number, document in enumerate(whole_documents(path), 1):
        yield identity(document, name, number), document
