"""experiment.yaml as editors check it: the JSON Schema accepts what the lab accepts, and underlines
what the lab refuses for a reason of one key."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from typer.testing import CliRunner

from runner.cli.main import app
from runner.lib import yaml_lines
from runner.lib.problems import BadExperiment
from runner.schema import lab_config, record
from runner.spec import declaration, json_schema

ROOT = Path(__file__).parents[3]
DECLARED = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("experiments", "runner/spec/starters")
    for path in (ROOT / folder).glob("*/experiment.yaml")
)
SCHEMA = json_schema.schema(lab_config.defaults())
EDITOR = Draft7Validator(SCHEMA)

SHORT = """\
title: Is it right?
data: {source: stdlib}
model: {hidden_dim: 16, intermediate_dim: 24, num_layers: 1, num_heads: 2, seq_len: 16}
train: {train_batch_size: 2, num_train_steps: 8, learning_rate: 3e-3}
resources: {kind: cpu}
"""
STEPS = """\
title: Is it right?
resources: {kind: cpu}
steps:
  tokenize: {do: tokenize, config: {source: stdlib}}
  train:
    do: train
    inputs: {tokens: tokenize}
    config:
      model: {depth: 1, seq_len: 16}
      train: {train_batch_size: 2, num_train_steps: 8, learning_rate: 0.003}
"""


def underlined(text: str) -> list[str]:
    """What an editor underlines: keys, with what is said of them."""
    found = EDITOR.iter_errors(yaml_lines.read(text).value)
    return [f"{error.json_path}: {error.message}" for error in found]


def test_it_is_a_json_schema() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert set(re.findall(r'"\$ref": "([^"]*)/', json_schema.text())) == {"#/$defs"}


@pytest.mark.parametrize("path", DECLARED)
def test_each_experiment_and_starter_is_right(path: str) -> None:
    assert underlined((ROOT / path).read_text()) == []


@pytest.mark.parametrize("path", [one for one in DECLARED if "delphi" not in one])
def test_each_of_them_names_the_schema(path: str) -> None:
    """Those that a seal speaks of stay as they were."""
    first = (ROOT / path).read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema=../{json_schema.NAME}"


RIGHT = {
    "a number as people write it": SHORT,
    "what every arm completes": SHORT.replace(", learning_rate: 3e-3", "")
    + "arms: {a: {train: {learning_rate: 0.1}}, b: {train: {learning_rate: 1}}}",
    "a model of one's own": SHORT.replace("hidden_dim", "width") + 'own: {model: "model:Mine"}',
    "a model of one's own in one arm": SHORT
    + 'arms: {a: {}, b: {own: {model: "model:Mine"}, model: {gates: 2}}}',
    "an arm with experts in the place of the MLP": SHORT
    + "arms: {a: {}, b: {model: {intermediate_dim: null, moe: {num_experts: 4, top_k: 1, "
    "expert_dim: 16}}}}",
    "a span in steps": SHORT.replace("3e-3", "3e-3, warmup: 2"),
    "a span as a part": SHORT.replace("3e-3", "3e-3, warmup: 0.25"),
    "phases": SHORT.replace("3e-3", "3e-3, phases: [{at: 4, learning_rate: 0.001}]"),
    "a ladder": SHORT + "seeds: [0, 1]\n"
    "arms: {a: {}, b: {}, c: {model: {num_layers: 2}}, d: {model: {num_layers: 2}}}\n"
    "ladder: {floor: 0.6, exponent: 0.1, rungs: [{baseline: a, variant: b}, "
    "{baseline: c, variant: d}]}",
    "samples": SHORT + 'samples: {prompts: ["def "], tokens: 8}',
    "benchmarks": SHORT + "benchmarks: {tasks: [cloze, own.jsonl], suite: marin-8b}",
    "steps": STEPS,
    "a grid": STEPS.replace(", learning_rate: 0.003", "")
    + "    sweep: {train.learning_rate: [0.1, 0.2]}\n    seeds: [0, 1]",
    "points with models of one's own": STEPS.replace("depth", "width")
    + '    sweep: [{name: a, own.model: "model:A"}, {name: b, own: {model: "model:B"}}]',
    "a step of one's own": STEPS + "  table: {do: table:draw, inputs: {m: train}, config: {x: 1}}",
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_the_lab_accepts_is_not_underlined(text: str) -> None:
    declaration.parse(text, "experiment.yaml")
    assert underlined(text) == []


# What is wrong, and the place that is underlined.
WRONG = {
    "a key that nobody knows": (SHORT + "seds: [0]", "$: "),
    "a section that is missing": (SHORT.replace("train:", "eval: {}\noptions:"), "$: "),
    "a key that is missing": (SHORT.replace(", learning_rate: 3e-3", ""), "$.train: "),
    "text for a number": (SHORT.replace("3e-3", "high"), "$.train.learning_rate: "),
    "a number out of range": (SHORT.replace("3e-3", "-1"), "$.train.learning_rate: "),
    "more than the whole run": (SHORT.replace("3e-3", "3e-3, warmup: 1.5"), "$.train.warmup: "),
    "a choice there is not": (SHORT.replace("3e-3", "3e-3, optimizer: adam"), "$.train.optimizer:"),
    "a model's key with a slip": (SHORT.replace("num_layers", "num_layer"), "$.model: "),
    "an arm's section with a slip": (SHORT + "arms: {a: {trian: {}}}", "$.arms.a: "),
    "an arm's key with a slip": (SHORT + "arms: {a: {train: {steps: 3}}}", "$.arms.a.train: "),
    "an arm's name": (SHORT + "arms: {Slow!: {}}", "$.arms: "),
    "no seeds": (SHORT + "seeds: []", "$.seeds: "),
    "a seed below 0": (SHORT + "seeds: [-1]", "$.seeds[0]: "),
    "no kind of device": (SHORT.replace("kind: cpu", "count: 1"), "$.resources: "),
    "no device": (SHORT.replace("kind: cpu", "kind: cpu, count: 0"), "$.resources.count: "),
    "a function without its module": (SHORT + "own: {loss: mine}", "$.own.loss: "),
    "an issue's number as a comment": (SHORT + "preregistration: #1", "$.preregistration: "),
    "an issue's number as text": (SHORT + "preregistration: '#1'", "$.preregistration: "),
    "an author without a name": (
        SHORT + "speedrun: {track: small-cost, author: {}}",
        "$.speedrun: ",
    ),
    "samples with a slip": (SHORT + "samples: {prompt: [a]}", "$.samples: "),
    "benchmarks of no items": (SHORT + "benchmarks: {items: 0}", "$.benchmarks: "),
    "steps beside arms": (STEPS + "arms: {a: {}}", "$: "),
    "a step that does nothing": (STEPS.replace("do: train", "seeds: [0]"), "$.steps.train: "),
    "a built-in with a slip": (STEPS.replace("do: train", "do: trian"), "$.steps.train.do: "),
    "a step's key with a slip": (STEPS.replace("inputs", "input"), "$.steps.train: "),
    "a configuration's key with a slip": (
        STEPS.replace("source", "sauce"),
        "$.steps.tokenize.config: ",
    ),
    "a configuration without a key": (
        STEPS.replace(", learning_rate: 0.003", ""),
        "$.steps.train.config.train: ",
    ),
}


@pytest.mark.parametrize(("text", "place"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_underlined_where_it_is(text: str, place: str) -> None:
    with pytest.raises(BadExperiment):
        declaration.parse(text, "experiment.yaml")
    found = underlined(text)
    assert any(one.startswith(place) for one in found), found


def described(schema: dict[str, Any]) -> dict[str, str]:
    return {key: value.get("description", "") for key, value in schema["properties"].items()}


def test_it_says_of_each_key_what_the_reference_says() -> None:
    page = (ROOT / "docs/reference/experiment.md").read_text()
    parts = [SCHEMA, *(SCHEMA["$defs"][one] for one in ("ModelConfig", "TrainConfig", "Step"))]
    for key, words in (pair for part in parts for pair in described(part).items()):
        assert words, key
        assert f"| {words} |" in page, key


def test_the_command_prints_it() -> None:
    answer = CliRunner().invoke(app, ["schema"])
    assert json.loads(answer.stdout) == SCHEMA


def test_a_lab_elsewhere_gets_it_beside_its_first_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["new", "one", "--in", "ideas"]).exit_code == 0
    first = (tmp_path / "ideas/one/experiment.yaml").read_text().splitlines()[0]
    named = tmp_path / "ideas/one" / first.partition("$schema=")[2]
    assert json.loads(named.read_text()) == SCHEMA
    named.write_text("{}")
    assert CliRunner().invoke(app, ["new", "two", "--in", "ideas"]).exit_code == 0
    assert named.read_text() == "{}", "what is there stays"


def test_records_have_one_too() -> None:
    whole = json.loads((ROOT / "docs/reference/records.schema.json").read_text())
    Draft7Validator.check_schema(whole)
    said = record.Cancelled(at="2026-11-01T00:00:00Z", by="ada").model_dump(mode="json")
    of = Draft7Validator({**whole, "$ref": "#/$defs/Cancelled"})
    assert of.is_valid(said)
    assert not of.is_valid({**said, "why": "no such field"})
