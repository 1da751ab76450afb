"""A `train` step on more than one device: a gang of processes (`runner.worker.host_group_ray`)
trains it to its last checkpoint; then one process writes the output
(`runner.worker.models.train`). If a host is lost, so is the maker, and the next one continues from
its checkpoints with a new gang. All hosts see the store's folder under the same path."""

from pathlib import Path
from typing import Any

from engine.model.processes import Place
from runner.schema.devices import Kind
from runner.schema.record import PlannedStep
from runner.store.artifacts import MakingFailed
from runner.worker import environment, executor, host_group_ray
from runner.worker.host_group import Gang
from runner.worker.step_process import Job

SHARES_NETWORK = "none: its processes share the cluster's network, and run the lab's code alone"


def gang_of(kind: Kind, count: int) -> Gang:
    """The processes that train on these devices: one per host with all of its devices; for a TPU
    slice, its hosts."""
    if kind.ray_tpu:
        return host_group_ray.tpu_gang(kind.ray_tpu, kind.topologies[count])
    each = min(count, kind.devices_per_host)
    return Gang(
        hosts_per_slice=count // each,
        resources={"CPU": kind.ray_cpus * each, "GPU": kind.ray_gpus * each},
        environment={"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(each)}
        if kind.platform == "cpu"
        else {},
    )


def train(name: str, step: PlannedStep, job: Job) -> dict[str, str]:
    """Train to the end. Returns the first process's receipt. Waits until enough hosts are free.
    Raises MakingFailed, and MakerLost if a host was lost."""
    if job.own:
        raise MakingFailed("functions of the experiment's own train on one device; write count: 1")
    gang = gang_of(job.devices, job.count)
    receipt: dict[str, str] = host_group_ray.run(_host, gang, name, step, job)
    return {**receipt, "processes": str(gang.hosts), "isolation": SHARES_NETWORK}


def _host(place: Place, name: str, step: PlannedStep, job: Job) -> Any:
    """The work of one process of the gang."""
    environment.settle(job.devices, min(job.count, job.devices.devices_per_host))
    executor.check_code(name, step, Path(job.code))
    from runner.worker.models import train as built_in  # imports JAX: set its environment first

    inputs = {key: Path(str(folder)) for key, folder in job.inputs.items()}
    built_in.train(job.config, inputs, Path(job.out), output=False)
    executor.check_code(name, step, Path(job.code))  # it may have been edited meanwhile
    return environment.receipt() if place.rank == 0 else None
