"""GraphQL, as far as the bot needs it: when a review was last edited, which REST does not tell."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from bot.fake_github.rest.requests import Answer, Sent, fields, known_person
from bot.fake_github.world.gate import GRAPHQL
from bot.fake_github.world.sandbox import Sandbox
from bot.fake_github.world.shapes import node_id
from bot.fake_github.world.state import Review, stamp

KNOWN = "query($id:ID!){node(id:$id){...on PullRequestReview{lastEditedAt}}}"


def routes(sandbox: Sandbox) -> APIRouter:
    router = APIRouter(dependencies=[Depends(known_person)])

    @router.post(GRAPHQL)
    def query(sent: Sent) -> Response:
        asked = fields(sent)
        if "".join(str(asked.get("query")).split()) != "".join(KNOWN.split()):
            return Answer(_error("the sandbox does not know this query"))
        id = str(fields(asked.get("variables") or {}).get("id", ""))
        for issue in sandbox.world.issues.values():
            for review in issue.pull.reviews if issue.pull else ():
                if node_id("PullRequestReview", review.id) == id:
                    return Answer({"data": {"node": {"lastEditedAt": _last_edited(review)}}})
        return Answer(_error(f"Could not resolve to a node with the global id of '{id}'"))

    return router


def _last_edited(review: Review) -> str | None:
    return stamp(review.edited_at) if review.edited_at else None


def _error(message: str) -> dict[str, Any]:
    return {"data": {"node": None}, "errors": [{"type": "NOT_FOUND", "message": message}]}
