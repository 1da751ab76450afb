"""The lab's own forecast, as it is committed: its ladder has one dial, its seal is of this
declaration and came before its outcome."""

import hashlib
import json
import math
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.config import ModelConfig
from runner import cli_forecast, planning
from runner.analysis import forecast as forecasting
from runner.analysis import sealed
from runner.analysis.forecast import Forecast, Refusal
from runner.analysis.sealed import Outcome, Seal
from runner.record import Plan

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "experiments" / "delphi-mini"
PEAK = 0.01  # of the learning rate of what Adam moves, at width 16
PYTHON = "3.11.7"  # whose library is the text


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planning.plan_folder(FOLDER)


@pytest.fixture(scope="module")
def seal() -> Seal:
    return Seal.model_validate_json((FOLDER / "seal.json").read_bytes())


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    if not (FOLDER / "outcome.json").is_file():
        pytest.skip("the run that was sealed is not over yet")
    return Outcome.model_validate_json((FOLDER / "outcome.json").read_bytes())


def rung(width: int) -> tuple[ModelConfig, dict[str, Any]]:
    """What the rule at the head of the declaration says of a width."""
    model = ModelConfig(
        hidden_dim=width, intermediate_dim=4 * width, num_layers=4, num_heads=2, seq_len=128
    )
    tokens = 20 * planning.flops.parameters(model)
    batch = width // 2
    steps = round(tokens / (batch * 128))
    rate = float(f"{PEAK * math.sqrt(16 / width):.3g}")
    return model, {"train_batch_size": batch, "num_train_steps": steps, "adam_learning_rate": rate}


def test_every_rung_follows_from_its_width_by_the_rule_that_is_written_above_it(
    plan: Plan,
) -> None:
    recipes = set()
    for name, arm in plan.arms.items():
        model, sizes = rung(int(name.removeprefix("w")))
        assert arm.model == model, name
        assert {key: getattr(arm.train, key) for key in sizes} == sizes, name
        left = arm.train.model_dump(mode="json")
        for key in (*sizes, *forecasting.SAVING):
            del left[key]
        recipes.add(json.dumps(left))
    assert len(recipes) == 1


def test_no_run_sees_anything_twice(plan: Plan) -> None:
    assert plan.data
    assert max(arm.tokens for arm in plan.arms.values()) < plan.data.train_tokens


def test_the_text_is_the_sealed_one_bit_for_bit(plan: Plan, seal: Seal) -> None:
    if platform.python_version() != PYTHON:
        pytest.skip(f"this is Python {platform.python_version()}, and the text is {PYTHON}'s")
    assert plan.data
    assert seal.design.text == plan.data.validation_sha256
    design = forecasting.design_of(plan, seal.design.arm)
    assert design
    assert design.ladder == seal.design.ladder  # which the train split's digest is part of


def test_the_seal_is_of_this_declaration(plan: Plan, seal: Seal) -> None:
    assert seal.experiment == FOLDER.name
    assert dict(seal.declaration) == cli_forecast.declaration(FOLDER)
    planned = plan.arms[seal.design.arm]
    assert seal.design.model_flops == planned.model_flops
    assert (seal.design.tokens, seal.design.parameters) == (planned.tokens, planned.parameters)


def test_the_forecast_is_made_again_from_the_seals_points(seal: Seal) -> None:
    sealed.check(seal)
    said = seal.forecast
    assert said.law.stated_floor
    again = forecasting.forecast(seal.points, said.at, floor=said.law.c)
    assert isinstance(again, Forecast)
    assert (again.loss, again.low, again.high) == pytest.approx((said.loss, said.low, said.high))


def test_the_fit_rests_on_every_rung_of_the_declared_ladder(plan: Plan, seal: Seal) -> None:
    planned = {run for run in plan.runs() if run[0] != seal.design.arm}
    fitted = [(point.arm, point.seed) for point in seal.points]
    assert len(set(fitted)) == len(fitted)
    assert set(fitted) <= planned
    assert {arm for arm, _ in fitted} == {arm for arm, _ in planned}
    for point in seal.points:
        assert point.model_flops == plan.arms[point.arm].model_flops
        assert point.model_flops < seal.design.model_flops


def test_the_outcome_is_of_this_seal_and_says_what_follows(seal: Seal, outcome: Outcome) -> None:
    content = (FOLDER / "seal.json").read_bytes()
    assert outcome.seal_sha256 == hashlib.sha256(content).hexdigest()
    said, loss = seal.forecast, outcome.point.loss
    assert outcome.error == pytest.approx(said.loss / loss - 1)
    assert outcome.inside == (said.low <= loss <= said.high)
    assert outcome.point.config == seal.design.config
    assert outcome.point.ladder == seal.design.ladder


def test_the_seals_commit_is_an_ancestor_of_the_outcomes() -> None:
    seals, outcomes = commits("seal.json"), commits("outcome.json")
    if not seals or not outcomes:
        pytest.skip("there is no git history here, or no outcome in it, to tell the order from")
    assert len(seals) == 1, "the seal was changed after it was made"
    assert len(outcomes) == 1, "the outcome was changed after it was written"
    assert seals != outcomes
    done = git("merge-base", "--is-ancestor", seals[0], outcomes[0])
    assert done.returncode == 0
    with_seal = git("ls-tree", "--name-only", seals[0], "experiments/delphi-mini/").stdout
    assert "seal.json" in with_seal
    assert "outcome.json" not in with_seal
    declared = git("rev-parse", f"{seals[0]}:experiments/delphi-mini/experiment.yaml").stdout
    blob = git("hash-object", "experiments/delphi-mini/experiment.yaml").stdout
    assert declared == blob, "the declaration is not the one that was committed with the seal"


def commits(name: str) -> list[str]:
    """Those that changed a file of the experiment, newest first; none where history is cut off."""
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        return []
    return git("log", "--format=%H", "--", f"experiments/delphi-mini/{name}").stdout.split()


def git(*words: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
        )
    except OSError as error:
        return subprocess.CompletedProcess(words, 1, "", str(error))


def test_the_ladder_that_was_given_up_is_kept_and_carries_no_law() -> None:
    known = cli_forecast.read_points(FOLDER / "first-ladder.json")
    assert len({point.model_flops for point in known}) == 6
    said = forecasting.forecast(known, 10 * max(point.model_flops for point in known))
    assert isinstance(said, Refusal)
    assert "the floor sits on its bound" in said.words
