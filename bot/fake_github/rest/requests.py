"""What the REST operations share: who asks, what they sent, pages of a list, errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from fastapi import Body, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from bot.fake_github.world.errors import Redirect, Refused, invalid, not_found
from bot.fake_github.world.gate import API
from bot.fake_github.world.sandbox import Sandbox
from bot.fake_github.world.state import User, moment

T = TypeVar("T")


def sandbox_of(request: Request) -> Sandbox:
    found: Sandbox = request.app.state.sandbox
    return found


# Who asks, and for what


async def known_token(request: Request) -> User | None:
    """Who a request's token belongs to; None without one. An unknown token is a 401."""
    given = request.headers.get("authorization", "")
    if not given:
        return None
    scheme, _, token = given.partition(" ")
    user = sandbox_of(request).world.tokens.get(token.strip())
    world = sandbox_of(request).world
    ended = world.issued.get(token.strip(), world.clock.now()) < world.clock.now()
    if scheme.lower() not in ("token", "bearer") or user is None or ended:
        raise Refused(401, "Bad credentials")
    if user is world.bot and world.suspended_at:
        raise Refused(403, "This installation has been suspended")
    return user


async def known_person(who: Annotated[User | None, Depends(known_token)]) -> User:
    if who is None:
        raise Refused(401, "Requires authentication")
    return who


async def known_repository(
    owner: str, repo: str, request: Request, who: Annotated[User | None, Depends(known_token)]
) -> None:
    """404 for what is no repository, or a private one of others; a former name redirects."""
    world, name = sandbox_of(request).world, f"{owner}/{repo}".lower()
    if world.private and (who is None or not (who.role or who is world.bot)):
        raise not_found()
    if name in world.old_names:
        rest = request.url.path.split("/", 6)[6:]
        raise Redirect("/".join([f"/repositories/{world.repository_id}", *rest]))
    if name != world.full_name.lower():
        raise not_found()


Person = Annotated[User, Depends(known_person)]  # writes need one
Sent = Annotated[Any, Body()]


def fields(sent: object) -> dict[str, Any]:
    if not isinstance(sent, dict):
        raise Refused(400, "Body should be a JSON object")
    return sent


def text(sent: object, name: str, resource: str, default: str | None = None) -> str | None:
    """A field that must be text, where it is given."""
    value = fields(sent).get(name, default)
    if value is not None and not isinstance(value, str):
        raise invalid(resource, name, "invalid")
    return value


def names(sent: object, resource: str = "Label") -> list[str]:
    """Labels as clients send them: `["a"]`, or `{"labels": […]}` of names or `{"name": …}`."""
    listed = sent.get("labels", []) if isinstance(sent, dict) else sent
    if not isinstance(listed, list):
        raise invalid(resource, "labels", "invalid")
    found = [each.get("name") if isinstance(each, dict) else each for each in listed]
    good = [name for name in found if isinstance(name, str) and name.strip()]
    if len(good) < len(found):
        raise invalid(resource, "name", "invalid")
    return good


def time_asked(request: Request, name: str) -> datetime | None:
    given = request.query_params.get(name)
    if not given:
        return None
    try:
        return moment(given)
    except ValueError:
        raise invalid("Search", name, "invalid") from None


# Answers


class Answer(JSONResponse):
    media_type = "application/json; charset=utf-8"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def listing(
    request: Request, items: Iterable[T], shape: Callable[[T], Any], *, inside: str | None = None
) -> Response:
    """One page of a list with its `Link` header; a stale list leaves out what is too young."""
    world = sandbox_of(request).world
    younger_than = getattr(request.state, "younger_than", None)
    if younger_than is not None:
        limit = world.clock.now() - timedelta(seconds=younger_than)
        items = [each for each in items if getattr(each, "created_at", limit) <= limit]
    whole = list(items)
    per_page = min(max(number_asked(request, "per_page", 30), 1), 100)
    page = max(number_asked(request, "page", 1), 1)
    last = max(1, -(-len(whole) // per_page))
    shown = [shape(each) for each in whole[(page - 1) * per_page : page * per_page]]
    headers = {}
    others = {"first": 1, "prev": page - 1} if page > 1 else {}
    if page < last:
        others |= {"next": page + 1, "last": last}
    if others:
        address = f"{world.url}{request.url.path}"
        links = []
        for rel, number in others.items():
            query = request.query_params.items()
            kept = [pair for pair in query if pair[0] != "page"] + [("page", str(number))]
            links.append(f'<{address}?{urlencode(kept)}>; rel="{rel}"')
        headers["Link"] = ", ".join(links)
    if inside:
        return Answer({"total_count": len(whole), inside: shown}, headers=headers)
    return Answer(shown, headers=headers)


def number_asked(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, "")
    return int(given) if given.isascii() and given.isdigit() else default


def answer_errors(app: FastAPI, page: Callable[[Request, Refused], Response]) -> None:
    """Errors in GitHub's shape under /api/v3, and as a page elsewhere."""

    def refuse(request: Request, refused: Refused) -> Response:
        if request.url.path.startswith(f"{API}/"):
            body, headers = refused.as_json(), {}
            if isinstance(refused, Redirect):
                body["url"] = headers["Location"] = sandbox_of(request).world.api + refused.path
            return Answer(body, status_code=refused.status, headers=headers)
        return page(request, refused)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return refuse(request, error)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        where = {str(each["loc"][0]) for each in error.errors()}
        if "path" in where:
            return refuse(request, not_found())
        return refuse(request, Refused(400, "Problems parsing JSON"))
