"""The fixtures of `tests/runner`, and a place for what is compiled."""

from collections.abc import Iterator

import pytest

from runner.schema.record import PlannedStep
from runner.store.store import Store
from runner.worker import executor, task_groups
from tests.runner.fixtures import bucket as bucket
from tests.runner.fixtures import fake as fake
from tests.runner.fixtures import gcs_server as gcs_server
from tests.runner.fixtures import impatient as impatient


@pytest.fixture(scope="session")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module", autouse=True)
def compiled_once(compiled_folder: str) -> Iterator[None]:
    """Steps that this process makes find what other tests have compiled, as in one store.

    Undone after each module, because units of the worker run later in the same process.
    """
    own = task_groups.cache

    def cache(store: Store, step: PlannedStep) -> str:
        return compiled_folder if own(store, step) else ""

    with pytest.MonkeyPatch.context() as patch:
        for module in (executor, task_groups):
            patch.setattr(module, "cache", cache)
        yield
