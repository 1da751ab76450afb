"""How the tests share a machine. `make test` runs files side by side in several processes; those
that start a Ray are all run by one of them, since two Rays on one machine disturb each other."""

import ctypes
import fcntl
import gc
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from xdist.scheduler import LoadFileScheduling

from bot.fake_github import server
from runner.planning import limited_plan
from tests import examples, one_app


# The machine keeps its power for as long as the tests run; who cuts it, or looks at what is synced,
# puts a call of its own here.
def no_sync(_: object) -> None: ...


os.fsync = no_sync
server.repository_app = one_app.repository_app
# Time that a test decides about does not pass while a plan is made beside the bot.
limited_plan.QUICK = limited_plan.LIMITS.seconds
assert examples.TIMES > 0  # that file sets Hypothesis up

collect_ignore = ["traps"]  # strangers' experiments, one of which has a conftest.py
RAY = {
    *("test_whole_way", "test_processes", "test_gang", "test_tpu_gang"),
    *(
        "test_arms_on_slices",
        "test_steps_on_ray",
        "test_gcs_on_ray",
        "test_lost_on_ray",
        "test_doctor_on_ray",
        "test_every_step",
    ),
}
LOCK = Path(tempfile.gettempdir()) / "regatta-tests-ray.lock"


def _starts_a_ray(path: Path) -> bool:
    return path.stem in RAY and path.parent.name != "engine"


class OneRay(LoadFileScheduling):
    """Files side by side, and those that start a Ray one after another."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "those that start a Ray" if _starts_a_ray(Path(file)) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneRay | None:
    return OneRay(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who starts a Ray comes first, because it takes longest, and may take longer."""
    items.sort(key=lambda item: not _starts_a_ray(item.path))
    for item in items:
        if _starts_a_ray(item.path):
            item.add_marker(pytest.mark.timeout(900))
        if (calm := item.get_closest_marker("calm")) and os.environ.get("REGATTA_CLIMATE"):
            item.add_marker(pytest.mark.skip(reason=calm.args[0]))


@pytest.fixture(scope="module", autouse=True)
def one_ray_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hold the machine's only place for a Ray while a file's tests run."""
    if not _starts_a_ray(request.path):
        yield
        return
    with LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


MUCH = 3 * 2**29  # bytes; six such processes leave room for what the tests start in 24 GiB


@pytest.fixture(scope="module", autouse=True)
def memory_is_given_back() -> Iterator[None]:
    """A process of tests keeps each program that it compiled; after a file it forgets them."""
    yield
    if "jax" in sys.modules and psutil.Process().memory_info().rss > MUCH:
        sys.modules["jax"].clear_caches()
        gc.collect()
        if platform.libc_ver()[0] == "glibc":
            ctypes.CDLL(None).malloc_trim(0)
