"""How the tests are shared out between processes (`make test` takes two): a file's tests stay
together, for they share what is slow to make, and those that start a Ray wait for each other, since
two Rays on one machine disturb each other."""

import pytest

RAY = {"test_whole_way", "test_processes", "test_gang", "test_steps_on_ray"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name each test's group."""
    for item in items:
        group = "ray" if item.path.stem in RAY else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
