"""The step that scores trained models: bits per byte on the validation tokens, as `scores.json`.
Each part of a mixture gives an equal share of the tokens, whatever its weight, so that mixtures of
the same parts are scored on the same text; `parts.json` has the parts' own scores. Own models run
isolated; they are asked for logits, which are scored here."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from engine.data.sampling import apportion
from engine.data.token_store import TokenStore
from engine.training.digest import tree_sha256
from engine.training.evaluate import Evaluation, bits_per_byte, together
from runner.worker.builtin import look_ahead_probe, params_file, trained
from runner.worker.builtin.mixtures import parts_of
from runner.worker.builtin.own_code_errors import BadOwnCode, blamed
from runner.worker.builtin.plugin_model import Functions


def evaluate(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path | Mapping[str, Path]],
    out: Path,
    functions: Functions = {},  # noqa: B006  # never changed
    ask: look_ahead_probe.Ask | None = None,
) -> None:
    """{label: {bpb, loss, targets, params_sha256}} of each model of the input `models`."""
    models, tokens = inputs["models"], inputs["tokens"]
    assert isinstance(tokens, Path)
    validation = parts_of(tokens, "validation")
    shares = apportion([1] * len(validation), config["tokens"])
    parts = {
        name: (store, share)
        for (name, (store, _)), share in zip(validation.items(), shares, strict=True)
    }
    scores, by_part = {}, {}
    every = models.items() if isinstance(models, Mapping) else [("", models)]
    said = {label: planned_model(ask, label, folder) for label, folder in every}
    # Own models come first: children are forked, and JAX has many threads once it is used.
    for label, folder in sorted(every, key=lambda of: not said[of[0]].own):
        own = said[label].own
        if ask and own:
            scores[label], by_part[label] = _asked(ask, said[label], folder, parts, label)
            continue
        model = trained.model_of(said[label], functions)
        params = trained.params_of(folder, model)
        with blamed(own, f"scoring {label}") if own else nullcontext():
            found = {
                name: bits_per_byte(model, params, store, share)
                for name, (store, share) in parts.items()
            }
        digest = {"params_sha256": tree_sha256(params)}
        scores[label] = _figures(together(list(found.values()))) | digest
        by_part[label] = {name: _figures(part) for name, part in found.items()}
    _write(out / "scores.json", scores)
    if len(validation) > 1:
        _write(out / "parts.json", by_part)


def planned_model(ask: look_ahead_probe.Ask | None, label: str, folder: Path) -> trained.Planned:
    """The model as planned or, if no plan describes it, as its files do."""
    known = ask.models.get(label) if ask else None
    return known or trained.planned(folder)


def _asked(
    ask: look_ahead_probe.Ask,
    model: trained.Planned,
    folder: Path,
    parts: Mapping[str, tuple[TokenStore, int]],
    label: str,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of a model whose code does not run here, and those of the parts."""
    with blamed(f"the model {label}".strip(), "scored"):
        try:
            sha256, parameters = params_file.measured(folder)
            found, examined = look_ahead_probe.scored(ask, model, folder, parts)
        except MemoryError as error:
            raise BadOwnCode(f"scoring it takes more memory than there may be ({error})") from error
    about = {
        "params_sha256": sha256,
        "parameters": parameters,
        "examined": examined._asdict(),
    }
    by_part = {name: _figures(part) for name, part in found.items()}
    return _figures(together(list(found.values()))) | about, by_part


def _figures(of: Evaluation) -> dict[str, Any]:
    return {"bpb": of.bpb, "loss": of.loss, "targets": of.targets}


def _write(path: Path, scores: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(scores, indent=1, sort_keys=True) + "\n")
