"""REST operations on git's own objects: commits, trees, blobs and refs."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from fastapi import APIRouter, Depends, Request
from pygit2 import Signature

from bot.fake_github.rest.requests import Answer, Home, Person, Sent, texts
from bot.fake_github.world import shapes_code as shapes
from bot.fake_github.world.code import Code
from bot.fake_github.world.errors import invalid, not_found, unprocessable
from bot.fake_github.world.git import signature, signed_at
from bot.fake_github.world.shapes import repo_api
from bot.fake_github.world.state import User, World, moment

router = APIRouter()


async def needs_push(home: Home, who: Person) -> None:
    home.need_push(who)


PUSHING = [Depends(needs_push)]


def _object(world: World, sha: str, kind: str) -> str:
    if world.git.kind(sha) != kind:
        raise not_found()
    return sha


# Commits


@router.get("/git/commits/{sha}")
def get_git_commit(sha: str, home: Home) -> Answer:
    return Answer(shapes.git_commit(home.world, _object(home.world, sha, "commit")))


@router.post("/git/commits", dependencies=PUSHING)
def create_git_commit(home: Home, who: Person, sent: Sent) -> Answer:
    git, given, parents = home.world.git, texts(sent, "tree", "message"), sent.get("parents", [])
    tree = given.get("tree", "")
    if git.kind(tree) != "tree":
        raise unprocessable("Tree SHA does not exist")
    if not all(isinstance(sha, str) and git.kind(sha) == "commit" for sha in parents):
        raise unprocessable("Parent SHA does not exist or is not a commit object")
    author = _signature(home, who, sent.get("author"))
    committer = _signature(home, who, sent.get("committer"), author)
    with home.changing():
        sha = git.write_commit(tree, parents, given.get("message", ""), author, committer)
    return Answer(shapes.git_commit(home.world, sha), 201)


def _signature(home: Code, who: User, given: Any, default: Signature | None = None) -> Signature:
    """Author and time of a commit: as given, so that the same bytes get the same SHA."""
    default = default or home.signature(who)
    if not given:
        return default
    try:
        date = moment(given["date"]) if given.get("date") else signed_at(default)
        return signature(str(given["name"]), str(given["email"]), date)
    except (KeyError, ValueError, TypeError, AttributeError):
        raise invalid("Commit", "author", "invalid") from None


# Blobs and trees


@router.get("/git/blobs/{sha}")
def get_blob(sha: str, home: Home) -> Answer:
    return Answer(shapes.git_blob(home.world, _object(home.world, sha, "blob")))


@router.post("/git/blobs", dependencies=PUSHING)
def create_blob(home: Home, sent: Sent) -> Answer:
    given = texts(sent, "content", "encoding")
    raw = given.get("content", "").encode()
    try:
        raw = base64.b64decode(raw) if given.get("encoding") == "base64" else raw
    except binascii.Error:
        raise unprocessable("content is not valid Base64") from None
    with home.changing():
        sha = home.world.git.write_blob(raw)
    return Answer({"url": f"{repo_api(home.world)}/git/blobs/{sha}", "sha": sha}, 201)


@router.get("/git/trees/{name:path}")
def get_tree(name: str, request: Request, home: Home) -> Answer:
    """The tree of a tree's or commit's SHA, or of a branch; any value of `recursive` means true."""
    git, sha = home.world.git, name
    if git.kind(name) != "tree":
        commit = git.resolve(name)
        if commit is None:
            raise not_found()
        sha = str(git.commit(commit).tree_id)
    entries = git.tree(sha, recursive="recursive" in request.query_params)
    return Answer(shapes.git_tree(home.world, sha, entries))


@router.post("/git/trees", dependencies=PUSHING)
def create_tree(home: Home, sent: Sent) -> Answer:
    git, listed, base = home.world.git, sent.get("tree"), texts(sent, "base_tree").get("base_tree")
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise unprocessable("Invalid tree info")
    if base and git.kind(base) not in ("tree", "commit"):
        raise unprocessable("base_tree is not a valid tree oid")
    with home.changing():
        entries = []
        for each in listed:
            sha = each.get("sha")
            if "content" in each:
                sha = git.write_blob(str(each["content"]).encode())
            if sha is not None and git.kind(sha) is None:
                raise unprocessable(f"tree.sha {sha} does not exist")
            entries.append((str(each.get("path", "")), str(each.get("mode", "100644")), sha))
        made = git.write_tree(base, entries)
    return Answer(shapes.git_tree(home.world, made, git.tree(made)), 201)


# Refs


@router.get("/git/ref/{ref:path}")
@router.get("/git/refs/{ref:path}")  # a ref's own `url`
def get_ref(ref: str, home: Home) -> Answer:
    sha = home.world.git.ref(f"refs/{ref}")
    if sha is None:
        raise not_found()
    return Answer(shapes.git_ref(home.world, f"refs/{ref}", sha))


@router.post("/git/refs")
def create_ref(home: Home, who: Person, sent: Sent) -> Answer:
    given = {"ref": "", "sha": ""} | texts(sent, "ref", "sha")
    home.create_ref(who.login, **given)
    return Answer(shapes.git_ref(home.world, **given), 201)


@router.patch("/git/refs/{ref:path}")
def update_ref(ref: str, home: Home, who: Person, sent: Sent) -> Answer:
    sha = texts(sent, "sha").get("sha", "")
    home.update_ref(who.login, f"refs/{ref}", sha, force=sent.get("force") is True)
    return Answer(shapes.git_ref(home.world, f"refs/{ref}", sha))
