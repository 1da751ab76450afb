"""The steps that exchange models with Hugging Face's `transformers`: `export` writes the folders
that it loads, `import` takes in one that it wrote. What `import` makes is like the output of
`train`, and has the model's own tokenizer and chat template beside it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import safetensors.numpy

from engine.data import chat_template
from engine.data.tokenize import Tokenizer
from engine.training import pretrained
from engine.training.architectures import CannotExchange
from engine.training.digest import leaves
from engine.training.export import export
from runner.isolation import template_child
from runner.spec.step_types import KEPT
from runner.store import digests
from runner.worker.models import chat, model_card, trained
from runner.worker.models.params_file import PARAMS
from runner.worker.texts import tokens
from runner.worker.texts.mixtures import parts_of

CARD = "README.md"  # where the Hub looks for a model card


def export_models(
    config: Mapping[str, Any], inputs: Mapping[str, Path | Mapping[str, Path]], out: Path
) -> None:
    """Write the input `models` for `transformers`: one to `out`, those of a sweep to folders in it
    with their labels. All inputs but `models` and `tokens` are scores, for the model cards. Raises
    CannotExchange, BadTemplate and BadOwnCode."""
    models, stores = inputs["models"], inputs["tokens"]
    assert isinstance(stores, Path)
    others = (of for name, of in inputs.items() if name not in ("models", "tokens"))
    scores = model_card.scores_in(of for of in others if isinstance(of, Path))
    for label, folder in models.items() if isinstance(models, Mapping) else [("", models)]:
        target = out / label if label else out
        export_one(config, label, folder, tokenizer_of(folder, stores), scores, target)


def tokenizer_of(folder: Path, stores: Path | None) -> Tokenizer:
    """The tokenizer of a model: its own if it was imported, or that of the token stores that it was
    trained on. Raises CannotExchange if there is none."""
    if found := tokens.written_tokenizer(folder):
        return found
    if stores is None:
        raise CannotExchange(
            "the model has no tokenizer; import it again from a folder with a tokenizer.json"
        )
    return next(iter(parts_of(stores, "validation").values()))[0].tokenizer()


def export_one(
    config: Mapping[str, Any],
    label: str,
    folder: Path,
    tokenizer: Tokenizer,
    scores: model_card.Scores,
    target: Path,
) -> None:
    """Write the model in `folder`, which has this label among the scores, to `target`. Raises
    CannotExchange, BadTemplate and BadOwnCode."""
    this = trained.planned(folder)
    if this.own:
        raise CannotExchange(
            f"the model is {this.own}, which no other tool has the code of; export a model of "
            "the lab's, or take params.safetensors from the output of its `train` step"
        )
    model = trained.model_of(this, {})
    params = trained.params_of(folder, model)
    talk = chat.of(folder)
    template, end = (talk.template, talk.end) if talk else (None, None)
    export(
        *(target, model, params, tokenizer),
        chat_template=template,
        end_of_turn=end,
        dtype=config["dtype"],
    )
    count = sum(array.size for array in jax.tree.leaves(params))
    stop = end if end and tokenizer.as_token(end) is None else None
    card = model_card.written(
        config, label, this.config, count, scores, chats=template is not None, stop=stop
    )
    (target / CARD).write_text(card, encoding="utf-8")


def import_model(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Read the model that the store keeps under its digest. Raises CannotExchange."""
    folder = inputs[KEPT]
    if digests.sha256(digests.digests(folder)) != config["sha256"]:
        raise CannotExchange(
            f"the files of {config['model']} in the store are not those with this digest; remove "
            f"{folder}, and fetch it again with `regatta import`"
        )
    take_in(folder, out, config["seq_len"])


def take_in(folder: Path, out: Path, seq_len: int | None) -> None:
    """Write the model in a folder of `transformers` as a `train` step writes its own. Raises
    CannotExchange."""
    config, params = pretrained.read(folder, seq_len)
    safetensors.numpy.save_file(leaves(params), out / PARAMS)
    (out / trained.MODEL).write_text(json.dumps(config.model_dump(), sort_keys=True) + "\n")
    if tokenizer := pretrained.read_tokenizer(folder):
        tokens.write_tokenizer(tokenizer, out)
    if (template := chat_template_of(folder)) is not None:
        (out / chat_template.FILE).write_text(template, encoding="utf-8")


def chat_template_of(folder: Path) -> str | None:
    """The chat template in a folder of `transformers`, which was tried; None if there is none.
    Raises CannotExchange."""
    template = pretrained.read_chat_template(folder)
    try:
        if template is not None:
            template_child.try_(template)
    except chat_template.BadTemplate as error:
        raise CannotExchange(
            f"the chat template in {folder} cannot be used: {error}; repair it, or remove it"
        ) from error
    return template
