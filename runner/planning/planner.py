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

from engine.data.tokenize import BadText, Text, read_text
from runner.lib import lab_code, yaml_lines
from runner.lib.canonical_json import to_json
from runner.lib.format import natural
from runner.lib.paths import LAB
from runner.lib.problems import BadExperiment, Problem, near
from runner.planning import code_digest, cost, lockfile
from runner.schema import prediction_forms, step_graph
from runner.schema.plan_fingerprint import fingerprint
from runner.schema.record import Cost, Plan, PlannedArm, PlannedData, PlannedStep, Preregistration
from runner.spec import declaration, ladder
from runner.spec.declaration import Experiment
from runner.spec.step_types import calls_of, parts_of
from runner.spec.steps import Node
from runner.store.store import Store

SAVING = {"checkpoint_every", "checkpoint_seconds", "keep_checkpoints", "keep_every"}
NO_FINGERPRINT = "0" * 64  # of what is not yet whole


def plan_folder(path: Path, store: Store | None = None, lab: Path = LAB) -> Plan:
    """The plan of the experiment in the folder (or file) `path`, without preregistration's seal.

    With a store, a text of the experiment's own is kept there for the job to read. `lab` holds the
    lab's packages. Raises BadExperiment.
    """
    with _nothing_to_collect():
        experiment = declaration.load(path)
        folder = path if path.is_dir() else path.parent
        plan = make_graph_plan(experiment, folder, lab) if experiment.nodes else None
    if plan:
        if store:
            keep_code(store, plan, folder)
        return plan
    text = the_text(experiment, folder)
    if store:
        keep_text(store, text)
    return make_plan(experiment, folder.as_posix(), text, sealed=None)


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


def make_graph_plan(
    experiment: Experiment,
    folder: Path,
    lab: Path = LAB,
    *,
    called: str = "",
    sealed: Preregistration | None = None,
) -> Plan:
    """Resolve an experiment with steps, whose own modules lie in `folder`, under its sealed
    preregistration, if it has one. Their code is read and not run. `called` is the folder in the
    repository, where that is another one. Raises BadExperiment."""
    compiled = Path(experiment.file).name == declaration.LOCK_NAME
    if compiled:
        lockfile.check_source(folder, called or str(folder))
    problems: list[Problem] = []
    steps: dict[str, PlannedStep] = {}
    first: dict[tuple[Any, ...], PlannedStep] = {}  # points of a sweep differ in little
    found = cache(lambda function, own: _code(function, own, folder, lab))
    uncallable = cache(partial(code_digest.uncallable, folder))
    source = partial(_with_source, cache(read_text))
    private, place = _private(experiment.nodes), folder.resolve().name
    for name, node in experiment.nodes.items():
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
            config = source(node) if node.do == "tokenize" else node.config
        except BadText as error:
            config = node.config
            problems.append(experiment.problem(experiment.place(name), str(error)))
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
            "config": config,
            "inputs": inputs,
            "fingerprint": step_graph.fingerprint(node.function, decisive, inputs, digest),
        }
        steps[name] = first[alike].model_copy(update=itself)
    if problems:
        raise BadExperiment(problems)
    files = _own_code(steps, folder, compiled)
    trained = _arms(experiment)
    draft = Plan(
        experiment=called or folder.as_posix(),
        title=experiment.title,
        preregistration=experiment.preregistration,
        seal=sealed.seal if sealed else None,
        predictions=sealed.predictions if sealed else (),
        data=None,
        eval=experiment.eval,
        resources=experiment.resources,
        seeds=(),
        arms={},
        steps=steps,
        code_sha256=_digest(files),
        compiled=compiled,
        ceiling_hours=experiment.ceiling_hours,
        speedrun=experiment.speedrun,
        cost=_cost(experiment, trained),
        fingerprint=NO_FINGERPRINT,
    )
    runs = draft.trained()
    of_arms = {arm: trained[name] for (arm, _), name in runs.items()}
    draft = draft.model_copy(
        update={
            "arms": {arm: of_arms[arm] for arm in sorted(of_arms, key=natural)},
            "seeds": tuple(sorted({seed for _, seed in runs})),
        }
    )
    own = {name.partition("/")[2] or name for name, step in draft.steps.items() if step.own}
    arms = [*draft.arms, *(label.partition(",seed=")[0] for label in own)]  # own code: not judged
    if problems := [*_unlike(experiment, draft), *_of_no_arm(experiment, arms, sealed)]:
        raise BadExperiment(problems)
    if problems := [*_of_no_law(experiment, draft.arms, sealed)]:
        raise BadExperiment(problems)
    return draft.model_copy(update={"fingerprint": fingerprint(draft)})


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


def _with_source(read: Callable[[str, Path | None], Text], node: Node) -> dict[str, Any]:
    """The configuration of a `tokenize` step, with the digests of the text that it names."""
    if node.config["source"] is None:
        return node.config
    text = read(node.config["source"], None)
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
    """The configuration without what does not decide the output: how often training saves, and how
    it is computed but for `dtype`, which is more than the order of sums."""
    if node.do != "train":
        return config
    kept = {key: value for key, value in config["train"].items() if key not in SAVING}
    rest = {key: value for key, value in config.items() if key != "compute"}
    return {**rest, "train": kept, "dtype": config["compute"]["dtype"]}


def keep_code(store: Store, plan: Plan, folder: Path) -> None:
    """Put the experiment's own modules where its jobs find them. Raises BadExperiment where they
    are no longer those that were planned."""
    files = _own_code(plan.steps, folder, plan.compiled)
    if _digest(files) != plan.code_sha256:
        words = "its own modules were edited while it was planned; plan again"
        raise BadExperiment([Problem(str(folder), 1, "", words)])
    for name, content in files.items():
        store.create(f"{code_folder(plan)}/{name}", content)


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


def the_text(experiment: Experiment, folder: Path | None) -> Text:
    """The text the experiment trains on. Raises BadExperiment where it cannot be read."""
    assert experiment.data
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
    experiment: Experiment,
    folder: str,
    text: Text,
    sealed: Preregistration | None,
    rung: int = 1,
) -> Plan:
    """Resolve `experiment` under its sealed preregistration, if it has one; of a ladder this rung.

    Raises BadExperiment where a prediction speaks of an arm that the experiment lacks, or the
    text is too short for the windows.
    """
    assert experiment.data
    problems = _of_no_arm(experiment, experiment.arms, sealed)
    for model, _ in experiment.arms.values():
        try:
            text.check_lengths(model.seq_len, experiment.eval.tokens)
        except BadText as error:
            problems.append(experiment.problem(("data", "source"), str(error)))
            break
    arms = {name: cost.arm_of(*arm) for name, arm in experiment.arms.items()}
    if problems := problems or [*_of_no_law(experiment, arms, sealed)]:
        raise BadExperiment(problems)
    planned = None
    if experiment.ladder:
        unlike = ladder.unlike(experiment.ladder, arms)
        if problems := [experiment.problem(path, words) for path, words in unlike]:
            raise BadExperiment(problems)
        planned = experiment.ladder.planned(rung, arms if sealed else None)
        arms = {name: arms[name] for name in (planned.baseline, planned.variant)}
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
        ceiling_hours=experiment.ceiling_hours,
        speedrun=experiment.speedrun,
        rung=planned,
        cost=_cost(experiment, arms),
        fingerprint=NO_FINGERPRINT,
    )
    return draft.model_copy(update={"fingerprint": fingerprint(draft)})


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
            ("steps",) if experiment.nodes else ("arms",),
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
        where: yaml_lines.Path = ("steps",) if experiment.nodes else ("arms",)
        what = prediction_forms.AXES["model_flops" if axis == "hardware_flops" else axis]
        if experiment.nodes and axis == "hardware_flops":
            words = "the preregistration predicts a law in hardware FLOPs, and steps tell no speed"
            yield experiment.problem(where, f"{words}; declare `arms`, or choose another axis")
            continue
        if unknown := [name for name in prediction.arms if name not in arms]:
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
    """What each step trains. Those that differ in the seed only share one."""
    alike: dict[tuple[int, int], PlannedArm] = {}
    found = {}
    for name, (model, train) in sorted(experiment.arms.items()):
        both = id(model), id(train)
        if both not in alike:
            alike[both] = cost.arm_of(model, train)
        found[name] = alike[both]
    return found


def _cost(experiment: Experiment, arms: dict[str, PlannedArm]) -> Cost:
    """Of steps, what those cost that train, each on the devices that it names; what the others will
    take is not known beforehand."""
    nodes, devices = experiment.nodes, experiment.resources
    seeds = len(experiment.seeds) or 1  # of steps, each point of a sweep is a run
    each = [(nodes[x].resources if x in nodes else devices, arm) for x, arm in arms.items()]
    return cost.cost(
        each * seeds,
        [
            cost.tokens(node.config)
            for node in nodes.values()
            if node.do == "train" and "model" in node.config["own"]
        ],
        devices,
    )
