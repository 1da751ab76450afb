"""An experiment → its plan: what would run, to the last default, and what it would cost.

Pure but for reading the text that the figures depend on. Nothing of an experiment is executed.
"""

import hashlib
from pathlib import Path

from engine import flops
from engine.config import ModelConfig, TrainConfig
from engine.tokenize import BadText, Text, read_text
from runner import spec
from runner.hardware import KINDS
from runner.record import Cost, Plan, PlannedArm, PlannedData, Preregistration
from runner.spec import BadExperiment, Experiment
from runner.store import Store, to_json

UTILISATION = (0.5, 0.2)  # of peak FLOP/s: what a good and a poor run reach


def plan_folder(path: Path, store: Store | None = None) -> Plan:
    """The plan of the experiment in the folder (or file) `path`, without preregistration's seal.

    With a store, a text of the experiment's own is kept there for the job to read. Raises
    BadExperiment.
    """
    experiment = spec.load(path)
    folder = path if path.is_dir() else path.parent
    text = the_text(experiment, folder)
    if store:
        keep_text(store, text)
    return make_plan(experiment, folder.as_posix(), text, sealed=None)


def the_text(experiment: Experiment, folder: Path | None) -> Text:
    """The text the experiment trains on. Raises BadExperiment where it cannot be read."""
    try:
        return read_text(experiment.data.source, folder)
    except BadText as error:
        raise BadExperiment([experiment.problem(("data", "source"), str(error))]) from error
    except (OSError, ValueError) as error:  # a name that is too long, or that no file can have
        words = "no file can have this name"
        raise BadExperiment([experiment.problem(("data", "source"), words)]) from error


def keep_text(store: Store, text: Text) -> None:
    """Put an experiment's own text where its jobs find it: `texts/<digest>-<digest>/`.

    The standard library is not kept: every machine has it, and its digest is in the plan.
    """
    if text.source != "stdlib":
        folder = text_folder(text.train_sha256, text.validation_sha256)
        store.create(f"{folder}/train", text.train)
        store.create(f"{folder}/validation", text.validation)


def text_folder(train_sha256: str, validation_sha256: str) -> str:
    """Where in the store the text with these digests lies."""
    return f"texts/{train_sha256}-{validation_sha256}"


def make_plan(
    experiment: Experiment, folder: str, text: Text, sealed: Preregistration | None
) -> Plan:
    """Resolve `experiment` under its sealed preregistration, if it has one.

    Raises BadExperiment where a prediction speaks of an arm that the experiment lacks, or the
    text is too short for the windows.
    """
    problems = [
        experiment.problem(
            ("arms",),
            f"the preregistration predicts something of the arm `{name}`, which is not here"
            + spec.near(name, experiment.arms),
        )
        for prediction in (sealed.predictions if sealed else ())
        for name in (prediction.arm, prediction.versus)
        if name is not None and name not in experiment.arms
    ]
    for model, _ in experiment.arms.values():
        try:
            text.check_lengths(model.seq_len, experiment.eval.tokens)
        except BadText as error:
            problems.append(experiment.problem(("data", "source"), str(error)))
            break
    if problems:
        raise BadExperiment(problems)
    # Sorted, as records are: a plan is the same whether it was just made or read back.
    arms = {name: _arm(*experiment.arms[name]) for name in sorted(experiment.arms)}
    draft = Plan(
        experiment=folder,
        title=experiment.title,
        preregistration=experiment.preregistration,
        seal=sealed.seal if sealed else None,
        predictions=sealed.predictions if sealed else (),
        data=PlannedData(
            source=experiment.data.source,
            tokenizer=experiment.data.tokenizer,
            train_tokens=len(text.train),
            train_sha256=text.train_sha256,
            validation_tokens=len(text.validation),
            validation_sha256=text.validation_sha256,
        ),
        eval=experiment.eval,
        resources=experiment.resources,
        seeds=experiment.seeds,
        arms=arms,
        cost=_cost(experiment, arms),
        fingerprint="0" * 64,
    )
    return draft.model_copy(update={"fingerprint": fingerprint(draft)})


def fingerprint(plan: Plan) -> str:
    """SHA-256 over what an approval binds: all of the plan but its words and its estimate."""
    words = {"title", "experiment", "cost", "fingerprint"}
    return hashlib.sha256(to_json(plan.model_dump(mode="json", exclude=words))).hexdigest()


def _arm(model: ModelConfig, train: TrainConfig) -> PlannedArm:
    tokens = train.num_train_steps * train.train_batch_size * model.seq_len
    return PlannedArm(
        model=model,
        train=train,
        parameters=flops.parameters(model),
        tokens=tokens,
        forward_flops_per_token=flops.forward_flops_per_token(model),
        model_flops=flops.model_flops(model, tokens),
    )


def _cost(experiment: Experiment, arms: dict[str, PlannedArm]) -> Cost:
    kind, count = KINDS[experiment.resources.kind], experiment.resources.count
    seeds = len(experiment.seeds)
    model_flops = sum(arm.model_flops for arm in arms.values()) * seeds
    low, high = (model_flops / utilisation for utilisation in UTILISATION)
    seconds = (low / (kind.peak_flops * count), high / (kind.peak_flops * count))
    hours = [second * count / 3600 for second in seconds]
    return Cost(
        runs=len(arms) * seeds,
        tokens=sum(arm.tokens for arm in arms.values()) * seeds,
        model_flops=model_flops,
        hardware_flops=(low, high),
        seconds=seconds,
        price=(hours[0] * kind.price, hours[1] * kind.price) if kind.price else None,
        device=f"{count} × {kind.description}",
    )
