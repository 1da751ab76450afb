"""REST operations of the App itself: identity, tokens, deliveries."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from typing import Annotated, Any

import jwt
from fastapi import APIRouter, Depends, Request

from bot.fake_github.rest.requests import Answer, Hub, Sent, number_asked
from bot.fake_github.world import shapes
from bot.fake_github.world.actions import known
from bot.fake_github.world.errors import Redirect, Refused, not_found, unprocessable
from bot.fake_github.world.state import World, stamp
from bot.fake_github.world.webhooks import Attempt

TOKEN_LASTS = timedelta(hours=1)


def signed(world: World, word: str) -> bool:
    """Whether the App's key signed this JWT, and it is valid now by GitHub's clock."""
    if world.app_key is None:
        return False
    try:
        claims = jwt.decode(
            word,
            world.app_key,
            algorithms=["RS256"],
            options={"verify_exp": False, "verify_iat": False, "require": ["iat", "exp", "iss"]},
        )
    except jwt.PyJWTError:
        return False
    now = world.clock.now().timestamp()
    mine = claims["iss"] in (str(world.app_id), "Iv1.sandbox")
    return mine and claims["iat"] <= now < claims["exp"] <= now + 600


async def the_app(request: Request, hub: Hub) -> None:
    word = request.headers.get("authorization", "").partition(" ")[2].strip()
    if not signed(hub.world, word):
        raise Refused(401, "A JSON web token could not be decoded")


router = APIRouter(dependencies=[Depends(the_app)])  # each needs a JWT that the App signed


@router.get("/app")
def get_app(hub: Hub) -> Answer:
    return Answer(shapes.app(hub.world))


@router.get("/app/installations")
def list_installations(hub: Hub) -> Answer:
    return Answer([shapes.installation(hub.world)])


@router.get("/repos/{owner}/{repo}/installation")
def get_installation(owner: str, repo: str, hub: Hub) -> Answer:
    world, name = hub.world, f"{owner}/{repo}".lower()
    if name in world.old_names:
        raise Redirect(f"/repositories/{world.repository_id}/installation")
    if name != world.full_name.lower():
        raise not_found()
    return Answer(shapes.installation(world))


@router.post("/app/installations/{id}/access_tokens")
def create_token(id: int, hub: Hub, sent: Sent) -> Answer:
    world = hub.world
    if id != world.installation_id:
        raise not_found()
    if world.suspended_at:
        raise Refused(403, "This installation has been suspended")
    here = {"repositories": [world.name], "repository_ids": [world.repository_id]}
    if any(sent.get(key, only) != only for key, only in here.items()):
        raise unprocessable("There is at least one repository that does not exist")
    token, until = f"ghs_{secrets.token_hex(18)}", world.clock.now() + TOKEN_LASTS
    with hub.changing():
        world.tokens[token], world.issued[token] = world.bot, until
    made = {
        "token": token,
        "expires_at": stamp(until),
        "permissions": shapes.APP_PERMISSIONS,
        "repository_selection": "selected",
        "repositories": [shapes.repository(world)],
    }
    return Answer(made, 201)


@router.get("/app/hook/deliveries")
def list_deliveries(request: Request, hub: Hub) -> Answer:
    """Newest first; a cursor names the first attempt of a page."""
    attempts = list(reversed(hub.webhooks.attempts))
    cursor = number_asked(request, "cursor", 0)
    if cursor:
        attempts = [each for each in attempts if each.id <= cursor]
    most = min(max(number_asked(request, "per_page", 30), 1), 100)
    headers = {}
    if len(attempts) > most:
        at = request.url.include_query_params(cursor=attempts[most].id)
        headers["Link"] = f'<{at}>; rel="next"'
    return Answer([_item(hub.world, each) for each in attempts[:most]], headers=headers)


async def attempt_asked(id: int, hub: Hub) -> Attempt:
    return known({each.id: each for each in hub.webhooks.attempts}, id)


Asked = Annotated[Attempt, Depends(attempt_asked)]


@router.get("/app/hook/deliveries/{id}")
def get_delivery(attempt: Asked, hub: Hub) -> Answer:
    delivery = attempt.delivery
    request = {"headers": delivery.headers, "payload": json.loads(delivery.body)}
    told = {"url": "", "request": request, "response": {"headers": {}, "payload": ""}}
    return Answer(_item(hub.world, attempt) | told)


@router.post("/app/hook/deliveries/{id}/attempts")
def redeliver(attempt: Asked, hub: Hub) -> Answer:
    hub.webhooks.redeliver(attempt.delivery)
    return Answer({}, 202)


def _item(world: World, one: Attempt) -> dict[str, Any]:
    good = 200 <= one.status < 300
    return {
        "id": one.id,
        "guid": one.delivery.id,
        "delivered_at": stamp(one.at),
        "redelivery": one.again,
        "duration": 0.01,
        "status": "OK" if good else "failed to connect to host" if not one.status else "Error",
        "status_code": one.status or 502,
        "event": one.delivery.event,
        "action": one.delivery.action,
        "installation_id": world.installation_id,
        "repository_id": None if one.delivery.event == "installation" else world.repository_id,
        "throttled_at": None,
    }
