"""The step that scores trained models: bits per byte on the validation tokens, as `scores.json`.
Each part of a mixture gives an equal share of the tokens, whatever its weight, so that mixtures of
the same parts are scored on the same text; `parts.json` has the parts' own scores. The parts of
conversations are the labels of their tokens. Own models run isolated; they are asked for logits,
which are scored here.

`measured.json` has all metrics of each model: `eval/bpb`; `eval/<part>/bpb` for each part of a
mixture; and for the lab's Decoder `weights/output_norm`, the Frobenius norm (the square root of the
sum of the squares) of its output matrix: `lm_head`, or `embedding` if the two are tied. The items
of bits per byte are windows (`engine.training.evaluate`).

`curves.json` has `eval/bpb` after each step whose parameters a model's folder has."""

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.data.sampling import apportion
from engine.data.token_store import TokenStore
from engine.model.decoder import Decoder, Params
from engine.training.digest import tree_sha256
from engine.training.evaluate import Evaluation, bits_per_byte, together
from runner.lib.own_code_errors import BadOwnCode, blamed
from runner.schema import metrics
from runner.worker.models import look_ahead_probe, params_file, trained
from runner.worker.models.plugin_model import Functions
from runner.worker.texts.mixtures import scored_parts

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
    scores, by_part = dict[str, Any](), dict[str, Any]()
    measured, curves = dict[str, Found](), dict[str, Found]()
    every = models.items() if isinstance(models, Mapping) else [("", models)]
    said = {label: planned_model(ask, label, folder) for label, folder in every}
    # Own models come first: children are forked, and JAX has many threads once it is used.
    for label, folder in sorted(every, key=lambda of: not said[of[0]].own):
        scored = _scorer(said[label], functions, ask, parts)
        about, found, weights = scored(folder, label)
        scores[label] = _figures(together(list(found.values()))) | about
        by_part[label] = {name: _figures(part) for name, part in found.items()}
        measured[label] = _of_text(found) | weights
        curves[label] = {}
        for step in params_file.snapshots_in(folder):
            which = f"{label} at step {step}".strip()
            about, found, _ = scored(params_file.snapshot_of(folder, step), which)
            void = about.get("examined", {}).get("void")
            curves[label][str(step)] = None if void else _of_text(found)[metrics.BPB]
    _write(out / "scores.json", scores)
    if len(validation) > 1:
        _write(out / "parts.json", by_part)
    (out / metrics.MEASURED).write_bytes(metrics.written(measured))
    if any(curves.values()):
        (out / metrics.CURVES).write_bytes(metrics.written(curves))


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


class Scored(NamedTuple):
    """What is known of one set of parameters."""

    about: dict[str, Any]  # further entries of scores.json
    found: dict[str, Evaluation]  # by part
    weights: Found


def _scorer(
    model: trained.Planned,
    functions: Functions,
    ask: look_ahead_probe.Ask | None,
    parts: Mapping[str, tuple[TokenStore, int]],
) -> Callable[[Path, str], Scored]:
    """A function that scores the model's parameters in a folder, called by a label."""
    if ask and model.own:
        return _asker(model, ask, parts)
    made = trained.model_of(model, functions)

    def scored(folder: Path, label: str) -> Scored:
        params = trained.params_of(folder, made)
        with blamed(model.own, f"scoring {label}") if model.own else nullcontext():
            found = {
                name: bits_per_byte(made, params, store, share)
                for name, (store, share) in parts.items()
            }
        of_lab = isinstance(made, Decoder)
        weights = {metrics.OUTPUT_NORM: metrics.score(output_norm(params))} if of_lab else {}
        return Scored({"params_sha256": tree_sha256(params)}, found, weights)

    return scored


def _asker(
    model: trained.Planned,
    ask: look_ahead_probe.Ask,
    parts: Mapping[str, tuple[TokenStore, int]],
) -> Callable[[Path, str], Scored]:
    """The same for a model whose code does not run here. It is exported once."""

    @cache
    def program() -> look_ahead_probe.Program:
        return look_ahead_probe.exported(ask, model)

    def scored(folder: Path, label: str) -> Scored:
        with blamed(f"the model {label}".strip(), "scored"):
            try:
                sha256, parameters = params_file.measured(folder)
                found, examined = look_ahead_probe.scored(ask, model, program(), folder, parts)
            except MemoryError as error:
                raise BadOwnCode(
                    f"scoring it takes more memory than there may be ({error})"
                ) from error
        about = {
            "params_sha256": sha256,
            "parameters": parameters,
            "examined": examined._asdict(),
        }
        return Scored(about, found, {})

    return scored


def _figures(of: Evaluation) -> dict[str, Any]:
    return {"bpb": of.bpb, "loss": of.loss, "targets": of.targets}


def _write(path: Path, scores: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(scores, indent=1, sort_keys=True) + "\n")
