"""An experiment → its plan: what would run, to the last default, and what it would cost.

Pure but for reading the text that the figures depend on. Nothing of an experiment is executed.
"""

import gc
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from engine.data.lab_texts import SHIPPED, BadText, Text, read_text
from runner.lib import lab_code, yaml_lines
from runner.lib.canonical_json import to_json
from runner.lib.format import natural
from runner.lib.paths import LAB
from runner.lib.problems import BadExperiment, Problem, near
from runner.planning import code_digest, cost, lockfile, subset
from runner.schema import prediction_forms, step_graph
from runner.schema.plan_fingerprint import fingerprint
from runner.schema.record import (
    Plan,
    PlannedArm,
    PlannedData,
    PlannedStep,
    Preregistration,
    Resources,
)
from runner.spec import declaration, ladder
from runner.spec.declaration import Experiment
from runner.spec.step_types import calls_of, parts_of
from runner.spec.steps import Node
from runner.store.store import Store

SAVING = {"checkpoint_every", "checkpoint_seconds", "keep_checkpoints", "keep_every"}
NO_FINGERPRINT = "0" * 64  # of what is not yet whole
NO_COST = cost.cost([], Resources(kind="cpu"))
OWN_TEXT = "own"  # the source of a text that is told by its digests


@cache
def _known(source: str) -> Text:
    return read_text(source, None)


def _text(folder: Path, source: str) -> Text:
    """The text of this name, or in this file of the experiment's folder. Raises BadText."""
    return _known(source) if is_known(source) else read_text(source, folder)


def is_known(source: str | None) -> bool:
    """Whether every machine has the text of this name, or there is none."""
    return source is None or source in ("stdlib", *SHIPPED)


def plan_folder(path: Path, store: Store | None = None, lab: Path = LAB) -> Plan:
    """The plan of the experiment in the folder (or file) `path`, without preregistration's seal.

    With a store, what its jobs need of the folder is kept there. `lab` holds the lab's packages.
    Raises BadExperiment.
    """
    with _nothing_to_collect():
        experiment = declaration.load(path)
        folder = path if path.is_dir() else path.parent
        plan = make_plan(experiment, folder, lab)
    if store:
        keep(store, plan, folder)
    return plan


@contextmanager
def _nothing_to_collect() -> Iterator[None]:
    """Ten thousand steps are a million objects that all stay: without this, a third of the time
    goes into looking among them for garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def make_plan(
    experiment: Experiment,
    folder: Path,
    lab: Path = LAB,
    *,
    called: str = "",
    sealed: Preregistration | None = None,
    rung: int = 1,
) -> Plan:
    """Resolve an experiment whose own files lie in `folder`, under its sealed preregistration, if
    it has one; of a ladder this rung. Its code is read and not run. `called` is the folder in the
    repository, where that is another one. Raises BadExperiment."""
    texts = cache(partial(_text, folder))
    steps, problems = _steps(experiment, folder, lab, called, texts)
    if problems:
        raise BadExperiment(problems)
    data, problems = _data(experiment, texts)
    arms = _arms(experiment)
    problems += _of_no_arm(experiment, arms, sealed)
    if problems := problems or [*_of_no_law(experiment, arms, sealed)]:
        raise BadExperiment(problems)
    compiled = Path(experiment.file).name == declaration.LOCK_NAME
    draft = Plan(
        experiment=called or folder.as_posix(),
        title=experiment.title,
        preregistration=experiment.preregistration,
        seal=sealed.seal if sealed else None,
        predictions=sealed.predictions if sealed else (),
        data=data,
        eval=experiment.eval,
        resources=experiment.resources,
        seeds=experiment.seeds,
        arms=arms,
        steps=steps,
        code_sha256=_digest(_own_code(steps, folder, compiled)),
        compiled=compiled,
        ceiling_hours=experiment.ceiling_hours,
        speedrun=experiment.speedrun,
        cost=NO_COST,
        fingerprint=NO_FINGERPRINT,
    )
    if not experiment.seeds:
        seeds = sorted({seed for _, seed in draft.trained()})
        draft = draft.model_copy(update={"seeds": tuple(seeds)})
    if problems := [*_unlike(experiment, draft)]:
        raise BadExperiment(problems)
    if experiment.ladder:
        unlike = ladder.unlike(experiment.ladder, arms)
        if problems := [experiment.problem(path, words) for path, words in unlike]:
            raise BadExperiment(problems)
        planned = experiment.ladder.planned(rung, arms if sealed else None)
        draft = subset.only(draft, {planned.baseline, planned.variant}, set(draft.seeds))
        draft = draft.model_copy(update={"rung": planned})
    draft = draft.model_copy(update={"cost": cost.of(draft)})
    return draft.model_copy(update={"fingerprint": fingerprint(draft)})


def _steps(
    experiment: Experiment, folder: Path, lab: Path, called: str, texts: Callable[[str], Text]
) -> tuple[dict[str, PlannedStep], list[Problem]]:
    """Every node with its fingerprint, and what is wrong with the code and the texts they name."""
    compiled = Path(experiment.file).name == declaration.LOCK_NAME
    if compiled:
        lockfile.check_source(folder, called or str(folder))
    problems: list[Problem] = []
    steps: dict[str, PlannedStep] = {}
    first: dict[tuple[Any, ...], PlannedStep] = {}  # points of a sweep differ in little
    found = cache(lambda function, own: _code(function, own, folder, lab))
    uncallable = cache(partial(code_digest.uncallable, folder))
    private, place = _private(experiment.nodes), folder.resolve().name
    for turn, (name, node) in enumerate(experiment.nodes.items()):
        try:
            code, digest = found(node.function, node.own)
            for function, given in calls_of(node.do, node.config):
                if words := uncallable(function, given):
                    raise code_digest.BadCode(words)
        except code_digest.BadCode as error:
            code, digest = {}, ""
            words = str(error).replace(str(folder), called or str(folder))
            if words not in [problem.message for problem in problems]:
                problems.append(experiment.problem(experiment.place(name), words))
        try:
            config = _with_source(texts, node) if node.do == "tokenize" else node.config
        except BadText as error:
            config = node.config
            problems.append(experiment.problem(experiment.source(name), str(error)))
        except (OSError, ValueError):  # a name that is too long, or that no file can have
            config = node.config
            words = "no file can have this name"
            problems.append(experiment.problem(experiment.source(name), words))
        inputs = {
            key: {one: steps[one].fingerprint for one in these if one in steps}
            for key, these in node.inputs.items()
        }
        store = _shared_as(node, place) if name in private else node.do
        alike = node.do, node.function, node.own, node.resources, node.alias, store
        if alike not in first:
            first[alike] = PlannedStep(
                do=node.do,
                function=node.function,
                own=node.own,
                config={},
                code=code,
                resources=node.resources,
                alias=node.alias,
                fingerprint=NO_FINGERPRINT,
                store=store,
            )
        decisive = _decisive(node, config)
        itself = {
            "turn": turn,
            "config": config,
            "inputs": inputs,
            "fingerprint": step_graph.fingerprint(node.function, decisive, inputs, digest),
        }
        steps[name] = first[alike].model_copy(update=itself)
    return steps, problems


def _data(
    experiment: Experiment, texts: Callable[[str], Text]
) -> tuple[PlannedData | None, list[Problem]]:
    """The text that arms train on, and whether it is too short for their windows."""
    if experiment.data is None:
        return None, []
    text, problems = texts(experiment.data.source), []
    for seq_len in dict.fromkeys(of.model.seq_len for of in experiment.arms.values()):
        try:
            text.check_lengths(seq_len, experiment.eval.tokens)
        except BadText as error:
            problems.append(experiment.problem(("data", "source"), str(error)))
            break
    planned = PlannedData(
        source=experiment.data.source,
        tokenizer=experiment.data.tokenizer,
        train_tokens=len(text.train),
        train_sha256=text.train_sha256,
        validation_tokens=len(text.validation),
        validation_sha256=text.validation_sha256,
    )
    return planned, problems


def code_of(function: str, own: Iterable[str], folder: Path, lab: Path = LAB) -> dict[str, str]:
    """{file: SHA-256} of the code that a step reaches: by the function that makes it, and by those
    of the experiment's `folder` that it is told to call; all of the lab's is one entry, and says
    nothing of files. Raises closure.BadCode."""
    code: dict[str, str] = {}
    for one in own:
        module, _, name = one.partition(":")
        if name not in (there := code_digest.defined(module, folder)):
            words = f"`{folder}` has no `{name}` in a module `{module}`{near(name, there)}"
            raise code_digest.BadCode(words)
        code |= code_digest.reach(module, folder)
    names = [*code_digest.of_lab(code, folder, lab), *parts_of(function)]
    return code | lab_code.entry(names, lab)


def _code(function: str, own: Iterable[str], folder: Path, lab: Path) -> tuple[dict[str, str], str]:
    """The code that a step reaches, and its digest."""
    code = code_of(function, own, folder, lab)
    return code, step_graph.code_sha256(code)


def _with_source(read: Callable[[str], Text], node: Node) -> dict[str, Any]:
    """The configuration of a `tokenize` step, with the digests of the text that it names."""
    if node.config["source"] is None:
        return node.config
    text = read(node.config["source"])
    return {
        **node.config,
        "sha256": {"train": text.train_sha256, "validation": text.validation_sha256},
    }


def _private(nodes: Mapping[str, Node]) -> set[str]:
    """What the experiment's own code makes, and what is made of that: nobody else shares it. Each
    node comes after its inputs."""
    found: set[str] = set()
    for name, node in nodes.items():
        if node.own or any(not found.isdisjoint(these) for these in node.inputs.values()):
            found.add(name)
    return found


def _shared_as(node: Node, experiment: str) -> str:
    """Where outputs lie that are shared within the experiment in the folder of this name only."""
    return f"{experiment}.{node.do.replace(':', '.')}"


def _decisive(node: Node, config: dict[str, Any]) -> dict[str, Any]:
    """The configuration without what does not decide the output: how often training saves, how it
    is computed but for `dtype`, which is more than the order of sums, and what a file is called
    whose text is told by its digests."""
    if node.do == "tokenize" and not is_known(config["source"]):
        return {**config, "source": OWN_TEXT}
    if node.do != "train":
        return config
    kept = {key: value for key, value in config["train"].items() if key not in SAVING}
    rest = {key: value for key, value in config.items() if key != "compute"}
    return {**rest, "train": kept, "dtype": config["compute"]["dtype"]}


def keep(store: Store, plan: Plan, folder: Path) -> None:
    """Put the experiment's own modules and texts where its jobs find them. Raises BadExperiment
    where they are no longer those that were planned."""
    files = _own_code(plan.steps, folder, plan.compiled)
    same = _digest(files) == plan.code_sha256
    texts = {}
    for step in plan.steps.values():
        if place := text_folder(step):
            text = _text(folder, step.config["source"])
            found = {"train": text.train_sha256, "validation": text.validation_sha256}
            same &= found == step.config["sha256"]
            texts[place] = text
    if not same:
        words = "its own files were edited while it was planned; plan again"
        raise BadExperiment([Problem(str(folder), 1, "", words)])
    for name, content in files.items():
        store.create(f"{code_folder(plan)}/{name}", content)
    for place, text in texts.items():
        store.create(f"{place}/train", text.train)
        store.create(f"{place}/validation", text.validation)


def _digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 over names and contents."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return hashlib.sha256(to_json(digests)).hexdigest()


def code_folder(plan: Plan) -> str:
    """Where in the store the plan's own modules lie."""
    return f"code/{plan.code_sha256}"


def _own_code(steps: Mapping[str, PlannedStep], folder: Path, compiled: bool) -> dict[str, bytes]:
    """The experiment's files that a job needs: what steps reach and, where Python declares them,
    that and its lock, which the job compares."""
    reached = [step.code for step in steps.values() if step.own]
    if compiled:
        reached.append(code_digest.reach(Path(declaration.PYTHON_NAME).stem, folder))
    names = {name for code in reached for name in code if not name.startswith("lab:")}
    names |= {declaration.LOCK_NAME} if compiled else set()
    return {name: (folder / name).read_bytes() for name in sorted(names)}


def text_folder(step: PlannedStep) -> str:
    """Where in the store the text lies that a `tokenize` step names by a file; empty for others.

    The standard library and what ships with the lab are on every machine, and are not kept."""
    if step.do != "tokenize" or is_known(step.config["source"]):
        return ""
    sha256 = step.config["sha256"]
    return f"texts/{sha256['train']}-{sha256['validation']}"


def _unlike(experiment: Experiment, plan: Plan) -> Iterator[Problem]:
    """Steps whose runs would be counted together and are not alike: of one arm that differ in more
    than the seed, and with predictions, evaluations on different tokens."""
    first: dict[str, str] = {}
    seen: dict[tuple[str, int], str] = {}
    for name, step in plan.steps.items():
        if not (run := plan.arm_of(name)):
            continue
        other = plan.steps[first.setdefault(run[0], name)]
        same = {**step.config, "seed": 0} == {**other.config, "seed": 0}
        twice = seen.setdefault(run, name) != name
        if twice or step.inputs != other.inputs or not same:
            how = "has the same seed" if twice else "differs in more than the seed"
            yield experiment.problem(
                ("steps", name.partition("/")[0]),
                f"what `{name}` trains would be called `{run[0]}`, as what `{first[run[0]]}` "
                f"trains is, and {how}; name the point or the step otherwise",
            )
    scored = {
        (to_json(step.inputs["tokens"]), step.config["tokens"]): name
        for name, step in plan.steps.items()
        if step.do == "evaluate" and not step.own
    }
    if plan.predictions and len(scored) > 1:
        one, another = sorted(scored.values())[:2]
        yield experiment.problem(
            ("steps", another.partition("/")[0]),
            f"`{one}` and `{another}` score on different tokens, and predictions are judged on one "
            "text; score all models by one step",
        )


def _of_no_arm(
    experiment: Experiment, arms: Collection[str], sealed: Preregistration | None
) -> list[Problem]:
    """Predictions that speak of what is not trained."""
    return [
        experiment.problem(
            ("arms",) if experiment.data else ("steps",),
            f"the preregistration predicts something of the arm `{name}`, which is not here"
            + near(name, arms),
        )
        for prediction in (sealed.predictions if sealed else ())
        for name in prediction.arms
        if name not in arms
    ]


def _of_no_law(
    experiment: Experiment, arms: Mapping[str, PlannedArm], sealed: Preregistration | None
) -> Iterator[Problem]:
    """Predictions of a law whose arms are not of several sizes, or not smaller than the one that
    they forecast: no run could decide them."""
    for prediction in sealed.predictions if sealed else ():
        fitted, axis = prediction.exponent or prediction.smaller, prediction.axis
        if not (fitted and axis):
            continue
        where: yaml_lines.Path = ("arms",) if experiment.data else ("steps",)
        what = prediction_forms.AXES["model_flops" if axis == "hardware_flops" else axis]
        if unknown := [name for name in prediction.arms if arms[name].model_flops is None]:
            words = (
                f"its model is the experiment's own, so that its {what} are not known beforehand"
            )
            said = f"the preregistration predicts a law over the arm `{unknown[0]}`, but {words}"
            yield experiment.problem(where, said)
            continue
        spent = {name: prediction_forms.spent(arms[name], axis) for name in prediction.arms}
        sizes = len({spent[name] for name in fitted})
        needed = prediction_forms.FEWEST["exponent" if prediction.exponent else "smaller"]
        if sizes < needed:
            yield experiment.problem(
                where,
                f"the preregistration predicts a law over arms of {needed} different {what} at "
                f"least, and `{fitted[0]}` and the others have {sizes}",
            )
        largest = prediction.arm
        for name in fitted if largest is not None else ():
            if spent[name] >= spent[str(largest)]:
                yield experiment.problem(
                    where,
                    f"the preregistration predicts `{largest}` from smaller arms, and `{name}` is "
                    f"not smaller: {spent[name]:,} {what}, where `{largest}` has "
                    f"{spent[str(largest)]:,}",
                )


def _arms(experiment: Experiment) -> dict[str, PlannedArm]:
    """What the steps train, by arm. Those that differ in the seed only share one."""
    arms = experiment.arms
    return {
        name: cost.arm_of(of.model, of.train, of.own.model_dump())
        for name, of in sorted(arms.items(), key=lambda item: natural(item[0]))
    }
