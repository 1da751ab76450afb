"""Common parts of the REST operations: user, repository, request body, pagination, errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BeforeValidator

from bot.fake_github.world.errors import Redirect, Refused, invalid, not_found
from bot.fake_github.world.forks import Fork
from bot.fake_github.world.gate import API
from bot.fake_github.world.sandbox import Sandbox
from bot.fake_github.world.state import User, World, moment

T = TypeVar("T")


# User and repository


async def sandbox_asked(request: Request) -> Sandbox:
    found: Sandbox = request.scope.get("past") or request.app.state.sandbox
    return found


Hub = Annotated[Sandbox, Depends(sandbox_asked)]  # all of GitHub


async def known_token(request: Request, sandbox: Hub) -> User | None:
    """The user of a request's token; None without a token. An unknown token is a 401."""
    given = request.headers.get("authorization", "")
    if not given:
        return None
    world = sandbox.world
    scheme, _, token = given.partition(" ")
    user = world.tokens.get(token.strip())
    ended = world.issued.get(token.strip(), world.clock.now()) < world.clock.now()
    if scheme.lower() not in ("token", "bearer") or user is None or ended:
        raise Refused(401, "Bad credentials")
    if token.strip() in world.retired and request.method != "GET":
        raise Refused(403, "Resource not accessible by integration")
    if user is world.bot and world.suspended_at:
        raise Refused(403, "This installation has been suspended")
    return user


Anyone = Annotated[User | None, Depends(known_token)]


async def known_person(who: Anyone) -> User:
    if who is None:
        raise Refused(401, "Requires authentication")
    return who


Person = Annotated[User, Depends(known_person)]  # writes need one


async def home_asked(
    owner: str, repo: str, request: Request, who: Anyone, sandbox: Hub
) -> Sandbox | Fork:
    """404 for an unknown or private repository; a former name redirects."""
    world, name = sandbox.world, f"{owner}/{repo}".lower()
    for fork in sandbox.forks():
        if name == fork.world.full_name.lower():
            return fork
    if world.private and (who is None or not (who.role or who is world.bot)):
        raise not_found()
    if name in world.old_names:
        rest = request.url.path.split("/", 6)[6:]
        raise Redirect("/".join([f"/repositories/{world.repository_id}", *rest]))
    if name != world.full_name.lower():
        raise not_found()
    return sandbox


Home = Annotated[Sandbox | Fork, Depends(home_asked)]  # the repository, or a fork of it


async def lab_asked(home: Home) -> Sandbox:
    """A fork has only code; other requests about it are a 404."""
    if isinstance(home, Fork):
        raise not_found()
    return home


Lab = Annotated[Sandbox, Depends(lab_asked)]


# Request body


async def sent_json(request: Request) -> Any:
    """The request's JSON; an empty body counts as an object without fields."""
    try:
        return json.loads(await request.body() or b"{}")
    except ValueError:
        raise Refused(400, "Problems parsing JSON") from None


SentJson = Annotated[Any, Depends(sent_json)]


async def sent_object(sent: SentJson) -> dict[str, Any]:
    if not isinstance(sent, dict):
        raise Refused(400, "Body should be a JSON object")
    return sent


Sent = Annotated[dict[str, Any], Depends(sent_object)]
Since = Annotated[
    datetime | None, Query(), BeforeValidator(lambda given: moment(given) if given else None)
]


def texts(sent: dict[str, Any], *names: str) -> dict[str, Any]:
    """The given fields with these names, which must be texts."""
    given = {name: sent[name] for name in names if sent.get(name) is not None}
    for name, value in given.items():
        if not isinstance(value, str):
            message = f"Invalid request.\n\nFor 'properties/{name}', {value!r} is not a string."
            raise Refused(422, message)
    return given


def names(sent: Any) -> list[str]:
    """Labels as clients send them: `["a"]`, or `{"labels": […]}` of names or `{"name": …}`."""
    listed = sent.get("labels", []) if isinstance(sent, dict) else sent
    if not isinstance(listed, list):
        raise invalid("Label", "labels", "invalid")
    found = [each.get("name") if isinstance(each, dict) else each for each in listed]
    good = [name for name in found if isinstance(name, str) and name.strip()]
    if len(good) < len(found):
        raise invalid("Label", "name", "invalid")
    return good


# Answers


class Answer(JSONResponse):
    media_type = "application/json; charset=utf-8"


def in_order(items: Iterable[Any], sort: str | None, direction: str) -> list[Any]:
    """By time of creation or, on request, of the last change; ties by id."""
    key = "updated_at" if sort == "updated" else "created_at"
    backwards = direction == "desc"
    return sorted(items, key=lambda each: (getattr(each, key), each.id), reverse=backwards)


def listing(
    request: Request,
    items: Iterable[T],
    shape: Callable[[World, T], Any],
    *,
    inside: str | None = None,
) -> Answer:
    """One page of a list with its `Link` header; a stale list leaves out items that are too new."""
    world = request.app.state.sandbox.world
    younger_than = getattr(request.state, "younger_than", None)
    if younger_than is not None:
        limit = world.clock.now() - timedelta(seconds=younger_than)
        items = [each for each in items if getattr(each, "created_at", limit) <= limit]
    whole = list(items)
    per_page = min(max(number_asked(request, "per_page", 30), 1), 100)
    page = max(number_asked(request, "page", 1), 1)
    last = max(1, -(-len(whole) // per_page))
    shown = [shape(world, each) for each in whole[(page - 1) * per_page : page * per_page]]
    others = {"first": 1, "prev": page - 1} if page > 1 else {}
    if page < last:
        others |= {"next": page + 1, "last": last}
    links = [
        f'<{request.url.include_query_params(page=number)}>; rel="{rel}"'
        for rel, number in others.items()
    ]
    headers = {"Link": ", ".join(links)} if links else {}
    return Answer({"total_count": len(whole), inside: shown} if inside else shown, headers=headers)


def number_asked(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, "")
    return int(given) if given.isascii() and given.isdigit() else default


def answer_errors(app: FastAPI, page: Callable[[Request, Refused], Response]) -> None:
    """Errors in GitHub's format under /api/v3, and as a page elsewhere."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        if not request.url.path.startswith(f"{API}/"):
            return page(request, error)
        body, headers = error.as_json(), {}
        if isinstance(error, Redirect):
            body["url"] = headers["Location"] = app.state.sandbox.world.api + error.path
        return Answer(body, error.status, headers)

    @app.exception_handler(404)
    async def missing(request: Request, _: Exception) -> Response:
        return await refused(request, not_found())

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        """A path without a number where one is needed is a 404."""
        where, *field = error.errors()[0]["loc"]
        wrong = not_found() if where == "path" else invalid("Search", str(field[0]), "invalid")
        return await refused(request, wrong)
