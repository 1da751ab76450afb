"""What the steps of an execution have trained and scored, as runs: with figures of the lab's own
evaluation, so that predictions are judged and rows are ranked as those of arms and seeds are."""

import hashlib
from collections.abc import Mapping

from pydantic import Field, TypeAdapter

from runner import makers
from runner.progress import thinned
from runner.record import Evaluated, Execution, Plan, PlannedStep, Run, StepEnd
from runner.reports import Refused, Report, read_regular
from runner.store import Store, StoreFault

MOST_BYTES = 64 << 20  # of a file that a step has left
MOST_LINE = 200  # bytes of a line of its curve
MOST_POINTS = 10_000_000
# But no other StoreError, which says that a bucket could not be asked, and nothing of an output.
UNBELIEVED = (Refused, StoreFault, makers.BadOutput, ValueError, KeyError, TypeError)


class Point(Report):
    """One line of a curve."""

    step: int = Field(ge=1)
    loss: float | None


# A job's word, as `reports` has it: known keys, and figures that are finite.
SCORES = TypeAdapter(dict[str, Evaluated])


def runs(
    store: Store, execution: Execution, ends: Mapping[str, StepEnd]
) -> tuple[dict[tuple[str, int], Run], list[str]]:
    """Each (arm, seed) that the steps train, given how they ended; and what was not believed."""
    plan, refused = execution.plan, list[str]()
    scores = _scores(store, plan, refused)
    found = {}
    for (arm, seed), name in plan.trained().items():
        planned, end = plan.arms[arm], ends.get(name)
        made = end is not None and end.state != "failed"
        steps = planned.train.num_train_steps if made else 0
        found[arm, seed] = Run(
            execution=execution.id,
            arm=arm,
            seed=seed,
            state="finished" if made else "failed" if end else "unfinished",
            why="" if made or not end else end.why,
            steps=steps,
            tokens=steps * planned.tokens_per_step,
            model_flops=planned.model_flops if made else 0,
            evaluated=scores.get(name) if made else None,
            checkpoint_sha256=end.output_sha256 if made and end else None,
            curve=thinned(_curve(store, plan.steps[name], refused)) if made else (),
            tokens_per_second=None,
        )
    return found, refused


def _scores(store: Store, plan: Plan, refused: list[str]) -> dict[str, Evaluated]:
    """{train step: the lab's figures of its model}, as `evaluate` steps have left them. A model
    that two of them score has no figure: which one would count?"""
    found: dict[str, Evaluated] = {}
    twice = set()
    for name, step in plan.steps.items():
        if step.do != "evaluate" or step.own:
            continue
        try:
            scores = scores_of(store, step)
        except UNBELIEVED as error:
            refused.append(f"{name}, scores.json: {' '.join(str(error).split())[:200]}")
            continue
        twice |= found.keys() & scores.keys()
        found |= scores
    refused += [f"{model}: two steps score it, so that it has no one figure" for model in twice]
    return {model: score for model, score in found.items() if model not in twice}


def scores_of(store: Store, step: PlannedStep) -> dict[str, Evaluated]:
    """{train step: its model's figures} as an `evaluate` step has left them; {} if it has not.
    Raises one of `UNBELIEVED`."""
    found, scores = {}, SCORES.validate_json(file_of(store, step, "scores.json") or b"{}")
    for model in step.inputs["models"]:
        label = model.partition("/")[2]
        if label in scores:
            found[model] = scores[label]
            if found[model].targets != step.config["tokens"]:
                planned = step.config["tokens"]
                raise Refused(f"it scored {found[model].targets} tokens instead of {planned}")
    return found


def losses_of(store: Store, step: PlannedStep) -> list[tuple[int, float]]:
    """A trained model's (step, training loss in nats a token); [] if it is not there. Raises one of
    `UNBELIEVED`."""
    data, most = file_of(store, step, "curve.jsonl") or b"", _most_points(step)
    lines = data.splitlines()[: most + 1]
    if len(lines) > most:
        raise Refused(f"it has more than {most} lines, and as many steps were planned")
    if long := next((number for number, line in enumerate(lines, 1) if len(line) > MOST_LINE), 0):
        raise Refused(f"line {long} is longer than {MOST_LINE} bytes")
    points = [Point.model_validate_json(line) for line in lines]
    return [(point.step, point.loss) for point in points if point.loss is not None]


def _most_points(step: PlannedStep) -> int:
    """The steps that it trains, or what a figure of them would show."""
    recipe = step.config.get("train")
    steps = recipe.get("num_train_steps") if isinstance(recipe, dict) else None
    return steps if isinstance(steps, int) else MOST_POINTS


def _curve(store: Store, step: PlannedStep, refused: list[str]) -> list[tuple[int, float]]:
    try:
        return losses_of(store, step)
    except UNBELIEVED as error:
        refused.append(f"{step.store}, curve.jsonl: {' '.join(str(error).split())[:200]}")
        return []


def file_of(store: Store, step: PlannedStep, name: str) -> bytes | None:
    """A file of a step's output, with the digest that it was made with; None if there is no output.
    Parameters beside it are left alone: they may be large."""
    made = makers.find(store, step.store, step.fingerprint, check=False)
    if made is None:
        return None
    data = read_regular(store.at(f"{made.manifest.folder}/{name}"), MOST_BYTES)
    wanted = made.manifest.files.get(name)
    if data is None or wanted is None or hashlib.sha256(data).hexdigest() != wanted.sha256:
        raise Refused("it is not the file that was made")
    return data
