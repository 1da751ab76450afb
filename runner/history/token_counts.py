"""How many tokens the texts of a plan have, as far as they are tokenized already."""

from collections.abc import Iterator

from runner.history.step_runs import UNBELIEVED, file_of
from runner.lib import bounds
from runner.schema.record import Plan
from runner.store.store import Store

MANIFEST = "manifest.json"  # of a token store; `engine.data.arrays` would import TensorStore


def told(store: Store, plan: Plan) -> Iterator[str]:
    """A sentence for each `tokenize` step of the plan that was made before."""
    for name, step in plan.steps.items():
        if step.do != "tokenize":
            continue
        try:
            train, held_out = (
                file_of(store, step, f"{split}/{MANIFEST}") for split in ("train", "validation")
            )
            if train is None or held_out is None:
                continue
            tokens = [int(bounds.plain(one)["tokens"]) for one in (train, held_out)]
        except (*UNBELIEVED, ValueError, KeyError, TypeError):
            continue  # running the plan names what is damaged
        yield f"{name}: {tokens[0]:,} tokens to train on, {tokens[1]:,} held out"
