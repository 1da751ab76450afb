"""`train` continues a model: with its moments and schedule it ends where one long run ends."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from runner.planning import planner
from runner.store.artifacts import Made, MakingFailed
from runner.store.store import Store
from tests.integration.runner.test_execute import made

HEAD = """title: T
resources: {kind: cpu}
steps:
  tokens: {do: tokenize, config: {source: lab-2026-11}}
"""
MODEL = "hidden_dim: 8, intermediate_dim: 16, num_layers: 2, num_heads: 2, seq_len: 16"
OWN = """
import jax

class Table:
    def __init__(self, config):
        self.vocab, self.wide = config["vocab_size"], config.get("wide", 1)

    def init(self, key):
        drawn = jax.random.normal(key, (self.vocab, self.vocab))
        return {"table": {f"w{n}": drawn for n in range(self.wide)}}

    def logits(self, params, tokens):
        return sum(w[tokens] for w in params["table"].values())
"""


def step(
    name: str, steps: int, of: str = "", more: str = "", train: str = "", model: str = MODEL
) -> str:
    return f"""  {name}:
    do: train
    inputs: {{tokens: tokens{f", init: {of}" if of else ""}}}
    config: {{model: {{{model}}}, seed: 3, train: {{train_batch_size: 2, num_train_steps: {steps},
      learning_rate: 0.01, lr_schedule: constant, ema_decay: 0.9,
      checkpoint_every: 2{train}}}{more}}}
"""


def outputs(tmp_path: Path, declared: str) -> dict[str, Path]:
    folder = tmp_path / "of-init"
    folder.mkdir()
    (folder / "experiment.yaml").write_text(HEAD + declared)
    (folder / "model.py").write_text(OWN)
    store = Store(tmp_path / "store")
    found: dict[str, Made] = dict(made(store, planner.plan_folder(folder, store)))
    return {name: one.folder for name, one in found.items()}


def same(one: Path, other: Path, name: str) -> bool:
    return (one / name).read_bytes() == (other / name).read_bytes()


def test_two_runs_with_moments_and_schedule_are_one_run(tmp_path: Path) -> None:
    keep = ", keep_moments: true"
    on = ", init: {moments: true, schedule: continue}"
    out = outputs(
        tmp_path,
        step("whole", 8, train=keep)
        + step("first", 5, train=keep)
        + step("second", 3, "first", on, keep)
        + step("afresh", 3, "first"),
    )
    assert same(out["whole"], out["second"], "params.safetensors")
    assert same(out["whole"], out["second"], "moments.safetensors")
    assert not same(out["whole"], out["afresh"], "params.safetensors")
    assert not (out["afresh"] / "moments.safetensors").exists()


@pytest.mark.slow
def test_norms_of_queries_and_keys_can_be_added_midway(tmp_path: Path) -> None:
    keep = ", keep_moments: true"
    out = outputs(
        tmp_path,
        step("first", 4, train=keep)
        + step("normed", 1, "first", ", init: {moments: true}", model=MODEL + ", qk_norm: learned"),
    )
    before, after = (load_file(out[name] / "params.safetensors") for name in ("first", "normed"))
    assert after.keys() - before.keys() == {f"blocks/attention/{x}_norm" for x in "qk"}
    for name, x in before.items():
        np.testing.assert_allclose(after[name], x, atol=0.05)
    assert np.abs(after["blocks/attention/q_norm"] - 1).max() < 0.05


def test_own_models_are_continued_and_what_does_not_fit_is_said(tmp_path: Path) -> None:
    own = ', own: {model: "model:Table"}'
    table = "seq_len: 16"
    out = outputs(
        tmp_path, step("a", 2, more=own, model=table) + step("b", 2, "a", own, model=table)
    )
    before, after = (load_file(out[x] / "params.safetensors")["table/w0"] for x in "ab")
    assert 0 < np.abs(before - after).max() < 0.2
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(MakingFailed, match=r"continued has table/w1, and this model has not"):
        outputs(
            other,
            step("a", 2, more=own, model="seq_len: 16, wide: 2")
            + step("b", 2, "a", own, model=table),
        )


def test_a_model_of_another_shape_stops_own_code_with_both_shapes(tmp_path: Path) -> None:
    own, table = ', own: {model: "model:Table"}', "seq_len: 16, vocab_size: "
    with pytest.raises(MakingFailed, match=r"table/w0 as \(300, 300\), .* needs \(256, 256\)"):
        outputs(
            tmp_path,
            step("a", 2, more=own, model=table + "300")
            + step("b", 2, "a", own, model=table + "256"),
        )
