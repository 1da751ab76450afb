"""experiment.yaml as a JSON Schema, for editors: they complete keys, explain them, and underline
what cannot be right while it is written. It comes from the same models that read a declaration, and
accepts all that these accept. What takes more than one key to judge, `regatta plan` says.

An editor finds it by the first line of the file, as `regatta new` writes it. `NAME` is the file
beside the experiments' folders."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from engine.config.schema import ModelConfig, TrainConfig
from engine.config.stages import StagedCompute
from runner.schema import lab_config
from runner.schema.lab_config import LabConfig
from runner.schema.own_model import OwnModel
from runner.spec.data_steps import FUNCTION
from runner.spec.experiment import Declaration, ShortForm
from runner.spec.step_types import BUILT_IN, TRAINS
from runner.spec.studies import Ablate, Isoflop
from runner.spec.training_steps import Own, Train, Tune

NAME = "experiment.schema.json"
DRAFT = "http://json-schema.org/draft-07/schema#"  # the newest that all editors know

Schema = dict[str, Any]

STUDIES: dict[str, type[BaseModel]] = {"ablate": Ablate, "isoflop": Isoflop}
OF_ARMS = {"sizes", "hold_one_out", "add_one"}  # the keys of studies that are arms by name

# What an arm or a sweep may complete: nothing is required of it where either does.
COMPLETED: tuple[type[BaseModel], ...] = (
    *(ModelConfig, OwnModel, TrainConfig),
    *(one.config for one in BUILT_IN.values()),
)


def text(lab: LabConfig | None = None) -> str:
    """The file's text, in a lab (None: one with the defaults)."""
    return json.dumps(schema(lab or lab_config.defaults()), indent=1, ensure_ascii=False) + "\n"


def schema(lab: LabConfig) -> Schema:
    """The JSON Schema of experiment.yaml in a lab, in both of its forms."""
    kinds = {name: kind for name, kind in lab.devices.items() if kind.on_ray}
    defs = of_models([ShortForm, Declaration, Own, StagedCompute, *COMPLETED])
    needs = {one.__name__: defs[one.__name__].pop("required", []) for one in COMPLETED}
    short, steps = (defs.pop(one.__name__) for one in (ShortForm, Declaration))
    for section, one in (("train", TrainConfig), ("own", Own), ("compute", StagedCompute)):
        for whole in (short, defs["Arm"]):
            whole["properties"][section]["allOf"] = [_ref(one)]
    for name in (Train.__name__, Tune.__name__):
        defs[name]["properties"]["model"] = {"type": "object"}  # whose, its `own` says
    _suggest(defs["Asked"]["properties"]["kind"], kinds)
    _suggest(defs["Resources"]["properties"]["kind"], kinds)
    _suggest(defs["Speedrun"]["properties"]["track"], lab.tracks)
    _step(defs["Step"], needs)
    only_short = short["properties"].keys() - steps["properties"].keys()
    return {
        "$schema": DRAFT,
        "title": "An experiment of Regatta",
        "type": "object",
        "properties": {**short["properties"], "steps": steps["properties"]["steps"]},
        "additionalProperties": False,
        "if": _has("steps"),
        "then": {
            "required": steps["required"],
            "properties": dict.fromkeys(sorted(only_short), False),
        },
        "else": {"required": short["required"], "allOf": _short(needs)},
        "$defs": dict(sorted(defs.items())),
    }


def of_models(models: Iterable[type[BaseModel]]) -> dict[str, Schema]:
    """The definitions of these models and of all that they have, by name."""
    _, whole = models_json_schema(
        [(one, "validation") for one in dict.fromkeys(models)], ref_template="#/$defs/{model}"
    )
    found: dict[str, Schema] = _tidied(whole["$defs"])
    return found


def _short(needs: Mapping[str, list[str]]) -> list[Schema]:
    """Of arms and seeds: whose model it is, and what must be there if no arm completes it."""
    names_a_model = _inside("own", _has("model"))
    an_arm_does = _inside("arms", {"not": {"additionalProperties": {"not": names_a_model}}})

    def model(one: type[BaseModel]) -> Schema:
        arms = {"additionalProperties": {"properties": {"model": _ref(one)}}}
        studies = {
            key: {"properties": dict.fromkeys(sorted(of.model_fields.keys() & OF_ARMS), arms)}
            for key, of in STUDIES.items()
        }
        return {"properties": {"model": _ref(one), "arms": arms, **studies}}

    return [
        _if({"anyOf": [names_a_model, an_arm_does]}, model(OwnModel), model(ModelConfig)),
        {"properties": {"benchmarks": _has(*needs["Benchmark"])}},  # which no arm completes
        _if(
            {"not": {"anyOf": [_has(key) for key in ("arms", *STUDIES)]}},
            {
                "properties": {
                    "model": _has(*needs["ModelConfig"]),
                    "train": _has(*needs["TrainConfig"]),
                }
            },
        ),
    ]


def _step(step: Schema, needs: Mapping[str, list[str]]) -> None:
    """Give a step the configuration of what it does. Where a sweep completes it, nothing is
    required."""
    step["properties"]["do"]["anyOf"] = [
        {"enum": list(BUILT_IN)},
        {"type": "string", "pattern": f"^{FUNCTION}$"},
    ]
    named = {"anyOf": [_has("own"), _has("own.model")]}  # by a point of a sweep
    sweep = {"anyOf": [{"type": "object", **named}, {"type": "array", "contains": named}]}
    own_model = {
        "anyOf": [
            _inside("config", _inside("own", _has("model"))),
            _inside("sweep", sweep),
        ]
    }
    cases = []
    for do, one in BUILT_IN.items():
        name = one.config.__name__
        rules = [{"properties": {"config": _ref_to(name)}}]
        whole = _has(*needs[name])
        if do in TRAINS:
            models = (_ref(OwnModel), _ref(ModelConfig))
            rules.append(_if(own_model, *(_config({"model": model}) for model in models)))
            whole["properties"] = {
                section: _has(*needs[model.__name__])
                for section, model in (("model", ModelConfig), ("train", TrainConfig))
            }
        if needs[name]:
            rules.append(_if({"not": _has("sweep")}, _inside("config", whole)))
        cases.append(_if(_inside("do", {"const": do}), {"allOf": rules}))
    step["allOf"] = cases


def _config(properties: Schema) -> Schema:
    return {"properties": {"config": {"properties": properties}}}


def _inside(key: str, schema: Schema) -> Schema:
    """That the key is there, and what it has."""
    return {**_has(key), "properties": {key: schema}}


def _has(*keys: str) -> Schema:
    return {"required": list(keys)}


def _if(condition: Schema, then: Schema, otherwise: Schema | None = None) -> Schema:
    return {"if": condition, "then": then, **({"else": otherwise} if otherwise else {})}


def _ref(one: type[BaseModel]) -> Schema:
    return _ref_to(one.__name__)


def _ref_to(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _suggest(field: Schema, values: Mapping[str, object]) -> None:
    """Complete a lab's own names. Another lab may have others, so that any text is accepted."""
    field["anyOf"] = [{"enum": list(values)}, {"type": field.pop("type")}]


def _tidied(node: Any) -> Any:
    """Without the titles that pydantic makes of names; a key that a pattern does not match is
    none."""
    if isinstance(node, list):
        return [_tidied(one) for one in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: _tidied(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and value is None)
    }
    if "patternProperties" in kept:
        kept["additionalProperties"] = False
    return kept
