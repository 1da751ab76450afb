"""REST operations on issues, comments, reactions and labels."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from bot.fake_github.rest.requests import (
    Answer,
    Lab,
    Person,
    Sent,
    SentJson,
    Since,
    in_order,
    listing,
    names,
    texts,
)
from bot.fake_github.world import shapes_thread as shapes
from bot.fake_github.world.actions import known
from bot.fake_github.world.errors import invalid
from bot.fake_github.world.state import Comment, Issue

router = APIRouter()


def _since(items: Iterable[Any], since: datetime | None) -> list[Any]:
    """Items changed at that second or later: `since` is inclusive."""
    return [each for each in list(items) if since is None or each.updated_at >= since]


# Comments


@router.get("/issues/comments")
def list_repository_comments(
    request: Request,
    lab: Lab,
    since: Since = None,
    sort: str | None = None,
    direction: str | None = None,
) -> Answer:
    found = _since(lab.world.comments.values(), since)
    default = "asc" if sort is None else "desc"
    return listing(request, in_order(found, sort, direction or default), shapes.comment)


@router.get("/issues/{number}/comments")
def list_comments(number: int, request: Request, lab: Lab, since: Since = None) -> Answer:
    return listing(request, _since(lab.issue(number).comments, since), shapes.comment)


@router.post("/issues/{number}/comments")
def create_comment(number: int, lab: Lab, who: Person, sent: Sent) -> Answer:
    made = lab.comment(who.login, number, **texts(sent, "body"))
    return Answer(shapes.comment(lab.world, made), 201)


@router.get("/issues/comments/{comment_id}")
def get_comment(comment_id: int, lab: Lab) -> Answer:
    return Answer(shapes.comment(lab.world, lab.issue_comment(comment_id)))


@router.patch("/issues/comments/{comment_id}")
def update_comment(comment_id: int, lab: Lab, who: Person, sent: Sent) -> Answer:
    changed = lab.edit_comment(who.login, comment_id, **texts(sent, "body"))
    return Answer(shapes.comment(lab.world, changed))


@router.delete("/issues/comments/{comment_id}")
def delete_comment(comment_id: int, lab: Lab, who: Person) -> Response:
    lab.delete_comment(who.login, comment_id)
    return Response(status_code=204)


# Issues


@router.get("/issues")
def list_issues(
    request: Request, lab: Lab, state: str = "open", creator: str | None = None, labels: str = "",
    since: Since = None, sort: str | None = None, direction: str = "desc",
) -> Answer:  # fmt: skip
    if state not in ("open", "closed", "all"):
        raise invalid("Issue", "state", "invalid")
    wanted = {name.strip().lower() for name in labels.split(",") if name}
    found = [
        each
        for each in _since(lab.world.issues.values(), since)
        if state in ("all", each.state)
        and (creator is None or creator.lower() == each.user.login.lower())
        and wanted <= {label.name.lower() for label in each.labels}
    ]
    return listing(request, in_order(found, sort, direction), shapes.issue)


@router.post("/issues")
def create_issue(lab: Lab, who: Person, sent: Sent) -> Answer:
    made = lab.open_issue(who.login, labels=names(sent), **texts(sent, "title", "body"))
    return Answer(shapes.issue(lab.world, made), 201)


@router.get("/issues/{number}")
def get_issue(number: int, lab: Lab) -> Answer:
    return Answer(shapes.issue(lab.world, lab.issue(number)))


@router.patch("/issues/{number}")
def update_issue(number: int, lab: Lab, who: Person, sent: Sent) -> Answer:
    given = texts(sent, "title", "body", "state", "state_reason")
    labels = names(sent) if "labels" in sent else None
    changed = lab.edit_issue(who.login, number, labels=labels, **given)
    return Answer(shapes.issue(lab.world, changed))


# Reactions


async def reacted_on(request: Request, lab: Lab) -> Comment | Issue:
    ids = request.path_params
    return lab.issue_comment(ids["comment_id"]) if "comment_id" in ids else lab.issue(ids["number"])


Reacted = Annotated[Comment | Issue, Depends(reacted_on)]


@router.get("/issues/comments/{comment_id:int}/reactions")
@router.get("/issues/{number:int}/reactions")
def list_reactions(request: Request, on: Reacted, content: str | None = None) -> Answer:
    found = [each for each in list(on.reactions) if content in (None, each.content)]
    return listing(request, found, shapes.reaction)


@router.post("/issues/comments/{comment_id:int}/reactions")
@router.post("/issues/{number:int}/reactions")
def create_reaction(on: Reacted, lab: Lab, who: Person, sent: Sent) -> Answer:
    made, new = lab.react(who.login, on, **texts(sent, "content"))
    return Answer(shapes.reaction(lab.world, made), 201 if new else 200)


@router.delete("/issues/comments/{comment_id:int}/reactions/{reaction_id}")
@router.delete("/issues/{number:int}/reactions/{reaction_id}")
def delete_reaction(on: Reacted, reaction_id: int, lab: Lab, who: Person) -> Response:
    lab.unreact(who.login, on, reaction_id)
    return Response(status_code=204)


# Labels


@router.get("/issues/{number}/labels")
def list_issue_labels(number: int, request: Request, lab: Lab) -> Answer:
    return listing(request, lab.issue(number).labels, shapes.label)


@router.put("/issues/{number}/labels")
def set_issue_labels(number: int, lab: Lab, who: Person, sent: SentJson) -> Answer:
    return Answer(shapes.labels(lab.world, lab.set_labels(who.login, number, names(sent))))


@router.post("/issues/{number}/labels")
def add_issue_labels(number: int, lab: Lab, who: Person, sent: SentJson) -> Answer:
    return Answer(shapes.labels(lab.world, lab.add_labels(who.login, number, names(sent))))


@router.delete("/issues/{number}/labels/{name:path}")
def remove_issue_label(number: int, name: str, lab: Lab, who: Person) -> Answer:
    return Answer(shapes.labels(lab.world, lab.remove_label(who.login, number, name)))


@router.get("/labels")
def list_labels(request: Request, lab: Lab) -> Answer:
    return listing(request, lab.world.labels.values(), shapes.label)


@router.post("/labels")
def create_label(lab: Lab, who: Person, sent: Sent) -> Answer:
    made = lab.create_label(who.login, **texts(sent, "name", "color", "description"))
    return Answer(shapes.label(lab.world, made), 201)


@router.get("/labels/{name:path}")
def get_label(name: str, lab: Lab) -> Answer:
    return Answer(shapes.label(lab.world, known(lab.world.labels, name.lower())))
