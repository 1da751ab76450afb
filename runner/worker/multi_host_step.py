"""A `train` step on more than one device: a gang of processes (`runner.worker.host_group_ray`)
trains it to its last checkpoint; then one process writes the output
(`runner.worker.models.train`). If a host is lost, so is the maker, and the next one continues from
its checkpoints with a new gang.

The store is on a disk that all hosts see under the same path, or in a bucket. From a bucket each
host copies the inputs to itself and reads the rows of its own devices; into it each host writes its
part of a checkpoint, by Orbax and TensorStore."""

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from engine.config.stages import is_staged
from engine.model.processes import Place
from runner.isolation.gang_network import Network
from runner.lib import preemption, process_tree
from runner.schema.devices import SLICES_WITHIN, Kind
from runner.schema.record import PlannedStep
from runner.store.artifacts import MakerPreempted, MakingFailed
from runner.store.scratch_paths import CHECKPOINTS, CURVE, LOG, SCRATCH
from runner.store.store import Remote, Store
from runner.worker import environment, executor, host_group_ray, shard_jobs, step_process
from runner.worker.host_group import Gang
from runner.worker.shard_jobs import NOTICED
from runner.worker.step_process import Job

BUBBLEWRAP = "bubblewrap"
SHARES_NETWORK = "none: its processes share the cluster's network"


def gang_of(kind: Kind, count: int, slices: int = 1) -> Gang:
    """The processes that train on these devices: one per host with all of its devices; for TPU
    slices, their hosts."""
    of_slice = count // slices
    if kind.ray_tpu:
        return host_group_ray.tpu_gang(kind.ray_tpu, kind.topologies[of_slice], slices)
    each = min(of_slice, kind.devices_per_host)
    return Gang(
        hosts_per_slice=of_slice // each,
        slices=slices,
        resources={"CPU": kind.ray_cpus * each, "GPU": kind.ray_gpus * each},
        environment={"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(each)}
        if kind.platform == "cpu"
        else {},
    )


def train(
    store: Store,
    name: str,
    steps: Mapping[str, PlannedStep],
    job: Job,
    waited: Callable[[float], object] = lambda _: None,
) -> dict[str, str]:
    """Train the step `name` of these to the end. Returns the first process's receipt. Waits until
    enough hosts are free, and calls `waited` with the seconds that this took. Raises MakingFailed,
    and MakerLost if a host was lost."""
    boxed, in_bucket = bool(job.own and job.isolation == BUBBLEWRAP), _in_bucket(store)
    if job.own and in_bucket:
        raise MakingFailed(
            f"{name} takes several processes of own code, and with a store in a bucket other hosts "
            "do not find that code; name a store on a disk that all hosts see, or one device"
        )
    began = time.monotonic()
    for slices in enough(job):
        fewer = with_slices(job, slices)
        gang = gang_of(fewer.devices, fewer.count, slices)
        patience = SLICES_WITHIN if slices > job.min_slices else None
        gang = replace(gang, boxed=boxed, patience=patience)
        if in_bucket:
            from runner.store.gcs import for_orbax  # the client library only for a bucket

            gang = replace(gang, environment={**gang.environment, **for_orbax()})
        try:
            do = _boxed_host if boxed else _host
            given = str(store.root), name, steps, fewer
            free = lambda: waited(time.monotonic() - began)  # noqa: E731
            found = host_group_ray.run(do, gang, *given, begins=free)
        except host_group_ray.NotEnough:
            continue
        held = {"slices": f"{slices} of {job.slices}"} if slices < job.slices else {}
        alone = "" if job.own else ", and run the lab's code alone"
        isolation = {} if boxed else {"isolation": SHARES_NETWORK + alone}
        receipt: dict[str, str] = {**found, **held, **isolation}
        return {**receipt, "processes": str(gang.hosts)}
    raise MakingFailed("no number of slices divides the batch")  # the plan has checked that


def enough(job: Job) -> list[int]:
    """The numbers of slices that a job may have, the largest first."""
    numbers = range(job.slices, job.min_slices - 1, -1)
    return [n for n in numbers if job.slices % n == 0]


def with_slices(job: Job, slices: int) -> Job:
    """The same job on so many slices of the same size: each device does the parts of its lost peers
    one after the other, so that the batch stays the same."""
    if slices == job.slices:
        return job
    mesh, train = job.config["compute"]["mesh"], job.config["train"]
    parts = train["gradient_accumulation_steps"] * job.slices // slices
    mesh = {**mesh, "data": mesh["data"] * slices // job.slices}
    config = {
        **job.config,
        "compute": {**job.config["compute"], "mesh": mesh},
        "train": {**train, "gradient_accumulation_steps": parts},
    }
    return replace(job, config=config, count=job.count * slices // job.slices, slices=slices)


def _host(place: Place, root: str, name: str, steps: Mapping[str, PlannedStep], job: Job) -> Any:
    """The work of one process of the gang."""
    environment.settle(job.devices, _devices_of_one(job))
    step, store = steps[name], Store(root, make=False)
    executor.check_code(name, step, Path(job.code))
    # What trains imports JAX: set its environment first.
    if is_staged(job.config):
        from runner.worker.models.train_in_stages import train
    else:
        from runner.worker.models.train import train

    if place.rank == 0 and Path(job.scratch).is_dir():  # not on each machine, of a bucket
        step_process.print_to(Path(job.scratch, LOG))
    saves = _saves(store, step, job) if _in_bucket(store) else None
    own = step_process.own_functions(job)
    # SIGTERM is noted while inputs are copied, too; the training notes it itself.
    with process_tree.noting(signal.SIGTERM) as told, preemption.watched(job.spot):
        inputs = {key: Path(str(executor.given(store, key, step, steps))) for key in step.inputs}
        if told():
            raise MakerPreempted(NOTICED)
        try:
            train(job.config, inputs, Path(job.out), *own, output=False, saves=saves)
        except preemption.Left as left:
            raise MakerPreempted(NOTICED) from left
    executor.check_code(name, step, Path(job.code))  # it may have been edited meanwhile
    return environment.receipt() if place.rank == 0 else None


def _boxed_host(
    place: Place,
    root: str,
    name: str,
    steps: Mapping[str, PlannedStep],
    job: Job,
    *,
    network: Network,
) -> dict[str, str]:
    """The same with own code, in a box of this host."""
    each = _devices_of_one(job)
    environment.take(job.devices, each)
    step, store = steps[name], Store(root, make=False)
    executor.check_code(name, step, Path(job.code))
    inputs = {key: executor.given(store, key, step, steps) for key in step.inputs}
    seat = (place.rank, place.count, place.coordinator, place.slices)
    job = replace(job, inputs=inputs, count=each, place=seat, next=None)
    reports = Path(job.scratch) / f"host-{place.rank}"
    reports.mkdir(exist_ok=True)
    with preemption.watched(job.spot):
        code = step_process.in_box(step_process.box_of(job, network), job, reports)
    executor.check_code(name, step, Path(job.code))
    return shard_jobs.reported(job, reports, code)


def _devices_of_one(job: Job) -> int:
    """How many devices one process of the gang has."""
    return min(job.count // job.slices, job.devices.devices_per_host)


def _in_bucket(store: Store) -> bool:
    return isinstance(store.at("steps"), Remote)


def _saves(store: Store, step: PlannedStep, job: Job) -> Any:
    """Where a gang saves in a bucket, the same for all hosts."""
    from etils import epath

    from runner.worker.models.train import Saves

    around = store.at(f"steps/{step.store}/{step.fingerprint[:16]}")
    assert isinstance(around, Remote)
    mine = f"{Path(job.out).name}{SCRATCH}"
    others = [x for x in sorted(store.list(around.key)) if x.endswith(SCRATCH) and x != mine]
    urls = [epath.Path((around / x / CHECKPOINTS).as_posix()) for x in (*others, mine)]
    *earlier, own = (cast(Path, url) for url in urls)
    return Saves(own, earlier, around / mine / CURVE)
