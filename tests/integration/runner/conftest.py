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


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Steps that this process makes find what other tests have compiled, as in one store."""
    own, folder = task_groups.cache, str(tmp_path_factory.mktemp("compiled"))

    def cache(store: Store, step: PlannedStep) -> str:
        return folder if own(store, step) else ""

    with pytest.MonkeyPatch.context() as patch:
        for module in (executor, task_groups):
            patch.setattr(module, "cache", cache)
        yield
