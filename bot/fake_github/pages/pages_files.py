"""Files, commits and pictures as the pages show them: raw bytes, blobs, diffs, avatars."""

from __future__ import annotations

import mimetypes
from html import escape

from fastapi import APIRouter, Request
from fastapi.responses import Response

from bot.fake_github.pages.views import SAFETY, Pages
from bot.fake_github.world.errors import not_found

# A file of a stranger's must not become a page of this site: no scripts, nothing loaded.
RAW = SAFETY | {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
SHOWN_AS_THEY_ARE = ("image/", "audio/", "video/", "application/pdf", "application/zip")
COLORS = ("#0969da", "#bf3989", "#1a7f37", "#9a6700", "#8250df", "#bc4c00")
BOAT = (
    '<path d="M19 8v21H7.5C13 24 17 17 19 8z" fill="#fff"/>'
    '<path d="M21.500 13c4 4 7 9.500 8.500 16h-8.500z" fill="#fff" opacity=".75"/>'
    '<path d="M6 31h28c-1.500 3-4 4.500-7 4.500H13c-3 0-5.500-1.500-7-4.500z" fill="#fff"/>'
)


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
        changes = git.diff(one.parents[0], sha) if one.parents else []
        entries = [] if one.parents else git.tree(sha, recursive=True)
        files = [each for each in entries if each.type == "blob"]
        return pages.show(request, "commit.html", commit=one, changes=changes, files=files)

    @router.get("/_sandbox/avatars/{name}.svg")
    def avatar(name: str) -> Response:
        bot = name.endswith("[bot]")
        color = "#0550ae" if bot else COLORS[sum(name.encode()) % len(COLORS)]
        initial = escape(name[:1].upper())
        inside = BOAT if bot else (
            '<text x="20" y="27" text-anchor="middle" font-size="20" font-weight="600" '
            f'fill="#fff" font-family="system-ui, sans-serif">{initial}</text>'
        )  # fmt: skip
        svg = (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 40">'
            f'<rect width="40" height="40" fill="{color}"/>{inside}</svg>'
        )
        headers = {**RAW, "Cache-Control": "max-age=3600"}
        return Response(svg, headers=headers, media_type="image/svg+xml")

    return router
