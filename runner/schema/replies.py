"""What a language model is asked about a document and what it replied, as the store keeps it. Pure,
but for `read`.

In the store, `replies/` has:

    asked/<request>.<n>.json      before the n-th time that a request is sent
    answers/<request>.<n>.json    what came of it
    steps/<fingerprint>/          for a `label` step: `replies.json`, all answers, by request

A request is named by the SHA-256 of all that is sent: model, prompt with document, and settings."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from runner.lib import bounds, untrusted_files
from runner.lib.base_record import Record
from runner.lib.bounds import Count
from runner.lib.canonical_json import to_json

FOLDER, FILE = "replies", "replies.json"
MAX_REPLY = 20_000  # characters
MAX_BYTES = 1 << 30  # of all replies of a step
WORDS = {"great": 5, "good": 4, "okay": 3, "poor": 2, "useless": 1}
MISSING = (
    "no reply to it is recorded; the operator runs `regatta label EXECUTION` where the lab has an "
    "endpoint, and then the experiment runs again"
)
_SAID = r"final score[\s*_]*[:：][\s*_\[]*"
_OTHER_SCALE = r"[\s*_\]]*(?:/|out of)\s*+(?!5\b)"  # 4/10 is no 4 of 5
_FINAL = {
    "words": re.compile(_SAID + r"(great|good|okay|poor|useless)\b", re.IGNORECASE),
    "digits": re.compile(rf"{_SAID}([0-5])(?![.,–-]?[0-9]|{_OTHER_SCALE})", re.IGNORECASE),
}


class NoReplies(ValueError):
    """A step has no reply for a document."""


class Asked(Record):
    """A request that is about to be sent."""

    by: str  # the fingerprint of the step
    tokens: Count  # that it may use at most
    dollars: float  # that it may cost at most


class Answer(Record):
    """What came of a request: a reply; no reply, and why; or a refusal, after which it may be sent
    again."""

    by: str
    reply: str | None = None
    why: str = ""
    refused: bool = False
    tokens: Count = 0  # that it used or, if this is not known, may have used
    dollars: float = 0.0


class Reply(Record):
    """An answer as a step reads it."""

    reply: str | None = None
    why: str = ""


BUNDLE = TypeAdapter(dict[str, Reply])


def request(ask: Mapping[str, Any], text: str) -> dict[str, Any]:
    """What is sent for a document, by the section `ask` of a declaration."""
    prompt = str(ask["prompt"]).replace("{example}", text[: ask["characters"]])
    return {
        "model": ask["model"],
        "messages": [{"role": "user", "content": prompt}],
        "temperature": ask["temperature"],
        "max_tokens": ask["reply_tokens"],
    }


def sha256(request: Mapping[str, Any]) -> str:
    """The name of a request."""
    return hashlib.sha256(to_json(request)).hexdigest()


def label_in(reply: str, kind: Literal["words", "digits"]) -> int:
    """The score that a reply gives last, after what the model thought: 5 to 1 for Great to Useless,
    or 0 to 5; −1 if it gives none."""
    found = _FINAL[kind].findall(reply.rpartition("</think>")[2].partition("<think>")[0])
    if not found:
        return -1
    return WORDS[found[-1].lower()] if kind == "words" else int(found[-1])


def folder(fingerprint: str) -> str:
    """The store's folder with all replies for a step."""
    return f"{FOLDER}/steps/{fingerprint}"


def read(place: Path | None) -> dict[str, Reply]:
    """{request: reply} from such a folder. Raises NoReplies and Refused."""
    data = untrusted_files.read(place / FILE, MAX_BYTES) if place else None
    if data is None:
        raise NoReplies(MISSING.replace("no reply to it", "no reply"))
    return bounds.parse(BUNDLE, data, MAX_BYTES)
