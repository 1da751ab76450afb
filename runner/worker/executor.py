"""Runs a graph of steps as Ray tasks, inside an attempt's job: each step after its inputs, with the
resources that it names. Existing outputs are reused, and if two executions want the same step, one
makes it while the other waits (`runner.store.artifacts`). A task only supervises: each step
computes in processes of its own (`runner.worker.shard_jobs`), none of which is left when the step
is over."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from engine.config.stages import is_staged, without_stages
from runner.history import progress_left
from runner.history.step_runs import READ, read_by
from runner.isolation.bubblewrap import USUAL, Limits
from runner.lib import preemption
from runner.planning import planned_steps, planner
from runner.planning.own_code_folder import laid
from runner.schema import step_graph
from runner.schema.devices import Kind, takes_gang
from runner.schema.job_reports import Isolation
from runner.schema.record import MOST_ATTEMPTS, Plan, PlannedStep
from runner.spec.step_types import INIT, KEPT, SETTINGS, place_of
from runner.store import artifacts, checkpoint_sync
from runner.store.artifacts import MakerLost, MakingFailed
from runner.store.backends import remove_tree
from runner.store.leases import STALE_AFTER
from runner.store.scratch_paths import CHECKPOINTS, CURVE, SCRATCH, STOPPED
from runner.store.scratch_paths import of as scratch_of
from runner.store.store import Remote, Store, StoreError
from runner.worker import ray_tasks, shard_jobs
from runner.worker.step_process import Job, Training
from runner.worker.task_groups import cache, spreads, together, training, trainings_after

AT_ONCE = 4  # steps of a task: one computes, the others read from or write to disk
NO_INPUT = "what it needs could not be made"
NOT_HERE = "its output is not in the store; is the store's folder there on every node?"


@dataclass(frozen=True)
class Terms:
    """How own code runs; by default it does not."""

    isolation: Isolation = ""
    limits: Limits = USUAL


OWN_MACHINE = Terms("own machine")


@dataclass(frozen=True)
class Work:
    """What all tasks of an execution are given."""

    root: str  # of the store
    code: str  # the store's folder with the own modules
    execution: str
    terms: Terms
    kinds: Mapping[str, Kind]  # of device, that the plan was made by
    next: Training | None = None  # the likely next step of this worker


def run(store: Store, plan: Plan, code: str, execution: str, terms: Terms = Terms()) -> None:
    """Make every step of the plan, with the own modules in the store's folder `code`. Raises
    MakingFailed once every step that does not depend on a failed one is made, and MakerLost if
    another attempt may make the rest; the message names each step with its reason."""
    import ray
    from ray import exceptions

    ray.init(log_to_driver=False)  # the job's environment names its cluster
    work, task = Work(str(store.root), code, execution, terms, plan.kinds), ray.remote(_make)
    after = trainings_after(store, plan, terms.isolation)
    tasks: dict[tuple[str, ...], Any] = {}
    of: dict[str, tuple[str, ...]] = {}  # the task of each step
    for names in together(plan.steps, plan.kinds, ray.cluster_resources().get("CPU", 0)):
        step, inputs = plan.steps[names[0]], _needs(plan, names)
        options = ray_tasks.options(step, plan.kinds)
        if _over_nodes(store, step):  # its parts are tasks, for which it waits
            options["num_gpus"] = 0
        needed = {one: plan.steps[one] for one in (*names, *inputs)}
        makers = dict.fromkeys(of[other] for other in inputs)
        tasks[names] = task.options(name=names[0], **options).remote(
            replace(work, next=after.get(names[-1])), names, needed, *map(tasks.get, makers)
        )
        of |= dict.fromkeys(names, names)
    why: dict[str, str | None] = {}
    lost: set[str] = set()
    for names, outcome in tasks.items():
        try:
            why |= ray.get(outcome)
        except exceptions.RayError as error:
            in_vain = any(why[other] for other in _needs(plan, names))
            why |= dict.fromkeys(names, NO_INPUT if in_vain else ray_tasks.one_line(error))
            if not in_vain and isinstance(error, ray_tasks.gone()):
                lost.update(names)
        made_here = [name for name in names if not why[name]]
        made = step_graph.without(plan.steps[made_here[0]], _failed(why)) if made_here else None
        if made and artifacts.find(store, made.store, made.fingerprint, check=False) is None:
            why |= dict.fromkeys(made_here, NOT_HERE)
    failed = _failed(why)
    told = {name: f"{name}: {why[name]}" for name in why if why[name] not in (None, NO_INPUT)}
    beside = {other for name in failed for other in plan.steps[name].needs}
    # A failed training does not matter if every step that needs it was made without it.
    used = {other for step in plan.steps.values() for other in step.needs}
    missed = {x for x in failed if plan.steps[x].do != "train" or x in beside or x not in used}
    if missed and (words := [told[name] for name in told if name not in lost]):
        raise MakingFailed("; ".join(words))
    if lost:
        raise MakerLost("; ".join(told.values()))


def _failed(why: Mapping[str, str | None]) -> set[str]:
    return {name for name, words in why.items() if words}


def _needs(plan: Plan, names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(other for one in names for other in plan.steps[one].needs))


def _over_nodes(store: Store, step: PlannedStep) -> bool:
    """Whether its shards are tasks of their own. Needs folders that all nodes see, so not for a
    store in a bucket."""
    return spreads(step) and isinstance(store.at("steps"), Path)


def check_code(name: str, step: PlannedStep, code: Path) -> None:
    """Raises MakingFailed if the code on this machine, the lab's or the experiment's in `code`, is
    not the planned code."""
    staged = is_staged(step.config)
    here = planned_steps.code_of(step.function, step.own, code, staged=staged)
    if found := step_graph.code_changes(step, here):
        raise MakingFailed(
            f"{name}: the code here is not the planned one ({found[0]}); plan again with it"
        )


def _make(
    work: Work,
    names: tuple[str, ...],
    steps: dict[str, PlannedStep],
    *inputs: dict[str, str | None],
) -> dict[str, str | None]:
    """For each of the steps `names` why it could not be made, or None; `inputs` is the same for the
    steps that other tasks have made. Models are scored without those that failed."""
    failed = {name for made in inputs for name in _failed(made)}
    failed &= {other for name in names for other in steps[name].needs}
    left = {name: step_graph.without(steps[name], failed) for name in names}
    if any(step is None or failed & {*step.needs} for step in left.values()):
        return dict.fromkeys(names, NO_INPUT)
    steps = steps | {name: step for name, step in left.items() if step}
    store = Store(work.root, make=False)
    shard_jobs.ready()  # in this thread, which outlives the others
    made = partial(_made, work, store, steps)
    if spreads(steps[names[0]]):
        # Ray lends a waiting task's cores to others only while its first thread waits.
        return {name: made(name) for name in names}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(names, pool.map(made, names), strict=True))


def _made(work: Work, store: Store, steps: dict[str, PlannedStep], name: str) -> str | None:
    try:
        own = store.fetch(work.code) if steps[name].own else store.local(work.code)
        kinds, of = work.kinds, work.execution
        mapper: shard_jobs.Mapper = map
        sleep: Callable[[float], object] = time.sleep
        if _over_nodes(store, steps[name]):
            mapper, sleep = ray_tasks.mapper(name, steps[name], kinds), ray_tasks.sleep
        make(store, name, steps, kinds, own, of, mapper, sleep, terms=work.terms, then=work.next)
    except Exception as error:  # otherwise all steps of this task would count as failed
        cause = error.__cause__ if isinstance(error, MakingFailed) else None
        return artifacts.sentence(cause or error)[: ray_tasks.MOST_WORDS]
    return None


def _child(name: str, step: PlannedStep, code: str, job: Job) -> None:
    """Do a job, on any node, with the planned code."""
    check_code(name, step, Path(code))
    shard_jobs.run(job)
    check_code(name, step, Path(code))  # the lab's code may have been edited meanwhile


@contextmanager
def _nothing_left(scratch: Path, *, trains: bool) -> Iterator[None]:
    """Remove what a failed step left, because other code may have written it; nobody continues from
    it. Its log stays, and the curve of a training."""
    try:
        yield
    except MakingFailed as error:
        if isinstance(error, MakerLost):
            raise
        if trains:
            with suppress(OSError):
                (scratch / CURVE).rename(scratch / STOPPED)
        for left in scratch.iterdir():
            if left.name != STOPPED and left.is_dir() and not left.is_symlink():
                with suppress(OSError):
                    remove_tree(left)
        raise


def make(
    store: Store,
    name: str,
    steps: Mapping[str, PlannedStep],
    kinds: Mapping[str, Kind],
    code: Path,
    execution: str,
    mapper: shard_jobs.Mapper = map,
    sleep: Callable[[float], object] = time.sleep,
    stale_after: float = STALE_AFTER,
    terms: Terms = Terms(),
    then: Training | None = None,
) -> artifacts.Made:
    """Make the output of one step, whose inputs exist. A step with many shards uses `mapper`, and
    `sleep` while another execution makes it. If a maker of this execution is lost, another one
    follows, until MOST_ATTEMPTS in a row were lost without progress. `then` is the likely next
    training. Raises MakingFailed."""
    step, kind = steps[name], kinds[steps[name].resources.kind]
    # The supervisor of a step with many shards holds its unused cores, but no GPU.
    one = mapper if kind.ray_gpus else map
    receipt = {READ: read_by(store, step, steps)} if step.inputs else {}
    folder = planner.kept_folder(step)
    kept: dict[str, str | dict[str, str]] = {}
    waits = list[float]()  # seconds until a gang's hosts were free
    if folder and (step.do != "label" or store.list(folder)):  # it says what is missing
        kept = {KEPT: str(store.fetch(folder))}

    def build(out: Path) -> None:
        waits.clear()
        if step.resources.spot:
            preemption.wait_for_the_end(sleep)
        scratch = scratch_of(out)
        scratch.mkdir()
        if step.own:
            check_code(name, step, code)
        with (
            laid(step.code, code, scratch) if step.own else nullcontext() as own,
            _going_on(store, step, scratch),
            _nothing_left(scratch, trains=step.do == "train"),
        ):
            job = Job(
                function=place_of(step.function),
                config=step.config,
                own=() if step.function in step.own else step.own,
                models=_models(step, steps),
                inputs={key: given(store, key, step, steps) for key in step.inputs} | kept,
                out=str(out),
                scratch=str(scratch),
                code=str(own) if own else "",
                devices=kind,
                count=step.resources.count,
                slices=step.resources.slices,
                min_slices=step.resources.min_slices or step.resources.slices,
                isolation=terms.isolation if step.private else "",
                limits=terms.limits,
                cache=cache(store, step),
                spot=step.resources.spot,
                next=then or training(store, step, kind, terms.isolation),
            )
            child, of_gang = partial(_child, name, step, str(code)), dict[str, str]()
            if takes_gang(kind, step.resources.count):
                from runner.worker import multi_host_step  # needs Ray

                of_gang = multi_host_step.train(store, name, steps, job, waits.append)
                _bring(store, step)
                config = without_stages(step.config)
                job = replace(job, devices=kinds["cpu"], count=1, config=config)
            receipt.update(shard_jobs.make(step.do, job, child, one, mapper) | of_gang)

    parts = step.model_dump(mode="json", include={"do", "config", "inputs", "code"})
    return artifacts.make(
        store,
        step.store,
        step.fingerprint,
        build,
        parts,
        by=execution,
        receipt=lambda: receipt,
        waited=lambda: sum(waits),
        most_lost=MOST_ATTEMPTS,
        preemptible=step.resources.spot,
        left=lambda folders: progress_left.of_makers(store, step, folders),
        stale_after=stale_after,
        sleep=sleep,
    )


def _bring(store: Store, step: PlannedStep) -> Path | Remote:
    """Copy from a bucket what makers have saved. Returns the folder around their folders."""
    where = store.at(f"steps/{step.store}/{step.fingerprint[:16]}")
    if isinstance(where, Remote):
        names = [name for name in store.list(where.key) if name.endswith(SCRATCH)]
        places = [where / name / CHECKPOINTS for name in names]
        checkpoint_sync.brought(places, CURVE, step.snapshots)
    return where


@contextmanager
def _going_on(store: Store, step: PlannedStep, scratch: Path) -> Iterator[None]:
    """Provide what earlier makers saved beside `scratch`, and copy what is saved there during the
    `with` body to the store. Does nothing for a store on disk."""
    mine = _bring(store, step) / scratch.name / CHECKPOINTS
    try:
        with checkpoint_sync.copied(mine, beside=scratch / CURVE):
            yield
    except MakingFailed as error:
        if isinstance(mine, Remote) and not isinstance(error, MakerLost):
            with suppress(StoreError):
                checkpoint_sync.forget(mine)
        raise


def _models(
    step: PlannedStep, steps: Mapping[str, PlannedStep]
) -> dict[str, tuple[dict[str, Any], str]]:
    """The models that a step scores, as planned; their files are claims of a job."""
    inputs = step.inputs["models"] if step.do in step_graph.ASKS_MODELS else ()
    trained = {name: steps[name].config for name in inputs if steps[name].do == "train"}
    return {
        name.partition("/")[2]: (config["model"], config["own"].get("model", ""))
        for name, config in trained.items()
    }


def given(
    store: Store, key: str, step: PlannedStep, steps: Mapping[str, PlannedStep]
) -> str | dict[str, str]:
    """The folders of one input: a single one, or one per point of a sweep, by label."""
    folders = {}
    for name, fingerprint in step.inputs[key].items():
        found = artifacts.find(store, steps[name].store, fingerprint)
        if found is None:
            raise MakingFailed(f"its input {name} is not there")
        folders[name.partition("/")[2]] = str(found.folder)
    alone = set(folders) == {""} or (step.do == "train" and key in (INIT, SETTINGS))
    return next(iter(folders.values())) if alone else folders
