"""Graph → Plan: what would run, with all defaults filled in, and its cost.

Pure, except that it reads the text. Runs nothing of the experiment.
"""

import gc
import hashlib
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

from engine.config.schema import DataConfig
from engine.data.lab_texts import BadText, Text, read_file
from runner.lib.canonical_json import to_json
from runner.lib.format import natural
from runner.lib.paths import LAB
from runner.lib.problems import BadExperiment, Problem
from runner.planning import (
    code_digest,
    cost,
    given_tokenizers,
    planned_steps,
    prediction_checks,
    subset,
    task_sources,
)
from runner.planning.planned_steps import is_known
from runner.schema import corpora, lab_config, replies
from runner.schema.corpora import TOKENIZER_FILE
from runner.schema.record import (
    Cost,
    Plan,
    PlannedData,
    PlannedStep,
    Preregistration,
)
from runner.spec import declaration, ladder, studies
from runner.spec.benchmarks import DATA, FILE, name_of
from runner.spec.corpus_steps import found_of
from runner.spec.graph import Graph
from runner.spec.step_types import SOURCED, TASKED
from runner.store.store import Store

NO_FINGERPRINT = "0" * 64  # while the plan is incomplete
NO_COST = Cost(
    runs=0,
    tokens=0,
    model_flops=0,
    hardware_flops=(0, 0),
    seconds=(0, 0),
    price=None,
    device="",
)


def plan_folder(path: Path, store: Store | None = None, lab: Path = LAB) -> Plan:
    """The plan of the experiment in the folder (or file) `path`, without a preregistration, in the
    lab whose checkout it is in.

    With a store, it copies what the jobs need from the folder there. `lab` is the folder of the
    lab's packages. Raises BadExperiment.
    """
    folder = path if path.is_dir() else path.parent
    gc.disable()  # ten thousand steps are a million live objects; do not scan them
    try:
        graph = declaration.drafted(declaration.find(path), lab_config.find(path))
        plan = make_plan(graph, folder, lab)
    finally:
        gc.enable()
    if store:
        keep(store, plan, folder)
    return plan


def make_plan(
    graph: Graph,
    folder: Path,
    lab: Path = LAB,
    *,
    called: str | None = None,
    sealed: Preregistration | None = None,
    rung: int = 1,
) -> Plan:
    """The plan of a graph whose files are in `folder`, with its sealed preregistration if it has
    one; for a ladder, of this rung. Own code is read and not run. `called` is the folder's path in
    the repository, if it differs. Raises BadExperiment with all problems, those of the graph
    included."""
    experiment, complaints = graph.experiment, graph.complaints
    texts = cache(partial(planned_steps.text, folder))
    steps = planned_steps.planned(graph, folder, lab, called or str(folder), texts)
    arms = {
        name: cost.arm_of(of.model, of.train, of.own.model_dump())
        for name, of in sorted(graph.arms.items(), key=lambda item: natural(item[0]))
    }
    for name, place, words in given_tokenizers.problems(graph, folder, texts):
        complaints.say(graph.place(name, place), words)
    data = _data(graph, texts, steps)
    predictions = sealed.predictions if sealed else ()
    complaints.say_all(prediction_checks.undecided(graph, arms, predictions))
    if experiment.ladder:
        complaints.say_all(ladder.unlike(experiment.ladder, arms))
    if experiment.ablate:
        complaints.say_all(studies.unlike(experiment.ablate, graph.arms, arms))
    complaints.end()
    compiled = declaration.is_lock(graph.document)
    seeds = {step.config["seed"] for step in steps.values() if step.do == "train"}
    kinds = {"cpu", experiment.devices.kind, *(step.resources.kind for step in steps.values())}
    plan = Plan(
        experiment=called or folder.as_posix(),
        title=experiment.title,
        preregistration=experiment.preregistration,
        seal=sealed.seal if sealed else None,
        predictions=predictions,
        data=data,
        eval=experiment.eval,
        resources=experiment.devices,
        seeds=experiment.seeds or tuple(sorted(seeds)),
        arms=arms,
        steps=steps,
        code_sha256=_digest(_own_code(steps, folder, compiled)),
        compiled=compiled,
        ceiling_hours=experiment.resources.ceiling_hours,
        speedrun=experiment.speedrun,
        devices={kind: graph.lab.devices[kind] for kind in sorted(kinds)},
        track=graph.lab.tracks[experiment.speedrun.track] if experiment.speedrun else None,
        ablation=experiment.ablate.planned() if experiment.ablate else None,
        isoflop=experiment.isoflop.planned(experiment.layer) if experiment.isoflop else None,
        cost=NO_COST,
        fingerprint=NO_FINGERPRINT,
    )
    if experiment.ladder:
        planned = experiment.ladder.planned(rung, arms if sealed else None)
        plan = subset.only(plan, {planned.baseline, planned.variant}, set(plan.seeds))
        plan = plan.model_copy(update={"rung": planned})
    return subset.counted(plan)


def _of_corpus(data: DataConfig, steps: Mapping[str, PlannedStep]) -> PlannedData | None:
    """The corpus that arms train on; None if it cannot be used, which is reported."""
    found = steps["corpus"].config["found"] if "corpus" in steps else {}
    if not found or data.corpus is None:
        return None
    train, validation = (corpora.digest(found, split) for split in ("train", "validation"))
    return PlannedData(
        source=data.corpus,
        tokenizer=data.tokenizer,
        train_tokens=None,
        train_sha256=train,
        validation_tokens=None,
        validation_sha256=validation,
    )


def _data(
    graph: Graph, texts: Callable[[str], Text], steps: Mapping[str, PlannedStep]
) -> PlannedData | None:
    """The text that arms train on; adds a problem if it is too short for their windows."""
    data = graph.experiment.data
    if data is None or graph.complaints.lost(("data", "source")):
        return None
    if data.source is None:
        return _of_corpus(data, steps)
    text = texts(data.source)
    targets = 1 if graph.complaints.lost(("eval", "tokens")) else graph.experiment.eval.tokens
    trained = [node.config.get("model", {}) for node in graph.nodes.values() if node.do == "train"]
    for seq_len in dict.fromkeys(model["seq_len"] for model in trained if "seq_len" in model):
        try:
            text.check_lengths(seq_len, targets)
        except BadText as error:
            graph.complaints.say(("data", "source"), str(error))
            break
    return PlannedData(
        source=data.source,
        tokenizer=data.tokenizer,
        train_tokens=len(text.train),
        train_sha256=text.train_sha256,
        validation_tokens=len(text.validation),
        validation_sha256=text.validation_sha256,
    )


# ── What its jobs need ───────────────────────────────────────────────────────────────────────


def keep(store: Store, plan: Plan, folder: Path) -> None:
    """Copy the own modules and texts to where the jobs find them. Raises BadExperiment if they have
    changed since they were planned, or if the store lacks a corpus or an imported model."""
    if missing := unfetched(store, plan, str(folder)):
        raise BadExperiment(missing)
    for name, content in contents(plan, folder).items():
        store.create(name, content)


def contents(plan: Plan, folder: Path) -> dict[str, bytes]:
    """{name in the store: content} of the own modules and texts. Raises BadExperiment if they have
    changed since they were planned."""
    files = _own_code(plan.steps, folder, plan.compiled)
    same = _digest(files) == plan.code_sha256
    found = {f"{code_folder(plan)}/{name}": content for name, content in files.items()}
    for step in plan.steps.values():
        if not (place := kept_folder(step)) or _is_fetched(step):
            continue
        if step.do == "label":
            continue  # `regatta label` puts them there, once the text is made
        texts = _texts(step, folder)
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in texts.items()}
        same &= digests == _text_digests(step)
        found |= {f"{place}/{name}": content for name, content in texts.items()}
    if not same:
        words = "its own files were edited while it was planned; plan again"
        raise BadExperiment([Problem(str(folder), None, "", words)])
    return found


def unfetched(store: Store, plan: Plan, called: str) -> list[Problem]:
    """What an operator has still to fetch into the store: corpora and imported models. The folder
    of the experiment is `called` so."""
    found = []
    for name, step in plan.steps.items():
        if _is_fetched(step) and (place := kept_folder(step)):
            there = store.list(place)
            if not there or (found_of(step) and corpora.FILES_OF not in there):
                found.append(_not_fetched(called, name, step))
    return found


def own_code(plan: Plan, folder: Path) -> dict[str, bytes]:
    """The experiment's modules that its jobs run, by path."""
    return _own_code(plan.steps, folder, plan.compiled)


def _digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 over names and contents."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return hashlib.sha256(to_json(digests)).hexdigest()


def code_folder(plan: Plan) -> str:
    """The folder of the plan's own modules in the store."""
    return plan.code_folder


def _own_code(steps: Mapping[str, PlannedStep], folder: Path, compiled: bool) -> dict[str, bytes]:
    """The experiment's files that a job needs: the code that steps reach and, if Python declares
    them, that file and its lock, which the job compares."""
    reached = [step.code for step in steps.values() if step.own]
    if compiled:
        reached.append(code_digest.reach(Path(declaration.PYTHON_NAME).stem, folder))
    names = {name for code in reached for name in code if not name.startswith("lab:")}
    names |= {declaration.LOCK_NAME} if compiled else set()
    return {name: (folder / name).read_bytes() for name in sorted(names)}


def kept_folder(step: PlannedStep) -> str | None:
    """The folder in the store, named by digest, with the texts that a step names by files (those of
    `tokenize` and `conversations`, the tasks of `TASKED` steps), with the model of an `import`
    step, with the files of a corpus or tokenizer that was fetched, or with the replies for a
    `label` step that asks a model. None if there is none.

    The standard library and the lab's texts are on every machine and are not copied."""
    if step.do == "import":
        return model_folder(step.config["sha256"])
    if found := found_of(step):
        return corpora.folder(found["sha256"])
    if step.do == "label":
        return replies.folder(step.fingerprint) if step.config["ask"] else None
    if not (digests := _text_digests(step)):
        return None
    if step.do in SOURCED:
        return f"texts/{digests['train']}-{digests['validation']}"
    return f"texts/{hashlib.sha256(to_json(digests)).hexdigest()}"


def model_folder(sha256: str) -> str:
    """The folder in the store of the model whose files have this digest."""
    return f"models/{sha256}"


def _is_fetched(step: PlannedStep) -> bool:
    """Whether it reads what an operator has fetched into the store."""
    return step.do == "import" or found_of(step) is not None


def _not_fetched(called: str, name: str, step: PlannedStep) -> Problem:
    who = "whoever runs the lab fetches"
    if found_of(step):
        corpus, sha256 = step.config["corpus"], step.config["found"]["sha256"]
        words = f"the store has not the files of {corpus} with the digest {sha256[:16]}…; {who} "
        words += f"them with `regatta corpus fetch {corpus}`"
        return Problem(called, None, f"steps.{name}.config.corpus", words)
    model, sha256 = step.config["model"], step.config["sha256"]
    words = f"the store has no model with the digest {sha256[:16]}…; {who} it with "
    words += f"`regatta import {model}`, which prints the digest"
    return Problem(called, None, f"steps.{name}.config.sha256", words)


def _text_digests(step: PlannedStep) -> dict[str, str]:
    """{file in that folder: SHA-256}."""
    if step.do in SOURCED and not is_known(step.config["source"]):
        return dict(step.config["sha256"])
    if step.do == "tokenizer":
        return {TOKENIZER_FILE: step.config["sha256"]}
    files = step.config["files"] if step.do in TASKED else {}
    data = step.config.get("data_files", {})
    return {f"{name_of(task)}{FILE}": about["sha256"] for task, about in files.items()} | {
        f"{DATA}/{path}": sha256 for path, sha256 in data.items()
    }


def _texts(step: PlannedStep, folder: Path) -> dict[str, bytes]:
    """The content of each, from the experiment's folder. Raises BadText and BadTask."""
    if step.do in SOURCED:
        text = planned_steps.text(folder, step.config["source"])
        return {"train": text.train, "validation": text.validation}
    if step.do == "tokenizer":
        return {TOKENIZER_FILE: read_file(step.config["file"], folder)}
    found = {
        f"{name_of(task)}{FILE}": task_sources.content(task, folder, step.config["items"])
        for task in step.config["files"]
    }
    if name := step.config.get("data"):
        data = task_sources.data_files(name, folder)
        found |= {f"{DATA}/{path}": content for path, content in data.items()}
    return found
