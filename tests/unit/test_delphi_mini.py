"""The lab's own forecasts, as they are committed: each ladder has one dial, each seal is of its
declaration and came before its outcome."""

import hashlib
import json
import math
import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bot.site.facts import sealed
from engine.config import flops
from engine.config.schema import ModelConfig
from runner.analysis import forecast as forecasting
from runner.analysis import sealed_forecast
from runner.analysis.forecast import Forecast, Refusal
from runner.analysis.sealed_forecast import Beside, Outcome, Seal
from runner.cli import forecast
from runner.planning import planner
from runner.schema.record import Plan

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
PYTHON = "3.11.7"  # whose library is the text


@dataclass(frozen=True)
class Rule:
    """What the head of a declaration says of a width."""

    folder: Path
    layers: int
    window: int
    part: int  # of the width that is the number of windows in a batch
    falling: str  # the learning rate that falls with the width
    peak: float  # of it, at width 16

    def rung(self, width: int) -> tuple[ModelConfig, dict[str, Any]]:
        """The model and the sizes of its training."""
        model = ModelConfig(
            hidden_dim=width,
            intermediate_dim=4 * width,
            num_layers=self.layers,
            num_heads=2,
            seq_len=self.window,
        )
        tokens = 20 * flops.parameters(model)
        batch = width // self.part
        return model, {
            "train_batch_size": batch,
            "num_train_steps": round(tokens / (batch * self.window)),
            self.falling: float(f"{self.peak * math.sqrt(16 / width):.3g}"),
        }


ADAM = "adam_learning_rate"
FIRST = Rule(EXPERIMENTS / "delphi-mini", 4, window=128, part=2, falling=ADAM, peak=0.01)
HUNDRED = Rule(EXPERIMENTS / "delphi-mini-100", 2, window=64, part=4, falling=ADAM, peak=0.015)
THIRD = replace(HUNDRED, folder=EXPERIMENTS / "delphi-mini-3", falling="learning_rate")


@pytest.fixture(scope="module", params=[FIRST, HUNDRED, THIRD], ids=lambda rule: rule.folder.name)
def rule(request: pytest.FixtureRequest) -> Rule:
    found: Rule = request.param
    return found


@pytest.fixture(scope="module")
def plan(rule: Rule) -> Plan:
    return planner.plan_folder(rule.folder)


@pytest.fixture(scope="module")
def seal(rule: Rule) -> Seal:
    return Seal.model_validate_json((rule.folder / "seal.json").read_bytes())


@pytest.fixture(scope="module")
def outcome(rule: Rule) -> Outcome:
    if not (rule.folder / "outcome.json").is_file():
        pytest.skip("the run that was sealed is not over yet")
    return Outcome.model_validate_json((rule.folder / "outcome.json").read_bytes())


def test_every_rung_follows_from_its_width_by_the_rule_that_is_written_above_it(
    rule: Rule, plan: Plan
) -> None:
    recipes = set()
    for name, arm in plan.arms.items():
        model, sizes = rule.rung(int(name.removeprefix("w")))
        assert arm.model == model, name
        assert {key: getattr(arm.train, key) for key in sizes} == sizes, name
        left = arm.train.model_dump(mode="json")
        for key in (*sizes, *forecasting.SAVING):
            left.pop(key, None)  # a key of its default may be left out
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


def test_the_seal_is_of_this_declaration(rule: Rule, plan: Plan, seal: Seal) -> None:
    assert seal.experiment == rule.folder.name
    assert dict(seal.declaration) == forecast.declaration(rule.folder)
    planned = plan.arms[seal.design.arm]
    assert seal.design.model_flops == planned.model_flops
    assert (seal.design.tokens, seal.design.parameters) == (planned.tokens, planned.parameters)


def test_the_forecast_is_made_again_from_the_seals_points(seal: Seal) -> None:
    sealed_forecast.check(seal)
    said = seal.forecast
    assert said.law.stated_floor
    again = forecasting.forecast(
        seal.points,
        said.at,
        floor=said.law.c,
        floor_error=said.law.floor_error,
        family=said.family,
    )
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


def test_the_outcome_is_of_this_seal_and_says_what_follows(
    rule: Rule, seal: Seal, outcome: Outcome
) -> None:
    content = (rule.folder / "seal.json").read_bytes()
    assert outcome.seal_sha256 == hashlib.sha256(content).hexdigest()
    said, loss = seal.forecast, outcome.point.loss
    assert outcome.error == pytest.approx(said.loss / loss - 1)
    assert outcome.inside == (said.low <= loss <= said.high)
    assert outcome.point.config == seal.design.config
    assert outcome.point.ladder == seal.design.ladder


def test_all_sealed_forecasts_of_the_experiments_are_on_the_site() -> None:
    assert set(sealed.FOLDERS) == {seal.parent for seal in EXPERIMENTS.glob("*/seal.json")}
    assert [rule.folder for rule in (THIRD, HUNDRED, FIRST)] == list(sealed.FOLDERS)


def test_the_ladder_that_was_given_up_is_kept_and_carries_no_law() -> None:
    known = forecast.read_points(FIRST.folder / "first-ladder.json")
    assert len({point.model_flops for point in known}) == 6
    said = forecasting.forecast(known, 10 * max(point.model_flops for point in known))
    assert isinstance(said, Refusal)
    assert "the floor sits on its bound" in said.words


def beside(name: str) -> Beside:
    return Beside.model_validate_json((HUNDRED.folder / name).read_bytes())


def test_trials_before_the_second_seal_were_small_and_not_in_the_fit() -> None:
    seal = Seal.model_validate_json((HUNDRED.folder / "seal.json").read_bytes())
    told = beside("explored.json").runs
    assert len(told) == 14
    assert max(run.model_flops for run in told) < max(point.model_flops for point in seal.points)
    assert not {run.loss for run in told} & {point.loss for point in seal.points}


def test_the_second_ladder_carries_no_law_unless_its_floor_is_stated() -> None:
    known = forecast.read_points(HUNDRED.folder / "seal.json")
    said = forecasting.forecast(known, 100 * max(point.model_flops for point in known))
    assert isinstance(said, Refusal)
    assert "the floor sits on its bound" in said.words
