"""The devices of a run, as the choice of a mesh needs to know them. Imports the standard library
alone, because `runner.worker.fork_server` does."""

from typing import Literal, NamedTuple

Platform = Literal["cpu", "gpu", "tpu"]  # as JAX calls it


class Hardware(NamedTuple):
    """Devices of one kind."""

    platform: Platform
    devices: int
    memory: int | None  # bytes of one device; None: unknown, so that everything fits
    host: int  # devices that the fast network joins
    slices: int = 1  # groups of devices; only `data` is split between them
