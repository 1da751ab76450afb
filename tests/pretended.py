"""Steps without Ray and without computing: an experiment of five steps whose outputs are made up,
to be handed to `StubRay.make_steps`. What they say follows from their configuration alone."""

import json
from collections.abc import Callable
from pathlib import Path

from runner.schema import step_graph
from runner.schema.record import PlannedStep
from runner.store import artifacts
from runner.store.store import Store
from tests.stub_trainer import StubJob

DECLARED = """\
title: Wide or deep?
resources: {kind: cpu}
steps:
  prepare: {do: own:prepare, as: small-2026-11, config: {documents: 40}}
  tokens: {do: tokenize, inputs: {text: prepare}}
  train:
    do: train
    inputs: {tokens: tokens}
    config:
      model: {hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}
      train: {train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}
    sweep: [{name: deep, model.num_layers: 2}, {name: wide, model.hidden_dim: 16}]
  evaluate: {do: evaluate, inputs: {models: train, tokens: tokens}, config: {tokens: 64}}
  compare: {do: own:compare, inputs: {scores: evaluate}}
"""
OWN = "def prepare(config, inputs, out): ...\ndef compare(config, inputs, out): ...\n"
RECEIPT = {"python": "3.11.7", "jax": "0.10.2", "device": "1 × cpu", "cpu": "A CPU"}


def declare(folder: Path, declared: str = DECLARED) -> Path:
    """The experiment in `folder`."""
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(declared)
    (folder / "own.py").write_text(OWN)
    return folder


def pretend(
    *,
    moved: float = 0.0,  # by how much scores and losses are higher
    receipt: dict[str, str] = RECEIPT,
    broken: str = "",  # a step that fails, with all that needs it
) -> Callable[[StubJob], None]:
    """Make the steps of an attempt's plan."""

    def job_of(job: StubJob) -> None:
        plan, store = job.spec.plan, Store(job.root)
        failed = set()
        for name in step_graph.order({name: step.needs for name, step in plan.steps.items()}):
            step = plan.steps[name]
            if failed & set(step.needs):
                failed.add(name)
                continue
            by = job.spec.attempt.partition(".")[0]
            build = _broken if name == broken else _building(plan.steps, name, moved)
            args = (store, step.store, step.fingerprint, build, {})
            try:
                artifacts.make(*args, by=by, receipt=lambda: receipt)
            except artifacts.MakingFailed:
                failed.add(name)

    return job_of


def _broken(_: Path) -> None:
    raise ValueError("no such word")


def _building(steps: dict[str, PlannedStep], name: str, moved: float) -> Callable[[Path], None]:
    step = steps[name]

    def bpb(model: str) -> float:
        config = steps[model].config
        return 3 + 10 * config["train"]["learning_rate"] / config["model"]["num_layers"] + moved

    def build(out: Path) -> None:
        if step.do == "train":
            lines = (json.dumps({"step": n, "loss": bpb(name) + 4 - n}) + "\n" for n in range(1, 5))
            (out / "curve.jsonl").write_text("".join(lines))
        elif step.do == "evaluate":
            scores = {
                model.partition("/")[2]: {
                    "bpb": bpb(model),
                    "loss": 2.0,
                    "targets": 64,
                    "params_sha256": "a" * 64,
                }
                for model in step.inputs["models"]
            }
            (out / "scores.json").write_text(json.dumps(scores))
        elif step.do == "own:compare":
            models = [other for other in steps if steps[other].do == "train"]
            lines = (f"| {model} | {bpb(model):.4f} |\n" for model in sorted(models))
            (out / "table.md").write_text("| arm | bits per byte |\n" + "".join(lines))
        else:
            (out / "text.txt").write_text(json.dumps(step.config, sort_keys=True))

    return build
