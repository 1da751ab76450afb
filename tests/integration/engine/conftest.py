"""The fixtures of `tests/engine`. Here a third of the time would be XLA's optimizations, for models
that run for milliseconds; the stories and the experiments run with them."""

from collections.abc import Iterator

import compile_fast
import jax
import pytest

from tests.engine.fixtures import dozen as dozen
from tests.engine.fixtures import fresh as fresh
from tests.engine.fixtures import text as text
from tests.engine.fixtures import tiny as tiny
from tests.engine.fixtures import tokens as tokens


@pytest.fixture(scope="package", autouse=True)
def few_optimizations() -> Iterator[None]:
    """XLA compiles faster what runs only a few times, here and in the processes that are started.
    Where another folder's tests compiled before, XLA has read its flags already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", compile_fast.in_environment()["XLA_FLAGS"])
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", False)
