"""The runs that the steps of an execution have trained and scored, with figures of the lab's own
evaluation, so that predictions are judged and rows are ranked in the same way as for arms and
seeds."""

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from pydantic import Field, TypeAdapter

from engine.config.schema import MAX_SNAPSHOTS
from runner.history import run_metrics
from runner.lib import bounds
from runner.lib.bounds import Count, Figure, Size, Step, Word
from runner.lib.canonical_json import to_json
from runner.lib.downsample import thinned
from runner.schema import metrics, step_graph
from runner.schema.job_reports import Refused, Report, printable, read_regular
from runner.schema.record import (
    Evaluated,
    Execution,
    Plan,
    PlannedStep,
    Run,
    StepEnd,
    Tuned,
    Validated,
)
from runner.spec import measured
from runner.spec.step_types import SETTINGS
from runner.spec.tuning import TUNED
from runner.store import artifacts
from runner.store.store import Store, StoreFault

MAX_BYTES = 64 << 20  # of an output file
MAX_MODELS = 100_000  # per step
MAX_METRICS = 1000  # per model
MAX_LINE = 500  # bytes of a line of a curve
READ = "inputs"  # in a receipt: SHA-256 over the digests of the step's inputs
# Not other StoreErrors, which mean that a bucket did not answer and say nothing about the output.
UNBELIEVED = (Refused, StoreFault, artifacts.BadOutput, ValueError, KeyError, TypeError)


class Point(Report):
    """One line of a curve: a step's metrics without those that depend on the machine. Older outputs
    have only the loss."""

    step: Step
    loss: Figure | None
    bpb: Figure | None = None
    grad_norm: Size | None = None
    param_norm: Size | None = None
    learning_rate: Figure | None = None
    tokens: Count | None = None
    skipped: bool = False
    max_load: Size | None = None
    dropped: Size | None = None


# Untrusted, as in `reports`: known keys and finite figures only.
SCORES = TypeAdapter(Annotated[dict[Word, Evaluated], Field(max_length=MAX_MODELS)])
Several = Annotated[dict[metrics.Metric, metrics.Score], Field(max_length=MAX_METRICS)]
CURVES = TypeAdapter(
    Annotated[
        dict[Word, Annotated[dict[Word, metrics.Score], Field(max_length=MAX_SNAPSHOTS)]],
        Field(max_length=MAX_MODELS),
    ]
)
MEASURED = TypeAdapter(Annotated[dict[Word, Several], Field(max_length=MAX_MODELS)])


def runs(
    store: Store, execution: Execution, ends: Mapping[str, StepEnd]
) -> tuple[dict[tuple[str, int], Run], list[str]]:
    """Each (arm, seed) that the steps train, given how they ended; and rejected reports."""
    plan, found = execution.plan, {}
    scores, refused = evaluated(store, plan, ends)
    also, why = measured_by(store, plan, ends)
    curves, misread = curves_by(store, plan, ends)
    searches, unread = tuned_by(store, plan)
    refused += [*why, *misread, *unread]
    for (arm, seed), name in plan.trained().items():
        planned, end = plan.arms[arm], ends.get(name)
        made = end is not None and end.state != "failed"
        noted = run_metrics.of_step(store, plan.steps[name])
        points: Sequence[Point] = _curve(store, plan.steps[name], refused) if made else ()
        refused += noted.refused
        steps = planned.train.num_train_steps if made else noted.step
        found[arm, seed] = Run(
            execution=execution.id,
            arm=arm,
            seed=seed,
            state="finished" if made else "failed" if end else "unfinished",
            why="" if made or not end else end.why,
            steps=steps,
            tokens=planned.tokens_until(steps),
            model_flops=planned.model_flops_until(steps),
            evaluated=scores.get(name) if made else None,
            scores=also.get(name, {}) if made else {},
            checkpoint_sha256=end.output_sha256 if made and end else None,
            validation=_to_the_end(curves.get(name, ()), steps, also.get(name, {})) if made else (),
            curve=thinned(_losses(points) if made else noted.losses),
            skipped=sum(line.skipped for line in points or noted.lines),
            tokens_per_second=noted.mean_tokens_per_second,
            tuned=searches.get(next(iter(plan.steps[name].inputs.get(SETTINGS, ())), "")),
        )
    return found, refused


def tuned_by(store: Store, plan: Plan) -> tuple[dict[str, Tuned], list[str]]:
    """{`tune` step: what it found}, and rejected reports."""
    found, refused = dict[str, Tuned](), list[str]()
    for name, step in plan.steps.items():
        try:
            if step.do == "tune" and (data := file_of(store, step, TUNED, bounds.MOST_KEPT)):
                found[name] = bounds.parse(Tuned, data)
        except UNBELIEVED as error:
            refused.append(f"{name}, {TUNED}: {said(error)}")
    return found, refused


def read_by(store: Store, step: PlannedStep, steps: Mapping[str, PlannedStep]) -> str:
    """SHA-256 over the digests of all inputs of a step."""
    found = {}
    for name, fingerprint in sorted(
        (x, of) for these in step.inputs.values() for x, of in these.items()
    ):
        made = artifacts.said(store, steps[name].store, fingerprint)
        found[name.partition("/")[2] or name] = made.output_sha256 if made else ""
    return hashlib.sha256(to_json(found)).hexdigest()


def scoring(plan: Plan, name: str, ends: Mapping[str, StepEnd]) -> PlannedStep:
    """A step that asks models, without those whose training has failed."""
    step = plan.steps[name]
    failed = {x for x in step.needs if x in ends and ends[x].state == "failed"}
    return step_graph.without(step, failed) or step


def evaluated(
    store: Store, plan: Plan, ends: Mapping[str, StepEnd]
) -> tuple[dict[str, Evaluated], list[str]]:
    """{train step: the lab's figures of its model}, from the outputs of `evaluate` steps, and
    rejected reports. A model that two of them score has no figure, because neither can be
    preferred."""
    found, refused, twice = dict[str, Evaluated](), list[str](), set[str]()
    for name, step in plan.steps.items():
        if step.do != "evaluate":
            continue
        try:
            scored = scoring(plan, name, ends)
            scores = scores_of(store, scored, plan.steps)
            _check_read(store, plan, scored)
        except UNBELIEVED as error:
            refused.append(f"{name}, scores.json: {said(error)}")
            continue
        twice |= found.keys() & scores.keys()
        found |= scores
    refused += [f"{model}: two steps score it, so that it has no one figure" for model in twice]
    return {model: score for model, score in found.items() if model not in twice}, refused


def measured_by(
    store: Store, plan: Plan, ends: Mapping[str, StepEnd]
) -> tuple[dict[str, metrics.Measured], list[str]]:
    """{step that makes a model: its scores by metric}, from the outputs of all steps of the lab
    that measure models, and rejected reports. Only planned metrics count, and none of a model that
    an `evaluate` step saw look ahead. A metric that two steps measure of a model has no score."""
    found, refused, twice = dict[str, metrics.Measured](), list[str](), set[tuple[str, str]]()
    void = set[str]()
    for name, step in plan.steps.items():
        if not measured.measures(step):
            continue
        try:
            asked = scoring(plan, name, ends)
            void |= _void(store, asked)
            of_models = measured_of(store, name, asked, plan.steps)
            _check_read(store, plan, asked)
        except UNBELIEVED as error:
            refused.append(f"{name}, {metrics.MEASURED}: {said(error)}")
            continue
        for model, scores in of_models.items():
            mine = found.setdefault(model, {})
            twice |= {(model, metric) for metric in mine.keys() & scores.keys()}
            mine |= scores
    for model, metric in sorted(twice):
        del found[model][metric]
        if metric != metrics.BPB:  # `evaluated` reports that one
            refused.append(f"{model}: two steps measure {metric}, so that it has no one score")
    return {model: of for model, of in found.items() if model not in void}, refused


def curves_by(
    store: Store, plan: Plan, ends: Mapping[str, StepEnd]
) -> tuple[dict[str, tuple[Validated, ...]], list[str]]:
    """{train step: the bits per byte of its snapshots}, from the outputs of `evaluate` steps, and
    rejected reports. Only planned steps count. A model that two of them score has no curve."""
    found, refused, twice = dict[str, tuple[Validated, ...]](), list[str](), set[str]()
    for name, step in plan.steps.items():
        models = step.inputs["models"] if step.do == "evaluate" else ()
        if not any(plan.steps[model].snapshots for model in models):
            continue
        try:
            asked = scoring(plan, name, ends)
            void = _void(store, asked)
            data = file_of(store, asked, metrics.CURVES, bounds.MOST_KEPT, optional=True)
            read = bounds.parse(CURVES, data or b"{}")
            _check_read(store, plan, asked)
        except UNBELIEVED as error:
            refused.append(f"{name}, {metrics.CURVES}: {said(error)}")
            continue
        for model in asked.inputs["models"].keys() - void:
            of = read.get(model.partition("/")[2], {})
            points = ((at, of[str(at)]) for at in plan.steps[model].snapshots if str(at) in of)
            twice |= found.keys() & {model}
            found[model] = tuple((at, one.value, one.standard_error) for at, one in points)
    return {model: of for model, of in found.items() if of and model not in twice}, refused


def _to_the_end(
    snapshots: tuple[Validated, ...], steps: int, scores: metrics.Measured
) -> tuple[Validated, ...]:
    """The validation curve of a run: its snapshots, and the model itself after all steps."""
    last = scores.get(metrics.BPB)
    if not snapshots or last is None:
        return snapshots
    return *snapshots, (steps, last.value, last.standard_error)


def _void(store: Store, step: PlannedStep) -> set[str]:
    """The models whose scores do not count, as the look-ahead probe of an `evaluate` step says.
    (Other steps write no scores of such models.) Raises one of `UNBELIEVED`."""
    found = _scores(store, step).items() if step.do == "evaluate" else ()
    return {model for model, one in found if one.examined and one.examined.void}


def measured_of(
    store: Store, name: str, step: PlannedStep, steps: Mapping[str, PlannedStep]
) -> dict[str, metrics.Measured]:
    """{step that makes a model: its scores by planned metric} from the output of the step `name`
    that measures models; {} if there is none. Other metrics do not count: what a plan cannot know
    of a model (own code may have made it) may be measured nonetheless. Raises one of
    `UNBELIEVED`."""
    data = file_of(store, step, metrics.MEASURED, bounds.MOST_KEPT, optional=True)
    found, read = {}, bounds.parse(MEASURED, data or b"{}")
    for model in measured.models_of(name, step):
        scores = read.get("" if model == name else model.partition("/")[2], {})
        planned = {*measured.of_model(step, model, steps)}
        found[model] = {metric: one for metric, one in scores.items() if metric in planned}
    return found


def _check_read(store: Store, plan: Plan, step: PlannedStep) -> None:
    """Refuse the output of a step if its inputs are others now."""
    made = artifacts.said(store, step.store, step.fingerprint)
    if made and made.receipt.get(READ, "") not in ("", read_by(store, step, plan.steps)):
        raise Refused("the models that lie there are not those that were scored")


def scores_of(
    store: Store, step: PlannedStep, steps: Mapping[str, PlannedStep]
) -> dict[str, Evaluated]:
    """{train step: its model's figures} from the output of an `evaluate` step; {} if there is none.
    Conversations may have fewer tokens to score than were planned. Raises one of `UNBELIEVED`."""
    found, planned = _scores(store, step), step.config["tokens"]
    texts = [steps[name].do for name in step.inputs.get("tokens", ()) if name in steps]
    for score in found.values():
        fewer = "conversations" in texts and 0 < score.targets < planned
        if score.targets != planned and not fewer:
            raise Refused(f"it scored {score.targets} tokens instead of {planned}")
    return found


def _scores(store: Store, step: PlannedStep) -> dict[str, Evaluated]:
    scores = bounds.parse(SCORES, file_of(store, step, "scores.json", bounds.MOST_KEPT) or b"{}")
    labels = {model: model.partition("/")[2] for model in step.inputs["models"]}
    return {model: scores[label] for model, label in labels.items() if label in scores}


def losses_of(store: Store, step: PlannedStep) -> list[tuple[int, float]]:
    """A trained model's (step, training loss in nats per token); [] if it does not exist. Raises
    one of `UNBELIEVED`."""
    return _losses(points_of(store, step))


def _losses(points: Iterable[Point]) -> list[tuple[int, float]]:
    return [(point.step, point.loss) for point in points if point.loss is not None]


def points_of(store: Store, step: PlannedStep) -> list[Point]:
    """A trained model's curve; [] if it does not exist. Raises one of `UNBELIEVED`."""
    data = io.BytesIO(file_of(store, step, "curve.jsonl") or b"")
    found, planned = list[Point](), step.config["train"]["num_train_steps"]
    while line := data.readline(MAX_LINE + 2):  # one at a time, because there may be millions
        if len(found) == planned:
            raise Refused(f"it has more than {planned} lines, and as many steps were planned")
        if len(line.rstrip(b"\r\n")) > MAX_LINE:
            raise Refused(f"line {len(found) + 1} is longer than {MAX_LINE} bytes")
        found.append(bounds.parse(Point, line))
    return found


def said(error: Exception) -> str:
    """A refusal as text for a record; it may quote the file."""
    return printable(" ".join(str(error).split()))[:200]


def _curve(store: Store, step: PlannedStep, refused: list[str]) -> list[Point]:
    try:
        return points_of(store, step)
    except UNBELIEVED as error:
        refused.append(f"{step.store}, curve.jsonl: {said(error)}")
        return []


def file_of(
    store: Store,
    step: PlannedStep,
    name: str,
    most_bytes: int = MAX_BYTES,
    *,
    optional: bool = False,
) -> bytes | None:
    """A file of a step's output, checked against its digest; None if there is no output or, where
    that is `optional`, no such file. Does not read the parameters beside it, which may be large.
    Raises one of `UNBELIEVED`."""
    made = artifacts.find(store, step.store, step.fingerprint, check=False)
    if made is None or (optional and name not in made.manifest.files):
        return None
    data = read_regular(store.at(f"{made.manifest.folder}/{name}"), most_bytes)
    wanted = made.manifest.files.get(name)
    if data is None or wanted is None or hashlib.sha256(data).hexdigest() != wanted.sha256:
        raise Refused("it is not the file that was made")
    return data
