"""REST operations on pull requests, reviews and merges; and locks, timelines and forks."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from bot.fake_github.rest.requests import Answer, Person, Sent, fields, listing, text
from bot.fake_github.world import shapes, shapes_thread
from bot.fake_github.world import shapes_code as code
from bot.fake_github.world.errors import invalid
from bot.fake_github.world.sandbox import Sandbox
from bot.fake_github.world.state import Review


def routes(sandbox: Sandbox) -> APIRouter:
    router = APIRouter()
    for part in (_pulls, _reviews, _threads, _forks):
        router.include_router(part(sandbox))
    return router


def _pulls(sandbox: Sandbox) -> APIRouter:
    world = sandbox.world
    router = APIRouter()

    @router.get("/pulls")
    def list_pulls(request: Request) -> Response:
        asked = request.query_params
        state, base = asked.get("state", "open"), asked.get("base", "")
        head = asked.get("head", "")
        found = []
        for one in list(world.issues.values()):
            pull = one.pull
            if pull is None or state not in ("all", one.state):
                continue
            if head in ("", f"{pull.head_owner.login}:{pull.head}") and base in ("", pull.base):
                found.append(one)
        key = "updated_at" if asked.get("sort") == "updated" else "created_at"
        default = "asc" if asked.get("sort", "created") != "created" else "desc"
        backwards = asked.get("direction", default) == "desc"
        found.sort(key=lambda one: (getattr(one, key), one.id), reverse=backwards)
        return listing(request, found, lambda one: shapes_thread.pull_simple(world, one))

    @router.post("/pulls")
    def create_pull(sent: Sent, who: Person) -> Response:
        title, body, head, base = (
            text(sent, key, "PullRequest") for key in ("title", "body", "head", "base")
        )
        draft = fields(sent).get("draft") is True
        made = sandbox.open_pull(who.login, title or "", body, head or "", base, draft=draft)
        return Answer(shapes_thread.pull(world, made), status_code=201)

    @router.get("/pulls/{number}")
    def get_pull(number: int) -> Response:
        return Answer(shapes_thread.pull(world, sandbox.pull(number)))

    @router.patch("/pulls/{number}")
    def update_pull(number: int, sent: Sent, who: Person) -> Response:
        sandbox.pull(number)
        given = {key: text(sent, key, "PullRequest") for key in ("title", "body", "state")}
        base = text(sent, "base", "PullRequest")
        with sandbox.changing():
            if base is not None:
                sandbox.retarget(who.login, number, base)
            changed = sandbox.edit_issue(who.login, number, **given)
        return Answer(shapes_thread.pull(world, changed))

    @router.get("/pulls/{number}/files")
    def list_pull_files(number: int, request: Request) -> Response:
        one = sandbox.pull(number)
        assert one.pull is not None
        head, changes = one.pull.head_sha, code.pull_changes(world, one)
        return listing(request, changes, lambda change: code.diff_entry(world, head, change))

    @router.get("/pulls/{number}/commits")
    def list_pull_commits(number: int, request: Request) -> Response:
        pull = sandbox.pull(number).pull
        assert pull is not None
        shas = world.git.log(pull.base_sha, pull.head_sha)[:250]
        return listing(request, shas, lambda sha: code.commit(world, sha))

    @router.put("/pulls/{number}/merge")
    def merge_pull(number: int, sent: Sent, who: Person) -> Response:
        message, head = (text(sent, key, "PullRequest") for key in ("commit_message", "sha"))
        sha = sandbox.merge(who.login, number, message=message or "", head=head)
        told = {"sha": sha, "merged": True, "message": "Pull Request successfully merged"}
        return Answer(told)

    return router


def _reviews(sandbox: Sandbox) -> APIRouter:
    router = APIRouter()

    def shape(number: int, one: Review) -> dict[str, Any]:
        return shapes_thread.review(sandbox.world, sandbox.pull(number), one)

    @router.get("/pulls/{number}/reviews")
    def list_reviews(number: int, request: Request) -> Response:
        pull = sandbox.pull(number).pull
        reviews = list(pull.reviews) if pull else []
        return listing(request, reviews, lambda one: shape(number, one))

    @router.post("/pulls/{number}/reviews")
    def create_review(number: int, sent: Sent, who: Person) -> Response:
        event, body, commit = (
            text(sent, key, "PullRequestReview") for key in ("event", "body", "commit_id")
        )
        made = sandbox.submit_review(who.login, number, event or "", body or "", commit)
        return Answer(shape(number, made))

    @router.get("/pulls/{number}/reviews/{review_id}")
    def get_review(number: int, review_id: int) -> Response:
        return Answer(shape(number, sandbox.review(number, review_id)))

    @router.put("/pulls/{number}/reviews/{review_id}")
    def update_review(number: int, review_id: int, sent: Sent, who: Person) -> Response:
        body = text(sent, "body", "PullRequestReview") or ""
        return Answer(shape(number, sandbox.edit_review(who.login, number, review_id, body)))

    @router.put("/pulls/{number}/reviews/{review_id}/dismissals")
    def dismiss_review(number: int, review_id: int, sent: Sent, who: Person) -> Response:
        message = text(sent, "message", "PullRequestReview") or ""
        return Answer(shape(number, sandbox.dismiss_review(who.login, number, review_id, message)))

    return router


def _threads(sandbox: Sandbox) -> APIRouter:
    router = APIRouter()

    @router.get("/issues/{number}/timeline")
    def list_timeline(number: int, request: Request) -> Response:
        told = shapes_thread.timeline(sandbox.world, sandbox.issue(number))
        return listing(request, told, lambda each: each)

    @router.put("/issues/{number}/lock")
    def lock_issue(number: int, who: Person, sent: Sent = None) -> Response:
        reason = text(sent or {}, "lock_reason", "Issue")
        sandbox.lock(who.login, number, reason)
        return Response(status_code=204)

    @router.delete("/issues/{number}/lock")
    def unlock_issue(number: int, who: Person) -> Response:
        sandbox.unlock(who.login, number)
        return Response(status_code=204)

    return router


def _forks(sandbox: Sandbox) -> APIRouter:
    router = APIRouter()

    @router.post("/forks")
    def create_fork(who: Person, sent: Sent = None) -> Response:
        if fields(sent or {}).get("organization"):
            raise invalid("Fork", "organization", "invalid")
        return Answer(shapes.full_repository(sandbox.fork(who.login).world), status_code=202)

    return router
