"""The REST API under /api/v3: who am I, who is that, the repository; and 501 for all the rest.

Threads are in `api_threads.py`, code and checks in `api_code.py`, git's objects in `api_git.py`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from bot.fake_github.rest import api_app, api_code, api_git, api_pulls, api_threads
from bot.fake_github.rest.requests import Answer, Person, known_repository, known_token
from bot.fake_github.world import shapes
from bot.fake_github.world.errors import Refused, forbidden, not_found
from bot.fake_github.world.forks import Fork
from bot.fake_github.world.sandbox import Sandbox
from bot.fake_github.world.state import User

Anyone = Annotated[User | None, Depends(known_token)]
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def routes(sandbox: Sandbox) -> APIRouter:
    whole = APIRouter()
    whole.include_router(api_app.routes(sandbox))
    router = APIRouter(dependencies=[Depends(known_token)])
    router.include_router(_people(sandbox))
    for part in (
        _repository,
        api_threads.routes,
        api_pulls.routes,
        api_code.routes,
        api_git.routes,
    ):
        router.include_router(
            part(sandbox),
            prefix="/repos/{owner}/{repo}",
            dependencies=[Depends(known_repository)],
        )

    @router.api_route("/{operation:path}", methods=METHODS)
    def not_implemented(operation: str, request: Request) -> Response:
        raise Refused(501, f"the sandbox does not implement {request.method} /{operation}")

    whole.include_router(router)
    return whole


def fork_routes(fork: Fork) -> APIRouter:
    """A fork's own operations: the repository, its code and git's objects; the rest is a 404."""
    router = APIRouter(dependencies=[Depends(known_token)])
    address = f"/repos/{fork.world.full_name}"

    @router.get(address)
    def get_repository() -> Response:
        return Answer(shapes.full_repository(fork.world))

    for part in (api_code.commits, api_git.routes):
        router.include_router(part(fork), prefix=address)
    return router


def _people(sandbox: Sandbox) -> APIRouter:
    world = sandbox.world
    router = APIRouter()

    @router.get("/user")
    def get_authenticated_user(who: Person) -> Response:
        if sandbox.is_app(who):
            raise forbidden("Resource not accessible by integration")
        return Answer(shapes.public_user(world, who))

    @router.get("/users/{login}")
    def get_user(login: str) -> Response:
        return Answer(shapes.public_user(world, sandbox.user(login)))

    @router.get("/rate_limit")
    def get_rate_limit(request: Request) -> Response:
        rate = sandbox.rates.count(request.headers.get("authorization", ""), 0)
        return Answer({"resources": {"core": rate, "search": rate}, "rate": rate})

    @router.get("/installation/repositories")
    def list_installation_repositories(who: Person) -> Response:
        if not sandbox.is_app(who):
            raise forbidden("You must authenticate with an installation access token")
        listed = {"total_count": 1, "repositories": [shapes.repository(world)]}
        return Answer(listed)

    return router


def _repository(sandbox: Sandbox) -> APIRouter:
    world = sandbox.world
    router = APIRouter()

    @router.get("")
    def get_repository() -> Response:
        return Answer(shapes.full_repository(world))

    @router.get("/collaborators/{login}/permission")
    def get_permission(login: str, who: Person) -> Response:
        """On a public repository a stranger reads; what is no person is a 404."""
        if not sandbox.may(who, "write"):
            raise forbidden("Must have push access to view collaborator permission.")
        try:
            person = sandbox.user(login)
        except Refused:
            person = world.owner
        if person.type != "User":
            raise not_found(f"{login} is not a user")
        role = person.role or "read"
        collapsed = {"maintain": "write", "triage": "read"}.get(role, role)
        shape = shapes.user(world, person) | {"role_name": role, "permissions": _flags(role)}
        return Answer({"permission": collapsed, "role_name": role, "user": shape})

    return router


def _flags(role: str) -> dict[str, bool]:
    order = ["pull", "triage", "push", "maintain", "admin"]
    named = {"read": "pull", "write": "push"}.get(role, role)
    return {flag: order.index(flag) <= order.index(named) for flag in order}
