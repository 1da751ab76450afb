"""Which metrics a graph of steps measures of each model, before anything runs. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from runner.schema import metrics, step_graph
from runner.spec.step_types import BUILT_IN, MODELS

MAX_NAMED = 30  # metrics in a clause


class StepLike(Protocol):
    """A step of a plan or a node of a graph."""

    @property
    def do(self) -> str: ...
    @property
    def own(self) -> tuple[str, ...]: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def inputs(self) -> Mapping[str, Iterable[str]]: ...  # {input: the steps}


def measures(step: StepLike) -> bool:
    """Whether the lab's own code, outside of every box, measures models in this step, or what it
    makes itself. Only then are its numbers scores."""
    built_in = BUILT_IN.get(step.do)
    if built_in is None or built_in.measures is None:
        return False
    if "models" in built_in.inputs and "models" not in step.inputs:
        return False
    return not step.own or step.do in step_graph.ASKS_MODELS


def models_of(name: str, step: StepLike) -> tuple[str, ...]:
    """The steps that made what this one measures: its input `models`; for a classifier, itself."""
    return tuple(step.inputs.get("models", (name,)))


def of_graph(steps: Mapping[str, StepLike]) -> dict[str, tuple[str, ...]]:
    """{step that makes a model or a classifier: the metrics that will be measured of it, in the
    order of steps}."""
    found: dict[str, dict[str, None]] = {}
    for name, step in steps.items():
        if measures(step):
            for model in models_of(name, step):
                found.setdefault(model, {}).update(dict.fromkeys(of_model(step, model, steps)))
    return {model: tuple(of) for model, of in found.items()}


def named(steps: Mapping[str, StepLike]) -> list[str]:
    """The metrics that will be measured of any model, each once."""
    return list(dict.fromkeys(metric for of in of_graph(steps).values() for metric in of))


def told(steps: Mapping[str, StepLike]) -> str | None:
    """The metrics that will be measured, as a clause; None if there are none."""
    itself = {x: one for x, one in steps.items() if measures(one) and "models" not in one.inputs}
    planned = {model: of for model, of in of_graph(steps).items() if model not in itself}
    models: dict[str, int] = {}
    for of in planned.values():
        for metric in of:
            models[metric] = models.get(metric, 0) + 1
    listed = [
        f"`{metric}`" + (f" (of {n} of {len(planned)} models)" if n < len(planned) else "")
        for metric, n in models.items()
    ]
    for name, step in itself.items():
        listed += [f"`{metric}` (of {name})" for metric in of_model(step, name, steps)]
    more = f" and {len(listed) - MAX_NAMED} more" if len(listed) > MAX_NAMED else ""
    return ", ".join(listed[:MAX_NAMED]) + more if listed else None


def of_model(step: StepLike, model: str, steps: Mapping[str, StepLike]) -> Iterator[str]:
    """The metrics that one step measures of one of its models."""
    built_in = BUILT_IN[step.do]
    assert built_in.measures
    yield from built_in.measures(step.config)
    if step.do != "evaluate":
        return
    parts = [
        part
        for name in step.inputs.get("tokens", ())
        if name in steps and steps[name].do == "mix"
        for part in steps[name].inputs
    ]
    for name in step.inputs.get("tokens", ()):
        if name in steps and steps[name].do == "conversations":
            parts = list(dict.fromkeys(["assistant", *steps[name].config["labels"]]))
    yield from map(metrics.of_part, parts if len(parts) > 1 else ())
    made = steps.get(model)
    is_built_in = made and made.do in BUILT_IN and BUILT_IN[made.do].makes in MODELS
    if made and is_built_in and "model" not in made.config.get("own", {}):
        yield metrics.OUTPUT_NORM
