"""A graph of steps as Ray tasks, from inside an attempt's job: each step after its inputs, with the
resources that it names. What exists is not made again, and of two executions that want the same
step one makes it while the other waits (`runner.store.artifacts`). A task only watches: what a step
computes runs in processes of its own (`runner.worker.shard_jobs`), of which nothing is left when
the step is over.

Points of a sweep are given to a task a few at a time, where they are many: whoever needs one needs
them all, and while one is computed the task brings the others to disk.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from runner.history import progress_left
from runner.history.step_runs import READ, read_by
from runner.isolation.bubblewrap import USUAL, Limits
from runner.planning import planned_steps, planner
from runner.planning.own_code_folder import laid
from runner.schema import step_graph
from runner.schema.devices import KINDS, takes_gang
from runner.schema.job_reports import Isolation
from runner.schema.record import MOST_ATTEMPTS, Plan, PlannedStep
from runner.spec.step_types import BUILT_IN, KEPT, place_of
from runner.store import artifacts, checkpoint_sync
from runner.store.backends import remove_tree
from runner.store.leases import STALE_AFTER
from runner.store.scratch_paths import CURVE, SCRATCH, STOPPED
from runner.store.scratch_paths import of as scratch_of
from runner.store.store import Remote, Store, StoreError
from runner.worker import shard_jobs
from runner.worker.step_process import Job

AT_ONCE = 4  # steps of a task: one is computed, the others are on their way from or to the disk
MOST_TOGETHER = 16  # steps of a task
SHARES = 16  # tasks of a sweep for each place, so that no place ends much later than the others
RETRIES = MOST_ATTEMPTS  # of a task whose worker or node was lost; the last one says so
MOST_WORDS = 400  # of why a step failed
MOST_WAITING = 1000  # tasks of one step that are in Ray's hands at a time
NO_INPUT = "what it needs could not be made"
NOT_HERE = "its output is not in the store; is the store's folder there on every node?"


class StepsFailed(Exception):
    """Some steps could not be made; the message names each with its reason."""


class StepsLost(Exception):
    """Ray lost the workers or nodes of some steps, again and again; the message names each."""


@dataclass(frozen=True)
class Terms:
    """On which terms code of the experiment's own runs: unless somebody says which, not at all."""

    isolation: Isolation = ""
    limits: Limits = USUAL


OWN_MACHINE = Terms("own machine")


def run(store: Store, plan: Plan, code: str, execution: str, terms: Terms = Terms()) -> None:
    """Make every step of the plan, with the experiment's own modules in the store's folder `code`.
    Raises StepsFailed once all that does not need what failed has been made, and StepsLost where
    another attempt may make the rest."""
    import ray
    from ray import exceptions

    ray.init(log_to_driver=False)  # the job's environment names its cluster
    task = ray.remote(_make)
    tasks: dict[tuple[str, ...], Any] = {}
    of: dict[str, tuple[str, ...]] = {}  # the task that makes a step
    for names in together(plan.steps, ray.cluster_resources().get("CPU", 0)):
        step = plan.steps[names[0]]
        options = _options(step)
        if _over_nodes(store, step):  # what computes is tasks of its own, and waits for those
            options["num_gpus"] = 0
        inputs = _needs(plan, names)
        needed = {one: plan.steps[one] for one in (*names, *inputs)}
        makers = dict.fromkeys(of[other] for other in inputs)
        tasks[names] = task.options(name=names[0], **options).remote(
            *(str(store.root), names, needed, code, execution, terms, makers),
            *map(tasks.get, makers),
        )
        of |= dict.fromkeys(names, names)
    why: dict[str, str] = {}
    lost: list[str] = []
    for names, outcome in tasks.items():
        try:
            why |= zip(names, ray.get(outcome), strict=True)
        except exceptions.RayError as error:
            words = " ".join(str(error).split())[:MOST_WORDS]
            if any(why[other] for other in _needs(plan, names)):
                words = NO_INPUT
            elif isinstance(error, _gone()):
                lost += names
            why |= dict.fromkeys(names, words)
        made_here = [name for name in names if not why[name]]
        made = step_graph.without(plan.steps[made_here[0]], _failed(why)) if made_here else None
        if made and not _is_there(store, made):
            why |= dict.fromkeys(made_here, NOT_HERE)
    told = {name: f"{name}: {words}" for name, words in why.items() if words not in ("", NO_INPUT)}
    beside = {other for name in _failed(why) for other in plan.steps[name].needs}
    # A training that failed is done without where all that needs it was made of the other ones.
    used = {other for step in plan.steps.values() for other in step.needs}
    missed = {
        x for x in _failed(why) if plan.steps[x].do != "train" or x in beside or x not in used
    }
    if missed and (failed := [words for name, words in told.items() if name not in lost]):
        raise StepsFailed("; ".join(failed))
    if lost:
        raise StepsLost("; ".join(told.values()))


def _failed(why: Mapping[str, str]) -> set[str]:
    return {name for name, words in why.items() if words}


def _is_there(store: Store, step: PlannedStep) -> bool:
    return artifacts.find(store, step.store, step.fingerprint, check=False) is not None


def _needs(plan: Plan, names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(other for one in names for other in plan.steps[one].needs))


def together(steps: Mapping[str, PlannedStep], cores: float) -> Iterator[tuple[str, ...]]:
    """The steps in the order of their making, each after those it needs; a tuple is for one task.

    Only points of one sweep are put together, since who needs one needs all; none that trains,
    spreads or takes an accelerator, which is never short; and so few that each place which `cores`
    of the cluster make for them gets SHARES tasks.
    """
    points: dict[str, list[str]] = {}
    for name in sorted(steps, key=lambda name: steps[name].turn):
        points.setdefault(_declared(name), []).append(name)
    needs = {
        name: {_declared(other) for one in some for other in steps[one].needs}
        for name, some in points.items()
    }
    for name in step_graph.order(needs):
        first = steps[points[name][0]]
        kind, most = KINDS[first.resources.kind], 1
        if first.do != "train" and not kind.ray_gpus and not _spreads(first):
            places = max(1, cores // (kind.ray_cpus * first.resources.count))
            most = max(1, min(MOST_TOGETHER, int(len(points[name]) // (places * SHARES))))
        for start in range(0, len(points[name]), most):
            yield tuple(points[name][start : start + most])


def _declared(node: str) -> str:
    """The step of which a node is a point."""
    return node.partition("/")[0]


def _options(step: PlannedStep) -> dict[str, Any]:
    """What Ray is asked for, for what computes a step."""
    kind, count = KINDS[step.resources.kind], step.resources.count
    cpus, gpus = kind.ray_cpus * count, kind.ray_gpus * count
    if takes_gang(step.resources.kind, count):  # its hosts have their own
        cpus, gpus = 0, 0
    return {"num_cpus": cpus, "num_gpus": gpus, "max_retries": RETRIES}


def _spreads(step: PlannedStep) -> bool:
    return step.do in BUILT_IN and BUILT_IN[step.do].over is not None


def _over_nodes(store: Store, step: PlannedStep) -> bool:
    """Whether its shards are tasks of their own: where all nodes see the folders that they are in,
    and so not for a store in a bucket."""
    return _spreads(step) and isinstance(store.at("steps"), Path)


def _gone() -> tuple[type[Exception], ...]:
    """What Ray says of workers and nodes that are no longer there, by no fault of the task's."""
    from ray import exceptions

    return (
        *(exceptions.WorkerCrashedError, exceptions.NodeDiedError, exceptions.OutOfMemoryError),
        *(exceptions.LocalRayletDiedError, exceptions.ObjectLostError, exceptions.RpcError),
    )


def check_code(name: str, step: PlannedStep, code: Path) -> None:
    """Raises artifacts.MakingFailed where the code that is here, the lab's or the experiment's in
    `code`, is not the one that was planned."""
    here = planned_steps.code_of(step.function, step.own, code)
    if found := step_graph.code_changes(step, here):
        raise artifacts.MakingFailed(
            f"{name}: the code here is not the planned one ({found[0]}); plan again with it"
        )


def _make(
    root: str,
    names: tuple[str, ...],
    steps: dict[str, PlannedStep],
    code: str,
    execution: str,
    terms: Terms,
    makers: Iterable[tuple[str, ...]],
    *inputs: list[str],
) -> list[str]:
    """Why each of the steps could not be made, empty if it is there; `inputs` is the same of what
    the tasks `makers` have made for them. Models are scored without those that failed."""
    why = {
        one: said
        for of, these in zip(makers, inputs, strict=True)
        for one, said in zip(of, these, strict=True)
    }
    failed = _failed(why) & {other for name in names for other in steps[name].needs}
    left = {name: step_graph.without(steps[name], failed) for name in names} if failed else {}
    if any(step is None or failed & {*step.needs} for step in left.values()):
        return [NO_INPUT] * len(names)
    steps = steps | {name: step for name, step in left.items() if step}
    store = Store(root, make=False)
    shard_jobs.ready()  # from this thread, which outlives the others
    made = partial(_made, store, steps, code, execution, terms)
    if _spreads(steps[names[0]]):
        # Ray lends a task's cores to others only while the task's first thread waits for them.
        return [made(name) for name in names]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(made, names))


def _made(
    store: Store,
    steps: dict[str, PlannedStep],
    code: str,
    execution: str,
    terms: Terms,
    name: str,
) -> str:
    try:
        own = store.fetch(code) if steps[name].own else store.local(code)
        mapper = _on_ray(name, steps[name]) if _over_nodes(store, steps[name]) else map
        make(store, name, steps, own, execution, mapper, terms=terms)
    except artifacts.MakingFailed as error:
        return str(error.__cause__ or error)[:MOST_WORDS]
    except (artifacts.BadOutput, StoreError) as error:
        return str(error)[:MOST_WORDS]
    except Exception as error:  # or all steps of this task would seem to have failed
        return f"{type(error).__name__}: {error}"[:MOST_WORDS]
    return ""


def _on_ray(name: str, step: PlannedStep) -> shard_jobs.Mapper:
    """Each job as a Ray task of its own, with the step's resources, their outcomes in order.

    Ray Data does the same, was built and measured here, and is not used: on two cores its first
    such step took 5 to 8 s where this takes 0.3 s, twelve steps of three jobs 21 s and not 11 s,
    and two of its processes stayed in memory. What is mapped here is folders' names, and no data.
    """
    import ray

    task = ray.remote(_call).options(name=f"{name}, some shards", **_options(step))

    def mapped(child: shard_jobs.Child, jobs: Iterable[Job]) -> Iterator[shard_jobs.Outcome]:
        waiting: deque[Any] = deque()
        try:
            for job in jobs:
                waiting.append(task.remote(child, job))
                if len(waiting) >= MOST_WAITING:
                    yield _outcome(waiting.popleft())
            while waiting:
                yield _outcome(waiting.popleft())
        finally:
            for left in waiting:  # one has failed
                ray.cancel(left, force=True)

    return mapped


def _call(child: shard_jobs.Child, job: Job) -> shard_jobs.Outcome:
    return child(job)


def _outcome(task: Any) -> shard_jobs.Outcome:
    import ray

    try:
        outcome: shard_jobs.Outcome = ray.get(task)  # which lends the cores of who waits to others
    except _gone() as error:
        return shard_jobs.Outcome("lost", " ".join(str(error).split())[:MOST_WORDS])
    return outcome


def _child(name: str, step: PlannedStep, code: str, job: Job) -> shard_jobs.Outcome:
    """Do a job, on whichever node, with the code that was planned."""
    try:
        check_code(name, step, Path(code))
        outcome = shard_jobs.run(job)
        check_code(name, step, Path(code))  # the lab's might have been edited meanwhile
    except artifacts.MakingFailed as error:
        return shard_jobs.Outcome("failed", str(error))
    return outcome


@contextmanager
def _nothing_left(scratch: Path, *, trains: bool) -> Iterator[None]:
    """Of what failed, nothing is gone on from: other code may have been at it. Its log stays and,
    where nobody goes on from it, the curve of what trains."""
    try:
        yield
    except artifacts.MakerLost:
        raise
    except artifacts.MakingFailed:
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
    code: Path,
    execution: str,
    mapper: shard_jobs.Mapper = map,
    stale_after: float = STALE_AFTER,
    terms: Terms = Terms(),
) -> artifacts.Made:
    """The output of one step, whose inputs are there. One that goes through many shards does so by
    `mapper`. A maker of this execution that is lost is followed by another one, until
    MOST_ATTEMPTS in a row got no further. Raises makers.MakingFailed."""
    step = steps[name]
    # Who only watches a step that spreads has its cores, while nobody uses them, but no GPU.
    one = mapper if KINDS[step.resources.kind].ray_gpus else map
    receipt: dict[str, str] = {}
    if step.inputs:
        receipt[READ] = read_by(store, step, steps)
    folder = planner.text_folder(step)  # of a text of the experiment's own
    kept: dict[str, str | dict[str, str]] = {KEPT: str(store.fetch(folder))} if folder else {}

    def build(out: Path) -> None:
        scratch = scratch_of(out)
        scratch.mkdir()
        if not step.own:
            built(out, scratch, code)
            return
        check_code(name, step, code)
        with laid(step.code, code, scratch) as own:
            built(out, scratch, own)

    def built(out: Path, scratch: Path, own: Path) -> None:
        job = Job(
            function=place_of(step.function),
            config=step.config,
            own=() if step.function in step.own else step.own,
            models=_models(step, steps),
            inputs={key: _given(store, these, steps) for key, these in step.inputs.items()} | kept,
            out=str(out),
            scratch=str(scratch),
            code=str(own) if step.own else "",
            devices=step.resources.kind,
            count=step.resources.count,
            isolation=terms.isolation if step.private else "",
            limits=terms.limits,
            # Own code is given none, and what scores uses none: who trains writes it.
            cache=str(store.local("cache/xla")) if step.do == "train" and not step.own else "",
        )
        child, of_gang = partial(_child, name, step, str(code)), dict[str, str]()
        with _going_on(store, step, scratch), _nothing_left(scratch, trains=step.do == "train"):
            if takes_gang(step.resources.kind, step.resources.count):
                from runner.worker import multi_host_step  # needs Ray

                _refuse_a_bucket(store, name)
                mine = out.relative_to(store.local("steps")).as_posix()
                left = partial(progress_left.of_makers, store, step, [f"steps/{mine}"])
                of_gang = multi_host_step.train(name, step, job, left)
                job = replace(job, devices="cpu", count=1)
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
        most_lost=MOST_ATTEMPTS,
        left=lambda folders: progress_left.of_makers(store, step, folders),
        stale_after=stale_after,
    )


def _refuse_a_bucket(store: Store, name: str) -> None:
    """Processes on several machines save one checkpoint together, in a folder that all of them see.
    Raises makers.MakingFailed."""
    if isinstance(store.at("steps"), Remote):
        raise artifacts.MakingFailed(
            f"{name} takes several processes, and so far these train in a folder that all their "
            "machines see; name a store on disk, or fewer devices"
        )


@contextmanager
def _going_on(store: Store, step: PlannedStep, scratch: Path) -> Iterator[None]:
    """Have what earlier makers saved beside `scratch`, and see to it that what is saved there
    during the `with` body survives this machine. On disk there is nothing to do for that."""
    where = store.at(f"steps/{step.store}/{step.fingerprint[:16]}")
    if isinstance(where, Remote):
        names = [name for name in store.list(where.key) if name.endswith(SCRATCH)]
        checkpoint_sync.brought([where / name / "checkpoints" for name in names], beside=CURVE)
    mine = where / scratch.name / "checkpoints"
    try:
        with checkpoint_sync.copied(mine, beside=scratch / CURVE):
            yield
    except artifacts.MakerLost:
        raise
    except artifacts.MakingFailed:
        if isinstance(mine, Remote):
            with suppress(StoreError):
                checkpoint_sync.forget(mine)
        raise


def _models(
    step: PlannedStep, steps: Mapping[str, PlannedStep]
) -> dict[str, tuple[dict[str, Any], str]]:
    """The models that a step scores, as their training was planned: its files are a job's word."""
    inputs = step.inputs["models"] if step.do == "evaluate" else ()
    trained = {name: steps[name].config for name in inputs if steps[name].do == "train"}
    return {
        name.partition("/")[2]: (config["model"], config["own"].get("model", ""))
        for name, config in trained.items()
    }


def _given(
    store: Store, these: Mapping[str, str], steps: Mapping[str, PlannedStep]
) -> str | dict[str, str]:
    """The folders of one input: one, or one for each point of a sweep, by its label."""
    folders = {}
    for name, fingerprint in these.items():
        found = artifacts.find(store, steps[name].store, fingerprint)
        if found is None:
            raise artifacts.MakingFailed(f"its input {name} is not there")
        folders[name.partition("/")[2]] = str(found.folder)
    return folders[""] if set(folders) == {""} else folders
