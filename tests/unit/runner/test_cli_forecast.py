"""`regatta forecast` on stores and files of which the truth is known."""

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from runner.analysis import sealed_forecast
from runner.analysis.sealed_forecast import Outcome, Seal
from runner.cli.main import app
from runner.planning import planner
from runner.schema import record
from runner.schema.record import Evaluated, Execution, Run
from runner.store.store import Store

WIDTHS = (8, 10, 12, 14, 16, 20)
HEAD = """
title: A ladder
data: {source: text.txt}
eval: {tokens: 256}
model: {num_layers: 2, num_heads: 1, seq_len: 16}
train: {train_batch_size: 2, learning_rate: 0.01, warmup: 0.1, num_train_steps: 10}
resources: {kind: cpu}
arms:
"""


def arms(*widths: int) -> str:
    return HEAD + "".join(
        f"  w{w}: {{model: {{hidden_dim: {w}, intermediate_dim: {2 * w}}}, "
        f"train: {{num_train_steps: {w * w}}}}}\n"
        for w in widths
    )


def loss(compute: float) -> float:
    return float(1 + 30 * compute**-0.15)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An experiment whose arm w40 is still to come."""
    made = tmp_path / "ladder"
    made.mkdir()
    (made / "text.txt").write_text("".join(f"line {n}\n" for n in range(9000)))
    (made / "experiment.yaml").write_text(arms(*WIDTHS, 40))
    return made


@pytest.fixture
def store(tmp_path: Path, folder: Path) -> Store:
    """A store in which all arms but w40 have run."""
    made = Store(tmp_path / "store")
    execute(made, folder, WIDTHS)
    return made


def execute(store: Store, folder: Path, widths: tuple[int, ...]) -> None:
    plan = planner.plan_folder(folder)
    name = record.execution_id(str(widths))
    at = f"2026-01-0{len(store.list('records/executions')) + 1}T00:00:00Z"
    execution = Execution.model_validate({"id": name, "at": at, "plan": plan, "origin": None})
    record.write(store, f"executions/{name}/execution", execution)
    for width in widths:
        arm = f"w{width}"
        bpb, digest = loss(plan.arms[arm].model_flops), f"{width:064x}"
        run = Run(
            execution=name,
            arm=arm,
            seed=0,
            state="finished",
            steps=1,
            tokens=plan.arms[arm].tokens,
            model_flops=plan.arms[arm].model_flops,
            evaluated=Evaluated(bpb=bpb, loss=bpb, targets=256, params_sha256=digest),
            checkpoint_sha256=None,
            curve=(),
            tokens_per_second=None,
        )
        record.write(store, f"runs/{name}.{arm}.s0", run)


def regatta(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_an_arm_is_forecast_from_the_stores_smaller_runs(folder: Path, store: Store) -> None:
    said = regatta("forecast", folder, "--arm", "w40", "--store", store.root, "--json")
    assert said.exit_code == 0, said.output
    told = json.loads(said.stdout)["w40"]
    there = planner.plan_folder(folder).arms["w40"].model_flops
    assert told["at"] == there
    assert told["loss"] == pytest.approx(loss(there), rel=1e-3)
    assert told["rungs"] == len(WIDTHS)


def test_arms_that_nothing_smaller_tells_of_are_refused_in_words(
    folder: Path, store: Store
) -> None:
    said = regatta("forecast", folder, "--store", store.root)
    assert said.exit_code == 0
    assert "w8: no forecast: it needs runs of 3 smaller models with the same recipe" in said.stdout
    assert "w40: " in said.stdout
    alone = regatta("forecast", folder, "--arm", "w8", "--store", store.root)
    assert alone.exit_code == 1


def test_a_file_of_runs_and_a_compute_are_enough(folder: Path, store: Store) -> None:
    seal = folder / "seal.json"
    regatta("forecast", folder, "--arm", "w40", "--store", store.root, "--seal", seal)
    said = regatta("forecast", "--at", "1e9", "--points", seal, "--json")
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)[""]["loss"] == pytest.approx(loss(1e9), rel=1e-3)


def test_a_floor_is_stated_with_its_error_and_sealed_with_it(folder: Path, store: Store) -> None:
    words = ("forecast", folder, "--arm", "w40", "--store", store.root, "--floor", 1)
    seal = folder / "seal.json"
    wide, narrow = (
        json.loads(regatta(*words, *more, "--json").stdout)["w40"]
        for more in ((), ("--floor-error", 0.1, "--seal", seal))
    )
    assert (
        wide["low"] < narrow["low"] < wide["loss"] == narrow["loss"] < narrow["high"] < wide["high"]
    )
    assert "the interval holds 0.9 to 1.1" in narrow["words"][0]
    sealed_forecast.check(Seal.model_validate_json(seal.read_bytes()))
    alone = regatta("forecast", "--at", 1e9, "--points", seal, "--floor-error", 0.1)
    assert alone.exit_code == 2
    assert "--floor-error needs a --floor" in alone.stderr


def test_a_seal_is_written_once_and_its_outcome_beside_it(folder: Path, store: Store) -> None:
    seal, outcome = folder / "seal.json", folder / "outcome.json"
    words = ("forecast", folder, "--arm", "w40", "--store", store.root, "--seal", seal)
    assert regatta(*words).exit_code == 0
    first = seal.read_bytes()
    again = regatta(*words)
    assert again.exit_code == 2
    assert "is written once" in again.stderr
    assert seal.read_bytes() == first
    said = Seal.model_validate_json(first)
    assert set(said.declaration) == {"experiment.yaml"}
    assert [point.arm for point in said.points] == [f"w{width}" for width in WIDTHS]
    early = regatta(*words, "--outcome", outcome)
    assert early.exit_code == 2
    assert "no finished run of w40" in early.stderr
    execute(store, folder, (40,))
    scored = regatta(*words, "--outcome", outcome)
    assert scored.exit_code == 0, scored.output
    assert "inside the interval" in scored.stdout
    found = Outcome.model_validate_json(outcome.read_bytes())
    assert found.point.arm == "w40"
    assert found.seal_sha256 == hashlib.sha256(first).hexdigest()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "Give an experiment, or a compute budget in FLOPs with --at."),
        (["experiments/small-run", "--at", "1e9"], "Give an experiment or --at, not both."),
        (["--at", "1e9", "--axis", "model_flop"], "did you mean"),
        (["--at", "1e9", "--points", "no-such-file"], "is not a file of runs"),
        (["--at", "1e9", "--seal", "seal.json"], "name the experiment"),
    ],
)
def test_an_impossible_forecast_says_what_to_do(words: list[str], complaint: str) -> None:
    said = regatta("forecast", *words)
    assert said.exit_code == 2
    assert complaint in said.stderr
