"""REST operations on git's own objects: commits, trees, blobs and refs."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from bot.fake_github.rest.requests import Answer, Person, Sent, fields, text
from bot.fake_github.world import shapes_code as shapes
from bot.fake_github.world.code import Code
from bot.fake_github.world.errors import invalid, not_found, unprocessable
from bot.fake_github.world.git import GitRefusal, Signature
from bot.fake_github.world.shapes import repo_api
from bot.fake_github.world.state import User, moment


def routes(sandbox: Code) -> APIRouter:
    router = APIRouter()
    for part in (_reading_objects, _writing_objects, _refs):
        router.include_router(part(sandbox))
    return router


def _reading_objects(sandbox: Code) -> APIRouter:
    world = sandbox.world
    router = APIRouter()

    def need(sha: str, kind: str) -> str:
        if world.git.kind(sha) != kind:
            raise not_found()
        return sha

    @router.get("/git/commits/{sha}")
    def get_git_commit(sha: str) -> Response:
        return Answer(shapes.git_commit(world, need(sha, "commit")))

    @router.get("/git/blobs/{sha}")
    def get_blob(sha: str) -> Response:
        return Answer(shapes.git_blob(world, need(sha, "blob")))

    @router.get("/git/trees/{name:path}")
    def get_tree(name: str, request: Request) -> Response:
        """Of a tree's SHA, a commit's, or a branch; `recursive` with any value goes all the way."""
        sha = name
        if world.git.kind(name) != "tree":
            commit = world.git.resolve(name)
            if commit is None:
                raise not_found()
            sha = world.git.commit(commit).tree
        entries = world.git.tree(sha, recursive="recursive" in request.query_params)
        return Answer(shapes.git_tree(world, sha, entries))

    return router


def _writing_objects(sandbox: Code) -> APIRouter:
    world = sandbox.world
    git = world.git
    router = APIRouter()

    @router.post("/git/blobs")
    def create_blob(sent: Sent, who: Person) -> Response:
        sandbox.need_push(who)
        content = text(sent, "content", "Blob") or ""
        try:
            raw = content.encode()
            if text(sent, "encoding", "Blob", "utf-8") == "base64":
                raw = base64.b64decode(content)
        except (binascii.Error, ValueError):
            raise unprocessable("content is not valid Base64") from None
        with sandbox.changing():
            sha = git.write_blob(raw)
        url = f"{repo_api(world)}/git/blobs/{sha}"
        return Answer({"url": url, "sha": sha}, status_code=201)

    @router.post("/git/trees")
    def create_tree(sent: Sent, who: Person) -> Response:
        sandbox.need_push(who)
        listed, base = fields(sent).get("tree"), text(sent, "base_tree", "Tree")
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise unprocessable("Invalid tree info")
        if base and git.kind(base) not in ("tree", "commit"):
            raise unprocessable("base_tree is not a valid tree oid")
        with sandbox.changing():
            entries = []
            for each in listed:
                sha = each.get("sha")
                if "content" in each:
                    sha = git.write_blob(str(each["content"]).encode())
                if sha is not None and git.kind(sha) is None:
                    raise unprocessable(f"tree.sha {sha} does not exist")
                entries.append((str(each.get("path", "")), str(each.get("mode", "100644")), sha))
            try:
                made = git.write_tree(base, entries)
            except GitRefusal as refusal:
                raise unprocessable(str(refusal)) from None
        return Answer(shapes.git_tree(world, made, git.tree(made)), status_code=201)

    @router.post("/git/commits")
    def create_git_commit(sent: Sent, who: Person) -> Response:
        sandbox.need_push(who)
        tree, parents = text(sent, "tree", "Commit") or "", fields(sent).get("parents", [])
        if git.kind(tree) != "tree":
            raise unprocessable("Tree SHA does not exist")
        if not all(isinstance(sha, str) and git.kind(sha) == "commit" for sha in parents):
            raise unprocessable("Parent SHA does not exist or is not a commit object")
        author = _signature(sandbox, who, fields(sent).get("author"))
        committer = _signature(sandbox, who, fields(sent).get("committer"), author)
        with sandbox.changing():
            message = text(sent, "message", "Commit") or ""
            sha = git.write_commit(tree, parents, message, author, committer)
        return Answer(shapes.git_commit(world, sha), status_code=201)

    return router


def _signature(sandbox: Code, who: User, given: Any, default: Signature | None = None) -> Signature:
    """Who wrote a commit and when: as given, so that the same bytes get the same SHA."""
    default = default or sandbox.signature(who)
    if not given:
        return default
    try:
        date = moment(given["date"]) if given.get("date") else default.date
        return Signature(str(given["name"]), str(given["email"]), date)
    except (KeyError, ValueError, TypeError, AttributeError):
        raise invalid("Commit", "author", "invalid") from None


def _refs(sandbox: Code) -> APIRouter:
    world = sandbox.world
    router = APIRouter()

    def get_ref(ref: str) -> Response:
        sha = world.git.ref(f"refs/{ref}")
        if sha is None:
            raise not_found()
        return Answer(shapes.git_ref(world, f"refs/{ref}", sha))

    router.get("/git/ref/{ref:path}")(get_ref)
    router.get("/git/refs/{ref:path}")(get_ref)  # a ref's own `url`

    @router.post("/git/refs")
    def create_ref(sent: Sent, who: Person) -> Response:
        ref, sha = text(sent, "ref", "Reference") or "", text(sent, "sha", "Reference") or ""
        sandbox.create_ref(who.login, ref, sha)
        return Answer(shapes.git_ref(world, ref, sha), status_code=201)

    @router.patch("/git/refs/{ref:path}")
    def update_ref(ref: str, sent: Sent, who: Person) -> Response:
        sha, force = text(sent, "sha", "Reference") or "", fields(sent).get("force") is True
        sandbox.update_ref(who.login, f"refs/{ref}", sha, force=force)
        return Answer(shapes.git_ref(world, f"refs/{ref}", sha))

    return router
