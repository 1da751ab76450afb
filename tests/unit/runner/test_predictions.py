"""The forms of predictions: what is one, how it reads, and that old seals stay what they were."""

import pytest
from pydantic import ValidationError

from runner.analysis import verdicts
from runner.schema import plan_fingerprint, prediction_forms
from runner.schema.record import Prediction, Preregistration, Result
from tests import synthetic

# As the lab wrote it when predictions had one form.
STORED = (
    '{"at":"2026-03-01T12:00:00Z","author":{"id":11,"login":"ada"},"hypothesis":"Because.",'
    '"issue":1,"predictions":[{"arm":"fast","confidence":0.8,"expect":"< -0.05","metric":'
    '"eval/bpb","versus":"slow"},{"arm":"fast","confidence":0.8,"expect":"2.6 ± 0.1","metric":'
    '"eval/bpb","versus":null}],"repository":7,"text_sha256":'
    '"230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5","title":"Warm"}\n'
).encode()
SEAL = "6fd72c0f8fcc7fb27b62f5627aafbe0011eeb98d4b43accbf8c88c77ce0140e1"


def one(**keys: object) -> Prediction:
    return Prediction.model_validate(
        {"metric": "eval/bpb", "confidence": 0.8, "expect": "> 0", **keys}
    )


ORDER = one(order=["wide", "deep", "plain"])
EXPONENT = one(exponent=["s1", "s2", "s3", "s4"], axis="model_flops", expect="0.25 ± 0.05")
LARGER = one(arm="s4", smaller=["s1", "s2", "s3"], axis="tokens", expect="0 ± 0.01")


def test_a_seal_of_before_the_other_forms_has_the_bytes_that_it_had() -> None:
    stored = Preregistration.model_validate_json(STORED)
    assert stored.canonical() == STORED
    assert stored.seal == SEAL


def test_digests_of_before_the_other_forms_are_what_they_were() -> None:
    told = [synthetic.prediction(), synthetic.prediction("2.6 ± 0.1", versus=None)]
    plan = synthetic.plan(predictions=told, preregistration=1)
    plan = plan.model_copy(update={"steps": {}})  # as arms had none then
    result = Result(
        at=synthetic.START,
        state="done",
        verdicts=verdicts.judge(plan, {"eval/bpb": synthetic.PLAIN}),
    )
    assert plan_fingerprint.fingerprint(plan).startswith("4ab6ad5fb06044e797094dcc9644ed87")
    execution = synthetic.execution(plan, author=None)
    assert execution.digest().startswith("5224694b1f22dbc1e16aac88176b480e")
    assert result.digest().startswith("c445a7038152b74c5326a9d6450df108")


@pytest.mark.parametrize("told", [ORDER, EXPONENT, LARGER])
def test_each_form_comes_back_from_the_records_as_it_was(told: Prediction) -> None:
    assert Prediction.model_validate_json(told.canonical()) == told


@pytest.mark.parametrize(
    ("told", "sentence", "arms"),
    [
        (
            ORDER,
            "by eval/bpb the order is wide, deep, plain, best first",
            ("wide", "deep", "plain"),
        ),
        (
            ORDER.model_copy(update={"expect": "> 0.01"}),
            "by eval/bpb the order is wide, deep, plain, best first, and each step is > 0.01",
            ("wide", "deep", "plain"),
        ),
        (
            EXPONENT,
            "the exponent with which eval/bpb of s1, s2, s3, s4 falls with model FLOPs is "
            "0.25 ± 0.05",
            ("s1", "s2", "s3", "s4"),
        ),
        (
            LARGER,
            "the relative error of eval/bpb of s4 against what s1, s2, s3 forecast by their "
            "tokens is 0 ± 0.01",
            ("s4", "s1", "s2", "s3"),
        ),
        (one(arm="a", versus="b"), "eval/bpb of a minus b is > 0", ("a", "b")),
    ],
)
def test_each_form_is_a_sentence_about_its_arms(
    told: Prediction, sentence: str, arms: tuple[str, ...]
) -> None:
    assert told.sentence == sentence
    assert told.arms == arms


@pytest.mark.parametrize(
    ("keys", "at", "why"),
    [
        ({}, "arm", "is missing; name an `arm`"),
        ({"order": ["a", "b"], "arm": "a"}, "arm", "does not go with `order`"),
        ({"order": ["a", "b"], "versus": "a"}, "versus", "does not go with `order`"),
        ({"order": ["a", "b"], "exponent": list("abcd")}, "exponent", "does not go with"),
        ({"order": ["a"]}, "order", "names 1 of the 2 arms"),
        ({"order": ["a", "b", "a"]}, "order", "names 'a' twice"),
        ({"order": ["a", "b"], "axis": "tokens"}, "axis", "belongs to an `exponent`"),
        ({"exponent": ["a", "b", "c"]}, "exponent", "names 3 of the 4 arms"),
        ({"exponent": list("abcd")}, "axis", "is missing; say what C is"),
        ({"arm": "a", "smaller": list("bcd")}, "axis", "is missing; say what C is"),
        ({"arm": "a", "smaller": list("abc"), "axis": "tokens"}, "smaller", "the `arm` itself"),
        ({"arm": "a", "versus": "e", "smaller": list("bcd")}, "versus", "does not go with"),
        ({"smaller": list("bcd"), "axis": "tokens"}, "arm", "is missing"),
        ({"order": ["a", "b"], "metric": "weights/output_norm"}, "order", "a metric with a direc"),
        (
            {"exponent": list("abcd"), "axis": "tokens", "metric": "task/x/accuracy"},
            "exponent",
            "needs a loss that falls with size",
        ),
    ],
)
def test_a_prediction_of_no_form_is_refused_at_its_key(
    keys: dict[str, object], at: str, why: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        one(**keys)
    (detail,) = caught.value.errors()
    assert (detail["type"], detail["ctx"]["key"]) == ("form", at)
    assert why in detail["ctx"]["words"]


def test_an_arms_cost_is_known_on_each_axis() -> None:
    arm = synthetic.planned_arm()
    spent = {axis: prediction_forms.spent(arm, axis) for axis in prediction_forms.AXES}
    assert spent == {
        "model_flops": arm.model_flops,
        "hardware_flops": arm.model_flops,  # as long as it has not run
        "tokens": arm.tokens,
        "parameters": arm.parameters,
    }
