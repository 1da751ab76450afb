"""Files, commits and pictures as the pages show them: raw bytes, blobs, diffs, avatars."""

from __future__ import annotations

import mimetypes

from fastapi import APIRouter, Request
from fastapi.responses import Response

from bot.fake_github.pages.views import SAFETY, Pages
from bot.fake_github.world.errors import not_found
from bot.fake_github.world.shapes_code import commit_changes

# A stranger's file must not become a page of this site: no scripts, nothing loaded.
RAW = SAFETY | {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
SHOWN_AS_THEY_ARE = ("image/", "audio/", "video/", "application/pdf", "application/zip")
COLORS = ("#0969da", "#bf3989", "#1a7f37", "#9a6700", "#8250df", "#bc4c00")


def routes(pages: Pages) -> APIRouter:
    world, root = pages.world, pages.root
    git = world.git
    router = APIRouter()

    def content(ref: str, path: str) -> tuple[str, bytes]:
        sha = git.resolve(ref)
        found = git.file(sha, path) if sha else None
        if sha is None or found is None:
            raise not_found(f"there is no file {path} at {ref}")
        return sha, found

    @router.get(f"{root}/raw/{{ref}}/{{path:path}}")
    def raw(ref: str, path: str) -> Response:
        _, found = content(ref, path)
        kind = mimetypes.guess_type(path)[0] or "text/plain"
        if not kind.startswith(SHOWN_AS_THEY_ARE):
            kind = "text/plain; charset=utf-8"
        return Response(found, headers=RAW, media_type=kind)

    @router.get(f"{root}/blob/{{ref}}/{{path:path}}")
    def blob(ref: str, path: str, request: Request) -> Response:
        sha, found = content(ref, path)
        kind = mimetypes.guess_type(path)[0] or ""
        text = None if kind.startswith("image/") else found.decode(errors="replace")
        return pages.show(
            request, "file.html", ref=ref, sha=sha, path=path, text=text, size=len(found)
        )

    @router.get(f"{root}/commit/{{ref}}")
    def commit(ref: str, request: Request) -> Response:
        sha = git.resolve(ref)
        if sha is None:
            raise not_found(f"there is no commit {ref}")
        one = git.commit(sha)
        changes = commit_changes(world, one)
        entries = [] if one.parents else git.tree(sha, recursive=True)
        files = [each for each in entries if each.type == "blob"]
        return pages.show(request, "commit.html", sha=sha, commit=one, changes=changes, files=files)

    @router.get("/_sandbox/avatars/{name}.svg")
    def avatar(name: str, request: Request) -> Response:
        bot = name.endswith("[bot]")
        color = "#0550ae" if bot else COLORS[sum(name.encode()) % len(COLORS)]
        svg = pages.part(request, "avatar.svg", color=color, bot=bot, initial=name[:1].upper())
        headers = {**RAW, "Cache-Control": "max-age=3600"}
        return Response(svg, headers=headers, media_type="image/svg+xml")

    return router
