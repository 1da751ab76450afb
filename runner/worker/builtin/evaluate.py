"""The step that scores trained models: bits per byte on the validation tokens, as `scores.json`.
Each part of a mixture gives an equal share of the tokens, whatever its weight, so that mixtures of
the same parts are scored on the same text; `parts.json` has the parts' own scores. The parts of
conversations are the labels of their tokens. Own models run isolated; they are asked for logits,
which are scored here.

`measured.json` has all metrics of each model: `eval/bpb`; `eval/<part>/bpb` for each part of a
mixture; and for the lab's Decoder `weights/output_norm`, the Frobenius norm (the square root of the
sum of the squares) of its output matrix: `lm_head`, or `embedding` if the two are tied. The items
of bits per byte are windows (`engine.training.evaluate`)."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from engine.data.sampling import apportion
from engine.data.token_store import TokenStore
from engine.model.decoder import Decoder, Params
from engine.training.digest import tree_sha256
from engine.training.evaluate import Evaluation, bits_per_byte, together
from runner.schema import metrics
from runner.worker.builtin import look_ahead_probe, params_file, trained
from runner.worker.builtin.mixtures import scored_parts
from runner.worker.builtin.own_code_errors import BadOwnCode, blamed
from runner.worker.builtin.plugin_model import Functions

Found = dict[str, metrics.Score | None]  # by metric


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
    validation = scored_parts(tokens)
    shares = apportion([1] * len(validation), config["tokens"])
    parts = {
        name: (store, share)
        for (name, store), share in zip(validation.items(), shares, strict=True)
    }
    scores, by_part, measured = {}, {}, dict[str, Found]()
    every = models.items() if isinstance(models, Mapping) else [("", models)]
    said = {label: planned_model(ask, label, folder) for label, folder in every}
    # Own models come first: children are forked, and JAX has many threads once it is used.
    for label, folder in sorted(every, key=lambda of: not said[of[0]].own):
        own = said[label].own
        if ask and own:
            about, found = _asked(ask, said[label], folder, parts, label)
            scores[label] = _figures(together(list(found.values()))) | about
            by_part[label] = {name: _figures(part) for name, part in found.items()}
            measured[label] = _of_text(found)
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
        measured[label] = _of_text(found)
        if isinstance(model, Decoder):
            measured[label][metrics.OUTPUT_NORM] = metrics.score(output_norm(params))
    _write(out / "scores.json", scores)
    if len(validation) > 1:
        _write(out / "parts.json", by_part)
    (out / metrics.MEASURED).write_bytes(metrics.written(measured))


def _of_text(found: Mapping[str, Evaluation]) -> Found:
    """The bits per byte of the whole and, if it is a mixture, of each part."""
    of = {metrics.BPB: together(list(found.values()))}
    if len(found) > 1:
        of |= {metrics.of_part(name): part for name, part in found.items()}
    return {
        metric: metrics.score(one.bpb, one.windows, one.standard_error)
        for metric, one in of.items()
    }


def output_norm(params: Params) -> float:
    """The Frobenius norm of the matrix from features to logits of a Decoder's parameters."""
    matrix = params.get("lm_head", params["embedding"])
    return float(np.linalg.norm(np.asarray(matrix, np.float64)))


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
) -> tuple[dict[str, Any], dict[str, Evaluation]]:
    """What is known of a model whose code does not run here, and the scores of the parts."""
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
    return about, found


def _figures(of: Evaluation) -> dict[str, Any]:
    return {"bpb": of.bpb, "loss": of.loss, "targets": of.targets}


def _write(path: Path, scores: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(scores, indent=1, sort_keys=True) + "\n")
