"""GraphQL, as far as the bot needs it: when a review was last edited, which REST does not say."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends

from bot.fake_github.rest.requests import Answer, Hub, Sent, known_person
from bot.fake_github.world.gate import GRAPHQL
from bot.fake_github.world.shapes import node_id, time

KNOWN = "query($id:ID!){node(id:$id){...on PullRequestReview{lastEditedAt}}}"

router = APIRouter(dependencies=[Depends(known_person)])


@router.post(GRAPHQL)
def query(hub: Hub, sent: Sent) -> Answer:
    if "".join(str(sent.get("query")).split()) != "".join(KNOWN.split()):
        return Answer(_error("the sandbox does not know this query"))
    variables = sent.get("variables")
    id = str(variables.get("id", "")) if isinstance(variables, dict) else ""
    for issue in hub.world.issues.values():
        for review in issue.pull.reviews if issue.pull else ():
            if node_id("PullRequestReview", review.id) == id:
                return Answer({"data": {"node": {"lastEditedAt": time(review.edited_at)}}})
    return Answer(_error(f"Could not resolve to a node with the global id of '{id}'"))


def _error(message: str) -> dict[str, Any]:
    return {"data": {"node": None}, "errors": [{"type": "NOT_FOUND", "message": message}]}
