"""REST operations on branches, commits, comparisons, files and check runs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from bot.fake_github.rest.requests import Answer, Person, Sent, fields, listing, number_asked, text
from bot.fake_github.world import shapes_code as shapes
from bot.fake_github.world.code import Code
from bot.fake_github.world.errors import not_found, unprocessable
from bot.fake_github.world.sandbox import Sandbox
from bot.fake_github.world.state import CheckRun

CHECK_TEXTS = (
    "name", "head_sha", "status", "conclusion", "external_id", "details_url", "started_at",
    "completed_at",
)  # fmt: skip


def routes(sandbox: Sandbox) -> APIRouter:
    router = APIRouter()
    for part in (_checks, commits):
        router.include_router(part(sandbox))
    return router


def _commit_named(sandbox: Code, name: str) -> str:
    sha = sandbox.world.git.resolve(name)
    if sha is None:
        raise not_found()
    return sha


def commits(sandbox: Code) -> APIRouter:
    world = sandbox.world
    router = APIRouter()

    @router.get("/commits/{ref:path}")
    def get_commit(ref: str) -> Response:
        sha = world.git.resolve(ref)
        if sha is None:
            raise unprocessable(f"No commit found for SHA: {ref}")
        return Answer(shapes.commit(world, sha, whole=True))

    @router.get("/branches/{branch:path}")
    def get_branch(branch: str) -> Response:
        sha = world.git.ref(f"refs/heads/{branch}")
        if sha is None:
            raise not_found("Branch not found")
        return Answer(shapes.branch(world, branch, sha))

    @router.get("/compare/{basehead:path}")
    def compare(basehead: str, request: Request) -> Response:
        base, dots, head = basehead.partition("...")
        if not dots:
            raise not_found()
        ours = f"{world.owner.login}:"
        old = _commit_named(sandbox, base.removeprefix(ours))
        new = _commit_named(sandbox, head.removeprefix(ours))
        merge_base = world.git.merge_base(old, new)
        if merge_base is None:
            raise not_found(f"No common ancestor between {base} and {head}.")
        per_page = number_asked(request, "per_page", 250)
        page = number_asked(request, "page", 1)
        part = slice((page - 1) * per_page, page * per_page)
        return Answer(shapes.comparison(world, old, new, merge_base, basehead, part))

    @router.get("/contents/{path:path}")
    def get_contents(path: str, request: Request) -> Response:
        ref = request.query_params.get("ref") or world.default_branch
        sha, path = _commit_named(sandbox, ref), path.strip("/")
        entry = world.git.entry(sha, path) if path else None
        if path and entry is None:
            raise not_found()
        if entry and entry.type == "blob":
            if "raw" in request.headers.get("accept", ""):
                media_type = "application/vnd.github.raw+json"
                return Response(world.git.blob(entry.sha), media_type=media_type)
            return Answer(shapes.content(world, entry, path, ref, whole=True))
        inside = world.git.tree(sha, path=path)
        under = f"{path}/" if path else ""
        items = [shapes.content(world, e, under + e.path, ref, whole=False) for e in inside]
        return Answer(items)

    return router


def _checks(sandbox: Sandbox) -> APIRouter:
    world = sandbox.world
    router = APIRouter()

    def shape(run: CheckRun) -> dict[str, Any]:
        return shapes.check_run(world, run)

    def given(sent: Any) -> dict[str, Any]:
        """The fields of a check run, their types checked."""
        found: dict[str, Any] = {key: text(sent, key, "CheckRun") for key in CHECK_TEXTS}
        found["output"] = fields(fields(sent).get("output") or {})
        found = {key: value for key, value in found.items() if value}
        return found | ({"actions": sent["actions"]} if "actions" in sent else {})

    @router.post("/check-runs")
    def create_check_run(sent: Sent, who: Person) -> Response:
        return Answer(shape(sandbox.create_check_run(who.login, **given(sent))), status_code=201)

    @router.get("/check-runs/{run_id}")
    def get_check_run(run_id: int) -> Response:
        return Answer(shape(sandbox.check_run(run_id)))

    @router.patch("/check-runs/{run_id}")
    def update_check_run(run_id: int, sent: Sent, who: Person) -> Response:
        return Answer(shape(sandbox.update_check_run(who.login, run_id, **given(sent))))

    @router.get("/commits/{ref:path}/check-runs")
    def list_check_runs(ref: str, request: Request) -> Response:
        sha = world.git.resolve(ref)
        if sha is None:
            raise unprocessable(f"No commit found for SHA: {ref}")
        asked = request.query_params
        runs = sandbox.check_runs(sha, every=asked.get("filter") == "all")
        name, status = asked.get("check_name"), asked.get("status")
        runs = [run for run in runs if name in (None, run.name) and status in (None, run.status)]
        return listing(request, runs, shape, inside="check_runs")

    return router
