"""The tasks that Ray is asked for: what each requests, how one waits for others without keeping its
cores from them, and which of Ray's errors are not a task's fault."""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from runner.schema.devices import Kind, takes_gang
from runner.schema.record import MOST_ATTEMPTS, PlannedStep
from runner.store.artifacts import MakerLost
from runner.worker import shard_jobs
from runner.worker.step_process import Job

RETRIES = MOST_ATTEMPTS  # of a task whose worker or node was lost
MOST_WAITING = 1000  # tasks of one step that Ray has at a time
MOST_WORDS = 400  # of why a step failed


def options(step: PlannedStep, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The resources that a step's task requests from Ray."""
    kind, count = kinds[step.resources.kind], step.resources.count
    cpus, gpus = kind.ray_cpus * count, kind.ray_gpus * count
    if takes_gang(kind, count):  # its hosts request their own
        cpus, gpus = 0, 0
    return {"num_cpus": cpus, "num_gpus": gpus, "max_retries": RETRIES}


def mapper(name: str, step: PlannedStep, kinds: Mapping[str, Kind]) -> shard_jobs.Mapper:
    """Each job as a Ray task of its own, with the step's resources.

    Ray Data does the same. It was built and measured here, and is not used: on two cores its first
    such step took 5 to 8 s instead of 0.3 s, twelve steps of three jobs 21 s instead of 11 s, and
    two of its processes stayed in memory. What is mapped here are names of folders, not data.
    """
    import ray

    task = ray.remote(_call).options(name=f"{name}, some shards", **options(step, kinds))

    def mapped(child: shard_jobs.Child, jobs: Iterable[Job]) -> Iterable[None]:
        waiting: deque[Any] = deque()
        try:
            for job in jobs:
                waiting.append(task.remote(child, job))
                if len(waiting) >= MOST_WAITING:
                    wait_for(waiting.popleft())
            while waiting:
                wait_for(waiting.popleft())
        finally:
            for left in waiting:  # after a failure
                ray.cancel(left, force=True)
        return ()

    return mapped


def _call(child: shard_jobs.Child, job: Job) -> None:
    child(job)


def wait_for(task: Any) -> None:
    """Wait until a task is done; its cores are lent to others meanwhile. Raises the task's
    error."""
    import ray
    from ray.exceptions import RayTaskError

    try:
        ray.get(task)
    except gone() as error:
        raise MakerLost(one_line(error)) from error
    except RayTaskError as error:
        raise error.cause or error from None


def sleep(seconds: float) -> None:
    """Sleep in a task's first thread; its cores are lent to others meanwhile. If another execution
    makes the step that is waited for, its tasks may need these very cores."""
    import ray

    with suppress(*gone()):  # then it was a shorter sleep
        ray.get(ray.remote(_sleep).options(name="a wait", num_cpus=0).remote(seconds))


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def gone() -> tuple[type[Exception], ...]:
    """Ray's errors for lost workers and nodes, which are not the task's fault."""
    from ray import exceptions

    return (
        *(exceptions.WorkerCrashedError, exceptions.NodeDiedError, exceptions.OutOfMemoryError),
        *(exceptions.LocalRayletDiedError, exceptions.ObjectLostError, exceptions.RpcError),
    )


def one_line(error: Exception) -> str:
    """What it says, on one line."""
    return " ".join(str(error).split())[:MOST_WORDS]
