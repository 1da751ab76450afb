"""XLA compiles fast here, for models that run for milliseconds; `tests/system` runs optimized."""

import sys
from collections.abc import Iterator

import compile_fast
import pytest


@pytest.fixture(scope="package", autouse=True)
def few_optimizations() -> Iterator[None]:
    """In this process and in those that it starts. Where a file of another folder compiled before,
    XLA has read its flags already, and JAX's option alone remains."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in compile_fast.ENVIRONMENT.items():
            patch.setenv(name, value)
        _jax(True)
        yield
        _jax(False)


def _jax(few: bool) -> None:
    if "jax" in sys.modules:  # otherwise JAX reads the environment
        sys.modules["jax"].config.update("jax_disable_most_optimizations", few)
