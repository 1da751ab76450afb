"""The records about the runs of an execution that enters a speedrun: the lab's own figures, and
what was measured from outside the code.

A run's time is that of its `train` step, from the start of its process to its end, plus that of the
steps with own code that it needs. If a maker was lost and the next one continued from its
checkpoint, the time of the lost one is not known exactly: then all attempts of the execution count
as a whole, which is at least as much."""

from collections.abc import Mapping

from pydantic import BaseModel

from engine.config import flops
from engine.config.schema import BatchSizes, ModelConfig
from runner.history import own_modules, step_runs
from runner.lib import bounds
from runner.lib.base_record import Sha256
from runner.lib.canonical_json import to_json
from runner.schema import record
from runner.schema.devices import Kind
from runner.schema.record import (
    EnteredRun,
    Evaluated,
    Execution,
    Plan,
    PlannedStep,
    Shipped,
    StepEnd,
)
from runner.store import artifacts
from runner.store.store import Store

OWN = "own.json"  # from `runner.worker.models.plugin_model`, which imports JAX
TOKENS = "validation/manifest.json"  # in the output of a `tokenize` step
INTERRUPTED = "of a lost maker it went on from, so that all attempts count as a whole"
ELSEWHERE = (
    "its cost is not known: it went on from what another execution had trained; run it in a new "
    "experiment"
)


class _Tokens(BaseModel):
    """What is read of a token store's manifest."""

    tokenizer_sha256: Sha256


def runs(
    store: Store, execution: Execution, ends: Mapping[str, StepEnd], attempts_seconds: float
) -> tuple[EnteredRun, ...]:
    """One per `train` step, given how the steps ended and how long all training attempts took
    together."""
    plan = execution.plan
    scores, _ = step_runs.evaluated(store, plan, ends)
    found = []
    for name, step in plan.steps.items():
        run = step.run(name)
        if run is None:
            continue
        end, score = ends.get(name), scores.get(name)
        seconds, hardware, measured = _measured(store, execution, ends, name, attempts_seconds)
        price = plan.kinds[step.resources.kind].price_of(step.resources.spot)
        count = step.resources.count
        tokens, parameters, model_flops = _counted(step, score)
        found.append(
            EnteredRun(
                arm=run[0],
                seed=run[1],
                own=bool(step.own),
                own_model="model" in step.config["own"],
                isolated=_isolated(end) and _scored_apart(plan, name, ends),
                evaluated=score,
                why="" if score else (end.why if end and end.why else "it was not scored"),
                void=(_another_model(store, step) if step.own and score else None) or "",
                resources=step.resources,
                tokens=tokens,
                parameters=parameters,
                model_flops=model_flops,
                seconds=seconds,
                hardware_flops=hardware,
                price=price * seconds * count / 3600 if price and seconds else None,
                measured=measured,
                shipped=_shipped(store, plan, name, parameters),
                tokenizer_sha256=_tokenizer(store, plan, name),
            )
        )
    return tuple(found)


def _shipped(store: Store, plan: Plan, name: str, parameters: int | None) -> Shipped | None:
    """None if the number of parameters is not known. They are stored as float32."""
    if parameters is None:
        return None
    step = plan.steps[name]
    code = own_modules.of(store, plan.code_folder) if step.own else {}
    steps = [step, *(plan.steps[other] for other in _needed(plan.steps, name))]
    declared = {to_json(one.config): one.config for one in steps if one.own}
    return Shipped(
        weights=4 * parameters,
        code=sum(map(len, code.values())),
        lines=sum(len(own_modules.lines(text)) for text in code.values()),
        tables=sum(map(own_modules.tables, code.values()))
        + sum(map(own_modules.declared_tables, declared.values())),
        declared=sum(map(len, declared)),
    )


def _tokenizer(store: Store, plan: Plan, name: str) -> str | None:
    """The digest of the tokenizer of the store that this step's model was scored on; None if it was
    not one store."""
    scorers = [x for x in plan.steps.values() if x.do == "evaluate" and name in x.inputs["models"]]
    try:
        (tokens,) = {tokens for scorer in scorers for tokens in scorer.inputs["tokens"]}
        manifest = step_runs.file_of(store, plan.steps[tokens], TOKENS) or b""
        return bounds.parse(_Tokens, manifest).tokenizer_sha256
    except step_runs.UNBELIEVED:
        return None


def _scored_apart(plan: Plan, name: str, ends: Mapping[str, StepEnd]) -> bool:
    """Whether the process that scored this step's model ran no own code."""
    return all(
        not step.own or _isolated(ends.get(scorer))
        for scorer, step in plan.steps.items()
        if step.do == "evaluate" and name in step.inputs["models"]
    )


def _isolated(end: StepEnd | None) -> bool:
    """Whether own code, if there was any, ran isolated."""
    return end is not None and not end.receipt.get("isolation", "").startswith("none")


def _another_model(store: Store, step: PlannedStep) -> str | None:
    """Why the output of own code is not the planned model; None if it is."""
    wanted = step.config["model"], step.config["own"].get("model")
    try:
        most = bounds.MOST_KEPT
        config = bounds.plain(step_runs.file_of(store, step, "model.json", most) or b"null")
        # Only an own model leaves this file.
        made = step_runs.file_of(store, step, OWN, most, optional=True)
        own = bounds.plain(made or b"{}")
        left = config, own.get("model")
    except (*step_runs.UNBELIEVED, AttributeError) as error:
        return f"what its training left cannot be read: {step_runs.said(error)}"
    return None if left == wanted else "its training left another model than was planned"


def _counted(step: PlannedStep, score: Evaluated | None) -> tuple[int, int | None, int | None]:
    """Tokens, parameters and model FLOPs of a run."""
    config, recipe = step.config["model"], step.config["train"]
    tokens = BatchSizes.of(recipe).until(recipe["num_train_steps"]) * config["seq_len"]
    if "model" not in step.config["own"]:
        model = ModelConfig.model_validate(config)
        return tokens, flops.parameters(model), flops.model_flops(model, tokens)
    forward = score.examined.forward_flops_per_token if score and score.examined else None
    model_flops = None if forward is None else 3 * forward * tokens
    return tokens, score.parameters if score else None, model_flops


def _measured(
    store: Store, execution: Execution, ends: Mapping[str, StepEnd], name: str, attempts: float
) -> tuple[float | None, float | None, str]:
    """(seconds of the training, hardware FLOPs with all own steps that it needs, a note)."""
    steps, kinds = execution.plan.steps, execution.plan.kinds
    seconds, words = _seconds(store, execution, steps[name], ends.get(name), attempts)
    if seconds is None:
        return None, None, words
    whole = seconds * _peak(steps[name], kinds)
    for other in _needed(steps, name):
        if steps[other].own:
            taken, why = _seconds(store, execution, steps[other], ends.get(other), attempts)
            if taken is None:
                return seconds, None, why
            whole += taken * _peak(steps[other], kinds)
    return seconds, whole, words


def _seconds(
    store: Store, execution: Execution, step: PlannedStep, end: StepEnd | None, attempts: float
) -> tuple[float | None, str]:
    if end is None or end.seconds is None or end.state == "failed":
        return None, ""
    if end.state == "cached" and (words := _on_other_devices(store, step, end.by)):
        return None, words
    lost = [
        start.by
        for start, ended in artifacts.history(store, step.store, step.fingerprint)[:-1]
        if ended is None or ended.how == "lost"
    ]
    if not lost:
        return end.seconds, ""
    if end.state == "made" and set(lost) == {execution.id}:
        return max(attempts, end.seconds), INTERRUPTED
    return None, ELSEWHERE


def _on_other_devices(store: Store, step: PlannedStep, by: str) -> str | None:
    """Why another execution's seconds for a step are not those of the devices that the step names
    (its fingerprint does not cover devices). None if they are."""
    maker = record.read(store, f"executions/{by}/execution", Execution)
    made = maker.plan.steps.values() if maker else ()
    of = next((one for one in made if one.fingerprint == step.fingerprint), None)
    if of is None:
        return f"its cost is not known: which devices {by or 'its maker'} had is not on record"
    if of.resources == step.resources:
        return None
    had = f"{of.resources.count} × {of.resources.kind}"
    return f"its cost is not known: {by} made it on {had}, and not on what is declared here"


def _peak(step: PlannedStep, kinds: Mapping[str, Kind]) -> float:
    """The peak FLOP/s of all its devices, of these kinds."""
    return kinds[step.resources.kind].peak_flops * step.resources.count


def _needed(steps: Mapping[str, PlannedStep], name: str) -> list[str]:
    """All steps that it depends on, directly or not."""
    found = dict.fromkeys(steps[name].needs)
    waiting = list(found)
    for one in waiting:  # grows during the loop
        fresh = [other for other in steps[one].needs if other not in found]
        found |= dict.fromkeys(fresh)
        waiting += fresh
    return list(found)
