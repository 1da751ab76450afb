"""One web app for all sandboxes of a process.

To build the app's hundred routes takes FastAPI longer than most stories take. So they are built
once, for a stand-in, which is at each request the sandbox that was asked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from bot.fake_github import server
from bot.fake_github.pages.views import Pages
from bot.fake_github.world.sandbox import Sandbox

_asked: ContextVar[Sandbox] = ContextVar("asked")
_build = server.repository_app


class _StandIn:
    """Has every attribute of what `of` gives at that moment."""

    def __init__(self, of: Callable[[], Any], **own: Any) -> None:
        self.__dict__.update(own, _of=of)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} is for the sandbox to set")


@functools.cache
def _app(_full_name: str, _leaderboard_url: str | None) -> ASGIApp:
    """The app for sandboxes whose pages have this name and this link in common."""
    git = _StandIn(lambda: _asked.get().world.git)
    world = _StandIn(lambda: _asked.get().world, git=git)
    sandbox: Any = _StandIn(_asked.get, world=world)
    return _build(sandbox, Pages(sandbox))


def repository_app(sandbox: Sandbox, _: Pages) -> ASGIApp:
    """In the place of `server.repository_app`."""
    token = _asked.set(sandbox)
    try:
        app = _app(sandbox.world.full_name, sandbox.world.leaderboard_url)
    finally:
        _asked.reset(token)

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        token = _asked.set(sandbox)
        try:
            await app(scope, receive, send)
        finally:
            _asked.reset(token)

    return asked
