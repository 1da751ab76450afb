"""A unit test starts no process, opens no connection and compiles nothing; one that does fails."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FORBIDDEN = {
    *("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"),
    *("socket.connect", "socket.bind", "compilation"),
}
_seen: list[str] = []
_watching = False


class NoUnit(Exception):
    """What a unit test may not do; `tests/integration` is the place for it."""


def _refuse(event: str, _: object = None) -> None:
    if _watching and event in FORBIDDEN:
        _seen.append(event)
        raise NoUnit(event)


sys.addaudithook(_refuse)  # for as long as the process lives


@pytest.fixture(autouse=True, scope="session")
def no_compilation() -> Iterator[None]:
    """JAX compiles nothing while it is watched, if any test has imported it."""
    if "jax" not in sys.modules:
        yield
        return
    from jax._src import compiler

    compile_ = compiler.compile_or_get_cached

    def watched(*given: Any, **more: Any) -> Any:
        _refuse("compilation")
        return compile_(*given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "compile_or_get_cached", watched)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Watch the fixtures, too, whatever their scope. pytest asks this of every test there is."""
    global _watching
    _seen.clear()
    _watching = HERE in item.path.parents
    try:
        return (yield)
    finally:
        _watching = False


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Where the test has caught the refusal, it fails all the same."""
    if _seen:
        raise NoUnit(_seen[0])
