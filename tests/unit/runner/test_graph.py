"""Order, sweeps, fingerprints and differences of a graph of steps."""

from typing import Any

import pytest

from runner.schema import step_graph
from runner.schema.record import PlannedStep, Resources


def step(**changes: Any) -> PlannedStep:
    parts: dict[str, Any] = {
        "function": "m:f",
        "config": {"train": {"learning_rate": 0.003}, "seed": 0},
        "inputs": {"text": {"prepare": "a" * 64}},
        "code": {"m.py": "b" * 64, "lab:code": "c" * 64},
        **changes,
    }
    return PlannedStep(
        do=parts["function"],
        **parts,
        resources=Resources(kind="cpu"),
        fingerprint=step_graph.fingerprint(
            **parts | {"code": step_graph.code_sha256(parts["code"])}
        ),
        store="x.m.f",
    )


def test_each_step_comes_after_what_it_needs() -> None:
    needs = {"compare": ["scores"], "scores": ["wide", "deep"], "wide": [], "deep": ["wide"]}
    assert step_graph.order(needs) == ["wide", "deep", "scores", "compare"]


def test_a_circle_is_named() -> None:
    with pytest.raises(
        step_graph.BadGraph, match="`a` needs `b` needs `c` needs `a`, so that"
    ) as it:
        step_graph.order({"a": ["b"], "b": ["c"], "c": ["a"]})
    assert set(it.value.steps) == {"a", "b", "c"}


def test_a_grid_has_every_combination_and_a_list_its_points() -> None:
    grid = step_graph.points({"train.learning_rate": [0.1, 0.2], "seed": [0, 1]})
    assert list(grid) == [
        *("learning_rate=0.1,seed=0", "learning_rate=0.1,seed=1"),
        *("learning_rate=0.2,seed=0", "learning_rate=0.2,seed=1"),
    ]
    assert grid["learning_rate=0.2,seed=0"] == {"train.learning_rate": 0.2, "seed": 0}
    listed = step_graph.points([{"name": "wide", "model.hidden_dim": 8}, {"a.b": "x/y"}])
    assert listed == {"wide": {"model.hidden_dim": 8}, "b=x-y": {"a.b": "x/y"}}
    assert step_graph.points({}) == {"": {}}


@pytest.mark.parametrize(("name", "label"), [("..", "--"), (".", "-"), ("../x", "..-x")])
def test_the_name_of_a_point_leads_out_of_no_folder(name: str, label: str) -> None:
    assert [*step_graph.points([{"name": name}])] == [label]


def test_a_points_values_go_where_their_keys_lead() -> None:
    config = {"train": {"learning_rate": 1, "warmup": 2}}
    values = {"train.learning_rate": 3, "seed": 4, "model.depth": 5}
    assert step_graph.merged(config, values) == {
        "train": {"learning_rate": 3, "warmup": 2},
        "seed": 4,
        "model": {"depth": 5},
    }
    assert config == {"train": {"learning_rate": 1, "warmup": 2}}
    with pytest.raises(KeyError):
        step_graph.merged({"seed": 1}, {"seed.more": 2})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config": {"train": {"learning_rate": 0.002}, "seed": 0}},
         "train.learning_rate 0.003 → 0.002"),
        ({"config": {"train": {"learning_rate": 0.003}}}, "seed 0 → (none)"),
        ({"function": "m:g"}, "do m:f → m:g"),
        ({"code": {"m.py": "b" * 64, "lab:code": "d" * 64}}, "the lab's code changed"),
        ({"code": {"m.py": "b" * 64}}, "the lab's code is no longer used"),
        ({"inputs": {"text": {"prepare": "e" * 64}}}, "input text: prepare changed"),
        ({"inputs": {"text": {"other": "e" * 64}}}, "input text: prepare → other"),
        ({"inputs": {}}, "input text: prepare → (none)"),
    ],
)  # fmt: skip
def test_every_change_of_a_fingerprint_is_explained(changes: dict[str, Any], words: str) -> None:
    assert step_graph.changes(step(), step(**changes)) == [words]


def test_the_name_of_an_input_is_not_covered_but_a_sweeps_labels_are() -> None:
    renamed = step(inputs={"text": {"renamed": "a" * 64}})
    assert renamed.fingerprint == step().fingerprint
    assert step_graph.changes(step(), renamed) == []
    swept = [step(inputs={"text": {f"{name}/wide": "a" * 64}}) for name in ("one", "two")]
    assert swept[0].fingerprint == swept[1].fingerprint
    other = step(inputs={"text": {"one/deep": "a" * 64}})
    assert other.fingerprint != swept[0].fingerprint


def test_a_change_inside_a_phase_is_told_by_its_number_and_key() -> None:
    phases = [{"at": 8, "learning_rate": 0.1}, {"at": 9, "weights": {"web": 1}}]
    before = step(config={"phases": phases})
    after = step(config={"phases": [{**phases[0], "learning_rate": 0.2}, phases[1]]})
    assert step_graph.changes(before, after) == ["phases.0.learning_rate 0.1 → 0.2"]
    assert step_graph.changes(step(config={}), step(config={"phases": phases[1:]})) == [
        "phases.0.at (none) → 9",
        "phases.0.weights.web (none) → 1",
    ]
