"""A graph of steps: what each fingerprint covers, the order of the steps, and why a step must run
again. Pure.

A step is a function with a configuration and named inputs. Its fingerprint covers these and the
code that the function can reach (`runner.planning.code_digest`, `runner.lib.lab_code`). It covers
the fingerprints of its inputs, so a change affects exactly the steps that depend on it. It does not
cover names, places, devices, descriptions or versions of libraries; receipts have those. Each
output is computed once and shared by all steps with its fingerprint.
"""

import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from runner.lib.canonical_json import to_json
from runner.lib.lab_code import LAB_CODE
from runner.schema.record import PlannedStep

MAX_CHANGES = 5  # shown per step


class BadGraph(Exception):
    """Steps that cannot be ordered; `steps` are those in the way."""

    def __init__(self, message: str, steps: tuple[str, ...]) -> None:
        super().__init__(message)
        self.steps = steps


def order(needs: Mapping[str, Iterable[str]]) -> list[str]:
    """The steps, each after those that it needs. Raises BadGraph for a cycle."""
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        circle = tuple(reversed(error.args[1]))
        words = " needs ".join(f"`{name}`" for name in circle)
        raise BadGraph(
            f"{words}, so that none can be first; take one of these inputs out", circle[:-1]
        ) from error


def fingerprint(
    function: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, Mapping[str, str]],
    code: str,
) -> str:
    """SHA-256 over what determines a step's output: its function, configuration, the digest of its
    code (`code_sha256`), and for each input {step: fingerprint} the fingerprints, by label if it is
    a sweep."""
    given = {
        key: {_label(function, key, name): sha256 for name, sha256 in these.items()}
        for key, these in inputs.items()
    }
    parts = {"function": function, "config": config, "inputs": given, "code": code}
    return hashlib.sha256(to_json(parts)).hexdigest()


def _label(function: str, key: str, name: str) -> str:
    """The point of a sweep that an input is; "" for the one model that training continues and for
    the settings of its arm, whose names do not matter."""
    is_one = function == "regatta.train" and key in ("init", "settings")
    return "" if is_one else name.partition("/")[2]


def code_sha256(code: Mapping[str, str]) -> str:
    """One SHA-256 over the result of `planned_steps.code_of`."""
    lines = "".join(f"{name} {sha256}\n" for name, sha256 in sorted(code.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


ASKS_MODELS = (
    "evaluate",
    "generate",
    "benchmark",
)  # steps that compute with each of their input `models`


def without(step: PlannedStep, gone: Collection[str]) -> PlannedStep | None:
    """The step that asks models, without those that are `gone`; None if no model is left. Other
    steps need all of their inputs and stay unchanged."""
    if step.do not in ASKS_MODELS or not any(name in gone for name in step.inputs["models"]):
        return step
    models = {name: of for name, of in step.inputs["models"].items() if name not in gone}
    return again(step, {**step.inputs, "models": models}) if models else None


def again(step: PlannedStep, inputs: Mapping[str, Mapping[str, str]]) -> PlannedStep:
    """The step, which does not train, with these inputs and a new fingerprint."""
    fresh = fingerprint(step.function, step.config, inputs, code_sha256(step.code))
    return step.model_copy(update={"inputs": inputs, "fingerprint": fresh})


def points(
    sweep: Mapping[str, list[Any]] | Sequence[Mapping[str, Any]], seeds: Sequence[int] = ()
) -> dict[str, dict[str, Any]]:
    """The points of a sweep, {label: {dotted key: value}}: for a grid every combination, the last
    key fastest; for a list its items; each with each of the seeds, if there are any. A label is the
    point's `name`, or the values that vary, such as `learning_rate=0.001,seed=0`. Without a sweep
    there is one point, without label or values."""
    if isinstance(sweep, Mapping):
        combinations = itertools.product(*sweep.values())
        sweep = [dict(zip(sweep, values, strict=True)) for values in combinations]
    found = {}
    for point in sweep or [{}]:
        values = {key: value for key, value in point.items() if key != "name"}
        label = ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in values.items())
        label = str(point.get("name", label))
        for seed in seeds:
            both = f"{label},seed={seed}" if label else f"seed={seed}"
            found[_word(both)] = {**values, "seed": seed}
        if not seeds:
            found[_word(label)] = values
    return found


def _word(text: str) -> str:
    """`text` as a part of a path, with only the characters that one may contain."""
    word = re.sub(r"[^\w.+=,-]", "-", text)
    return word if word.strip(".") else "-" * len(word)  # `..` is another folder


def merged(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with each value set at its dotted key. Raises KeyError with the key if a part of its
    path is not a mapping."""
    result = dict(config)
    for dotted, value in values.items():
        first, _, rest = dotted.partition(".")
        if rest:
            inner = result.get(first, {})
            if not isinstance(inner, Mapping):
                raise KeyError(dotted)
            result[first] = merged(inner, {rest: value})
        else:
            result[first] = value
    return result


# ── Differences ──────────────────────────────────────────────────────────────────────────────


def changes(before: PlannedStep, after: PlannedStep) -> list[str]:
    """The changes from `before` to `after`, as texts: `train.learning_rate 0.003 → 0.002`,
    `model.py changed`. Empty if everything in the fingerprint is equal."""
    if before.fingerprint == after.fingerprint:
        return []
    found = [] if before.do == after.do else [f"do {before.do} → {after.do}"]
    found += [
        f"{key} {shown(one)} → {shown(other)}"
        for key, one, other in differing(leaves(before.config), leaves(after.config))
    ]
    for name, one, other in differing(before.code, after.code):
        what = "changed" if one and other else "is new" if other else "is no longer used"
        found.append(f"{code_in_words(name)} {what}")
    for key, one, other in differing(before.inputs, after.inputs):
        if one is None or other is None or set(one) != set(other):
            found.append(f"input {key}: {_listed(one)} → {_listed(other)}")
        else:
            moved = [name for name in other if one[name] != other[name]]
            found.append(f"input {key}: {', '.join(moved)} changed")
    return found


def code_changes(step: PlannedStep, here: Mapping[str, str]) -> list[str]:
    """How the code on this machine differs from the planned code, as texts."""
    if here == step.code:
        return []
    return changes(step, step.model_copy(update={"code": here, "fingerprint": ""}))


def differing(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """(key, before, after) of everything that differs; None if there is no such key."""
    for key in sorted(before.keys() | after.keys()):
        one, other = before.get(key), after.get(key)
        if one != other or (key in before) != (key in after):
            yield key, one, other


def leaves(value: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    """{dotted key: value} of everything below mappings and lists of mappings (`phases.0.at`)."""
    found: dict[str, Any] = {}
    for key, inner in value.items():
        path = f"{under}.{key}" if under else str(key)
        if isinstance(inner, list) and inner and all(isinstance(x, Mapping) for x in inner):
            inner = {str(number): one for number, one in enumerate(inner)}
        found |= leaves(inner, path) if isinstance(inner, Mapping) and inner else {path: inner}
    return found


def shown(value: Any) -> str:
    """A value of a configuration as text."""
    return (
        "(none)" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def code_in_words(name: str) -> str:
    """An entry of a step's code as text."""
    return "the lab's code" if name == LAB_CODE else name


def _listed(names: Mapping[str, Any] | None) -> str:
    return ", ".join(names) if names else "(none)"


def differences(
    before: Mapping[str, PlannedStep], after: Mapping[str, PlannedStep]
) -> Iterator[tuple[str, str]]:
    """(step, how it changed), in the order of `after`."""
    for name in before:
        if name not in after:
            yield name, "is no longer there"
    for name, step in after.items():
        if name not in before:
            yield name, "is new"
        elif found := changes(before[name], step):
            yield name, a_few(found)


def a_few(changes: list[str]) -> str:
    more = len(changes) - MAX_CHANGES
    said = changes[:MAX_CHANGES] + ([f"and {more} more"] if more > 0 else [])
    return "; ".join(said)
