"""The REST API under /api/v3: users, the repository; 501 for unknown operations.

Threads are in `api_threads.py`, code and checks in `api_code.py`, git's objects in `api_git.py`.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from bot.fake_github.rest import api_app, api_code, api_git, api_pulls, api_threads
from bot.fake_github.rest.requests import Answer, Home, Hub, Lab, Person, known_token
from bot.fake_github.world import shapes
from bot.fake_github.world.errors import Refused, forbidden, not_found

REPOSITORY = "/repos/{owner}/{repo}"

router = APIRouter(dependencies=[Depends(known_token)])


@router.get("/user")
def get_authenticated_user(hub: Hub, who: Person) -> Answer:
    if hub.is_app(who):
        raise forbidden("Resource not accessible by integration")
    return Answer(shapes.public_user(hub.world, who))


@router.get("/users/{login}")
def get_user(login: str, hub: Hub) -> Answer:
    return Answer(shapes.public_user(hub.world, hub.user(login)))


@router.get("/rate_limit")
def get_rate_limit(request: Request, hub: Hub) -> Answer:
    rate = hub.rates.count(request.headers.get("authorization", ""), 0)
    return Answer({"resources": {"core": rate, "search": rate}, "rate": rate})


@router.get("/installation/repositories")
def list_installation_repositories(hub: Hub, who: Person) -> Answer:
    if not hub.is_app(who):
        raise forbidden("You must authenticate with an installation access token")
    return Answer({"total_count": 1, "repositories": [shapes.repository(hub.world)]})


@router.get(REPOSITORY)
def get_repository(home: Home) -> Answer:
    return Answer(shapes.full_repository(home.world))


@router.get(f"{REPOSITORY}/collaborators/{{login}}/permission")
def get_permission(login: str, lab: Lab, who: Person) -> Answer:
    """On a public repository a stranger may read; 404 for unknown users."""
    if not lab.may(who, "write"):
        raise forbidden("Must have push access to view collaborator permission.")
    person = lab.world.users.get(login.lower())
    if person is None or person.type != "User":
        raise not_found(f"{login} is not a user")
    role = person.role or "read"
    collapsed = {"maintain": "write", "triage": "read"}.get(role, role)
    shape = shapes.user(lab.world, person) | {"role_name": role, "permissions": _flags(role)}
    return Answer({"permission": collapsed, "role_name": role, "user": shape})


def _flags(role: str) -> dict[str, bool]:
    order = ["pull", "triage", "push", "maintain", "admin"]
    named = {"read": "pull", "write": "push"}.get(role, role)
    return {flag: order.index(flag) <= order.index(named) for flag in order}


for part in (api_threads.router, api_pulls.router, api_code.router, api_git.router):
    router.include_router(part, prefix=REPOSITORY)


@router.api_route("/{operation:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
def not_implemented(operation: str, request: Request) -> Response:
    raise Refused(501, f"the sandbox does not implement {request.method} /{operation}")


operations = APIRouter()  # those of the App need another credential than a token
for part in (api_app.router, router):
    operations.include_router(part)
