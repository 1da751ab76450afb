"""The input `init` of a `train` step: the model that training starts from. Pure.

If it is a sweep, the step trains once for each point of it: the point `low,seed=0` of `pretrain` is
continued by `tune/tune,low,seed=0`, with the same seed. The first part of the name is the step's
own: its name, or its point if it is a sweep, too. If only the seed varies, it is left out."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.config.schema import ModelConfig
from engine.config.shapes import Shapes, shapes
from runner.lib.problems import Said
from runner.lib.yaml_lines import Path
from runner.schema import step_graph
from runner.spec.step_types import INIT
from runner.spec.steps import Step
from runner.spec.training_steps import Init, Train

MAX_POINTS = 10_000

Origins = Mapping[str, Mapping[str, str]]  # {step: {its point: the point of `init`}}


def spread(steps: Mapping[str, Step]) -> tuple[dict[str, Step], Origins]:
    """The steps, with a sweep for each that continues a sweep."""
    found, origins = dict(steps), dict[str, dict[str, str]]()
    try:
        order = step_graph.order({name: _continued(step, steps) for name, step in steps.items()})
    except step_graph.BadGraph:  # reported when the nodes are ordered
        return found, origins
    for name in order:
        step = found[name]
        for of in _continued(step, steps):
            source = found[of]
            if not source.is_swept or step.combinations * source.combinations > MAX_POINTS:
                continue
            points, origins[name] = list[dict[str, Any]](), {}
            models = step_graph.points(source.sweep, source.seeds)
            for mine, own in step_graph.points(step.sweep, step.seeds).items():
                for theirs, values in models.items():
                    label = _joined(name, mine, theirs)
                    seed = {"seed": values["seed"]} if "seed" in values else {}
                    points.append({"name": label, **own, **seed})
                    origins[name][label] = theirs
            found[name] = step.model_copy(update={"sweep": points, "seeds": ()})
    return found, origins


def _continued(step: Step, steps: Mapping[str, Step]) -> set[str]:
    """The step whose model this one continues, if there is one."""
    of = step.inputs.get(INIT)
    return {of} if step.do == "train" and of is not None and of in steps else set()


def _joined(name: str, mine: str, theirs: str) -> str:
    """The name of a point, with the seed as its last part. If only the seed varies, the seed."""
    parts = [*filter(None, mine.split(",")), *theirs.split(",")]
    seeds = [part for part in parts if part.startswith("seed=")]
    others = [part for part in parts if part not in seeds]
    first = [name] if others and not mine else []
    return ",".join([*first, *others, *seeds[-1:]])


def of_step(step: Step, steps: Mapping[str, Step]) -> Said:
    """Problems of a declared step that continues a sweep."""
    for of in _continued(step, steps):
        source = steps[of]
        theirs = _varies_seed(source)
        if theirs and _varies_seed(step):
            words = f"each run continues with the seed of its point of `{of}`; take `seeds` out"
            yield ("seeds",) if step.seeds else ("sweep",), words
        if (count := step.combinations * source.combinations) > MAX_POINTS:
            words = f"with each point of `{of}` these are {count:,} runs; take some out"
            yield ("sweep",) if step.sweep else ("inputs", INIT), words


def _varies_seed(step: Step) -> bool:
    points = step.sweep if isinstance(step.sweep, list) else [step.sweep]
    return bool(step.seeds) or any("seed" in one for one in points)


class Source(NamedTuple):
    """The node that made the initial model."""

    name: str
    trained: Train | None  # its configuration; None if no `train` step made it, or it has problems
    trains: bool  # whether a `train` step made it


def filled_in(config: Train, source: Source | None) -> tuple[Train, list[tuple[Path, str]]]:
    """The configuration with what it continues from, and its problems."""
    if source is None:
        words = f"no model is continued here; write `inputs: {{{INIT}: STEP}}`, or take this out"
        return config, [(("config", INIT), words)] if config.init else []
    asked = config.init or Init()
    if source.trained is None:
        wrong = [] if source.trains else list(_of_others(asked, source.name))
        return config.model_copy(update={INIT: asked.model_copy(update={"steps": None})}), wrong
    before = source.trained
    wrong = [*_of_moments(asked, config, source.name, before), *_of_schedule(asked, config)]
    fresh: tuple[str, ...] | None = None  # the shapes of own models are not known
    if isinstance(config.model, ModelConfig) and isinstance(before.model, ModelConfig):
        have, need = shapes(before.model), shapes(config.model)
        wrong += _of_shapes(source.name, have, need)
        fresh = tuple(sorted(need.keys() - have.keys()))
    elif config.model == before.model and config.own.model == before.own.model:
        fresh = ()
    steps = before.train.num_train_steps
    if before.init and before.init.schedule == "continue":
        steps += before.init.steps or 0
    update = {"steps": steps if asked.schedule == "continue" else None, "fresh": fresh}
    return config.model_copy(update={INIT: asked.model_copy(update=update)}), wrong


def _of_others(asked: Init, name: str) -> Said:
    if asked.moments:
        words = f"only a `train` step has moments, and `{name}` is another one; take this out"
        yield ("config", INIT, "moments"), words
    if asked.schedule == "continue":
        words = f"only a `train` step has a schedule, and `{name}` is another one; write new"
        yield ("config", INIT, "schedule"), words


def _of_moments(asked: Init, config: Train, name: str, before: Train) -> Said:
    if not asked.moments:
        return
    at: Path = ("config", INIT, "moments")
    if not before.train.keep_moments:
        yield at, f"`{name}` keeps no moments; write `keep_moments: true` in its `train`"
    for what, one, other in (
        ("optimizer", before.own.optimizer, config.own.optimizer),
        ("optimizer", before.train.optimizer, config.train.optimizer),
        ("ema_decay", before.train.ema_decay is not None, config.train.ema_decay is not None),
    ):
        if one != other:
            words = f"the moments are those of `{name}`, whose {what} is another one; "
            yield at, words + f"make `{what}` the same, or start without moments"


def _of_schedule(asked: Init, config: Train) -> Said:
    if asked.schedule == "continue" and config.train.phases:
        words = "phases count the steps of this run, and a schedule that continues does not"
        yield ("config", INIT, "schedule"), f"{words}; write schedule: new, or no phases"


def _of_shapes(name: str, have: Shapes, need: Shapes) -> Said:
    at: Path = ("config", "model")
    wrong = [path for path in need if path in have and have[path] != need[path]]
    if wrong:
        first = wrong[0]
        more = f" ({len(wrong) - 1} more differ)" if wrong[1:] else ""
        yield (
            at,
            f"`{name}` has `{first}` as {_shown(have[first])}, and this model has it as "
            f"{_shown(need[first])}{more}; make the two models fit",
        )
    if left := sorted(have.keys() - need.keys()):
        words = f"`{name}` has {', '.join(f'`{path}`' for path in left)}, and this model has not"
        yield at, f"{words}; make the two models fit"


def _shown(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))
