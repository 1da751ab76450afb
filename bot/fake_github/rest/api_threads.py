"""REST operations on issues, comments, reactions and labels."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from bot.fake_github.rest.requests import (
    Answer,
    Person,
    Sent,
    fields,
    listing,
    names,
    text,
    time_asked,
)
from bot.fake_github.world import shapes_thread as shapes
from bot.fake_github.world.errors import invalid
from bot.fake_github.world.sandbox import Sandbox
from bot.fake_github.world.state import Comment, Issue, Label, Reaction


def routes(sandbox: Sandbox) -> APIRouter:
    router = APIRouter()
    for part in (_comments, _issues, _reactions, _issue_labels, _repository_labels):
        router.include_router(part(sandbox))
    return router


def _sorted_as_asked(request: Request, items: list[Any], default: str) -> list[Any]:
    """By `sort` (created or updated) and `direction`, ties by id."""
    key = "updated_at" if request.query_params.get("sort") == "updated" else "created_at"
    backwards = request.query_params.get("direction", default) == "desc"
    return sorted(items, key=lambda each: (getattr(each, key), each.id), reverse=backwards)


def _since(items: list[Any], since: datetime | None) -> list[Any]:
    """What changed at that second or after it: `since` is inclusive."""
    return [each for each in items if since is None or each.updated_at >= since]


def _issues(sandbox: Sandbox) -> APIRouter:
    world = sandbox.world
    router = APIRouter()

    def shape(one: Issue) -> dict[str, Any]:
        return shapes.issue(world, one)

    @router.get("/issues")
    def list_issues(request: Request) -> Response:
        asked = request.query_params
        state, creator = asked.get("state", "open"), asked.get("creator", "").lower()
        if state not in ("open", "closed", "all"):
            raise invalid("Issue", "state", "invalid")
        wanted = {name.strip().lower() for name in asked.get("labels", "").split(",") if name}
        found = [
            each
            for each in list(world.issues.values())
            if state in ("all", each.state)
            and creator in ("", each.user.login.lower())
            and wanted <= {label.name.lower() for label in each.labels}
        ]
        found = _since(found, time_asked(request, "since"))
        return listing(request, _sorted_as_asked(request, found, "desc"), shape)

    @router.post("/issues")
    def create_issue(sent: Sent, who: Person) -> Response:
        title, body = text(sent, "title", "Issue"), text(sent, "body", "Issue")
        made = sandbox.open_issue(who.login, title or "", body, names(fields(sent)))
        return Answer(shape(made), status_code=201)

    @router.get("/issues/{number}")
    def get_issue(number: int) -> Response:
        return Answer(shape(sandbox.issue(number)))

    @router.patch("/issues/{number}")
    def update_issue(number: int, sent: Sent, who: Person) -> Response:
        keys = ("title", "body", "state", "state_reason")
        given = {key: text(sent, key, "Issue") for key in keys}
        labels = names(sent) if "labels" in fields(sent) else None
        return Answer(shape(sandbox.edit_issue(who.login, number, labels=labels, **given)))

    return router


def _comments(sandbox: Sandbox) -> APIRouter:
    world = sandbox.world
    router = APIRouter()

    def shape(one: Comment) -> dict[str, Any]:
        return shapes.comment(world, one)

    @router.get("/issues/comments")
    def list_repository_comments(request: Request) -> Response:
        found = _since(list(world.comments.values()), time_asked(request, "since"))
        default = "desc" if "sort" in request.query_params else "asc"
        return listing(request, _sorted_as_asked(request, found, default), shape)

    @router.get("/issues/{number}/comments")
    def list_comments(number: int, request: Request) -> Response:
        found = _since(list(sandbox.issue(number).comments), time_asked(request, "since"))
        return listing(request, found, shape)

    @router.post("/issues/{number}/comments")
    def create_comment(number: int, sent: Sent, who: Person) -> Response:
        body = text(sent, "body", "IssueComment") or ""
        return Answer(shape(sandbox.comment(who.login, number, body)), status_code=201)

    @router.get("/issues/comments/{comment_id}")
    def get_comment(comment_id: int) -> Response:
        return Answer(shape(sandbox.issue_comment(comment_id)))

    @router.patch("/issues/comments/{comment_id}")
    def update_comment(comment_id: int, sent: Sent, who: Person) -> Response:
        body = text(sent, "body", "IssueComment") or ""
        return Answer(shape(sandbox.edit_comment(who.login, comment_id, body)))

    @router.delete("/issues/comments/{comment_id}")
    def delete_comment(comment_id: int, who: Person) -> Response:
        sandbox.delete_comment(who.login, comment_id)
        return Response(status_code=204)

    return router


def _reactions(sandbox: Sandbox) -> APIRouter:
    router = APIRouter()

    def shape(one: Reaction) -> dict[str, Any]:
        return shapes.reaction(sandbox.world, one)

    def listed(request: Request, on: Comment | Issue) -> Response:
        content = request.query_params.get("content")
        found = [each for each in list(on.reactions) if content in (None, each.content)]
        return listing(request, found, shape)

    def created(on: Comment | Issue, sent: Any, login: str) -> Response:
        content = text(sent, "content", "Reaction") or ""
        reaction, new = sandbox.react(login, on, content)
        return Answer(shape(reaction), status_code=201 if new else 200)

    @router.get("/issues/comments/{comment_id}/reactions")
    def list_on_comment(comment_id: int, request: Request) -> Response:
        return listed(request, sandbox.issue_comment(comment_id))

    @router.post("/issues/comments/{comment_id}/reactions")
    def create_on_comment(comment_id: int, sent: Sent, who: Person) -> Response:
        return created(sandbox.issue_comment(comment_id), sent, who.login)

    @router.delete("/issues/comments/{comment_id}/reactions/{reaction_id}")
    def delete_on_comment(comment_id: int, reaction_id: int, who: Person) -> Response:
        sandbox.unreact(who.login, sandbox.issue_comment(comment_id), reaction_id)
        return Response(status_code=204)

    @router.get("/issues/{number}/reactions")
    def list_on_issue(number: int, request: Request) -> Response:
        return listed(request, sandbox.issue(number))

    @router.post("/issues/{number}/reactions")
    def create_on_issue(number: int, sent: Sent, who: Person) -> Response:
        return created(sandbox.issue(number), sent, who.login)

    return router


def _issue_labels(sandbox: Sandbox) -> APIRouter:
    router = APIRouter()

    def shape(one: Label) -> dict[str, Any]:
        return shapes.label(sandbox.world, one)

    @router.get("/issues/{number}/labels")
    def list_issue_labels(number: int, request: Request) -> Response:
        return listing(request, list(sandbox.issue(number).labels), shape)

    @router.put("/issues/{number}/labels")
    def set_issue_labels(number: int, sent: Sent, who: Person) -> Response:
        return Answer([shape(each) for each in sandbox.set_labels(who.login, number, names(sent))])

    @router.post("/issues/{number}/labels")
    def add_issue_labels(number: int, sent: Sent, who: Person) -> Response:
        return Answer([shape(each) for each in sandbox.add_labels(who.login, number, names(sent))])

    @router.delete("/issues/{number}/labels/{name:path}")
    def remove_issue_label(number: int, name: str, who: Person) -> Response:
        return Answer([shape(each) for each in sandbox.remove_label(who.login, number, name)])

    return router


def _repository_labels(sandbox: Sandbox) -> APIRouter:
    router = APIRouter()

    def shape(one: Label) -> dict[str, Any]:
        return shapes.label(sandbox.world, one)

    @router.get("/labels")
    def list_labels(request: Request) -> Response:
        return listing(request, list(sandbox.world.labels.values()), shape)

    @router.post("/labels")
    def create_label(sent: Sent, who: Person) -> Response:
        name, color, description = (
            text(sent, key, "Label") for key in ("name", "color", "description")
        )
        made = sandbox.create_label(who.login, name or "", color or "ededed", description)
        return Answer(shape(made), status_code=201)

    @router.get("/labels/{name:path}")
    def get_label(name: str) -> Response:
        return Answer(shape(sandbox.repo_label(name)))

    return router
