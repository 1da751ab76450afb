"""What tokens follow from, of executions without steps."""

import hashlib
from functools import lru_cache

from pydantic import JsonValue

from runner.lib.canonical_json import to_json
from runner.schema.record import PlannedData

TOKENS = "tokens"  # the step that holds them of an execution without steps


def tokens_key(data: PlannedData) -> dict[str, JsonValue]:
    """What the tokens follow from that runs without steps train on, which are the step TOKENS."""
    return {"tokenizer": data.tokenizer, "train": data.train_sha256}


@lru_cache(maxsize=1024)  # a site asks for that of every execution
def tokens_fingerprint(data: PlannedData) -> str:
    """SHA-256 over that."""
    return hashlib.sha256(to_json(tokens_key(data))).hexdigest()
