"""The sandbox's web pages, read side: front page, threads, issue and pull request forms.

`pages_write.py` handles their forms; `pages_files.py` has files, commits and pictures.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bot.fake_github.pages import markdown as pages_markdown
from bot.fake_github.world.errors import Refused, not_found
from bot.fake_github.world.forms import IssueForm, parse
from bot.fake_github.world.git import ZERO, signed_at
from bot.fake_github.world.sandbox import PERSONAS, Sandbox
from bot.fake_github.world.shapes_code import pull_changes
from bot.fake_github.world.state import REACTIONS, Issue, stamp
from bot.fake_github.world.timeline import timeline

HERE = Path(__file__).parent
TEMPLATES = ".github/ISSUE_TEMPLATE"
PULL_TEMPLATE = ".github/PULL_REQUEST_TEMPLATE.md"
SAFETY = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' http://127.0.0.1:* "
    "http://localhost:*; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


class Pages:
    """Templates, and the data that every page needs."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.world = sandbox.world
        self.root = f"/{self.world.full_name}"
        self._env = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._env.globals.update(
            root=self.root,
            repository=self.world.full_name,
            leaderboard=self.world.leaderboard_url,
            emoji=REACTIONS,
            address=self.address,
        )
        self._env.filters.update(markdown=self.markdown, stamp=stamp, signed_at=signed_at, ink=_ink)

    def show(self, request: Request, template: str, status: int = 200, **context: Any) -> Response:
        html = self.part(request, template, **context)
        return Response(html, status, SAFETY, "text/html; charset=utf-8")

    def part(self, request: Request, template: str, **context: Any) -> str:
        with self.world.lock:
            return self._env.get_template(template).render(
                now=self.world.clock.now(),
                personas=[self.sandbox.user(each.login) for each in PERSONAS],
                persona=request.cookies.get("persona", PERSONAS[0].login),
                **context,
            )

    def refusal(self, request: Request, refused: Refused) -> Response:
        if request.url.path.startswith("/_sandbox/"):
            return JSONResponse(refused.as_json(), refused.status)
        return self.show(request, "refused.html", refused.status, refused=refused)

    def markdown(self, text: str | None) -> Markup:
        return Markup(pages_markdown.render(text or "", self.root))

    def address(self, issue: Issue) -> str:
        return f"{self.root}/{'pull' if issue.pull else 'issues'}/{issue.number}"

    def thread(self, issue: Issue) -> dict[str, Any]:
        """The data of a thread's page and of its live part."""
        with self.world.lock:
            pull = issue.pull
            return {
                "issue": issue,
                "items": timeline(issue),
                "checks": self.sandbox.check_runs(pull.head_sha) if pull else [],
                "changes": pull_changes(self.world, issue) if pull else [],
                "labels": self.world.labels,
                "text_of": self._text_of,
                "subject": self._subject,
            }

    def _text_of(self, sha: str) -> str:
        return self.world.git.blob(sha).decode(errors="replace")

    def _subject(self, sha: str) -> str:
        return self.world.git.commit(sha).message.splitlines()[0]

    def forms(self) -> dict[str, IssueForm]:
        """The issue forms of the default branch, by file name."""
        entry = self.world.git.entry(self._head(), TEMPLATES)
        files = self.world.git.tree(entry.sha) if entry else []
        return {
            each.path: parse(self._text_of(each.sha))
            for each in files
            if each.path.endswith((".yml", ".yaml")) and not each.path.startswith("config.")
        }

    def new_pull(self) -> dict[str, str]:
        """The fields of the new pull request page, filled with a first experiment."""
        return {
            "branch": "my-experiment",
            "path": "experiments/my-experiment/experiment.yaml",
            "content": self.world.starter,
            "title": "",
            "body": self.default_file(PULL_TEMPLATE) or "",
        }

    def introduction(self, path: str) -> Markup:
        """The first paragraph of a file, without its title. Its links are relative to the file."""
        blocks = (block.strip() for block in (self.default_file(path) or "").split("\n\n"))
        first = next((block for block in blocks if block and block[0] not in "#<![`|"), "")
        branch = self.world.default_branch
        return Markup(pages_markdown.render(first, self.root, branch))

    def _head(self) -> str:
        return self.world.git.resolve(self.world.default_branch) or ZERO

    def default_file(self, path: str) -> str | None:
        content = self.world.git.file(self._head(), path)
        return None if content is None else content.decode(errors="replace")


def _ink(color: str) -> str:
    """Black or white, whichever is more readable on a label's colour."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (0, 2, 4))
    return "#1c2128" if red * 0.299 + green * 0.587 + blue * 0.114 > 150 else "#ffffff"


def routes(pages: Pages) -> APIRouter:
    sandbox, root = pages.sandbox, pages.root
    router = APIRouter()

    @router.get("/")
    def start() -> Response:
        return RedirectResponse(root)

    @router.get(root)
    @router.get(f"{root}/issues")
    @router.get(f"{root}/pulls")
    def front(request: Request) -> Response:
        threads = sorted(sandbox.world.issues.values(), key=lambda each: -each.number)
        return pages.show(
            request, "front.html",
            issues=[each for each in threads if not each.pull],
            pulls=[each for each in threads if each.pull],
            forms=pages.forms(),
            readme=pages.introduction("README.md"),
        )  # fmt: skip

    @router.get(f"{root}/issues/new")
    def new_issue(request: Request) -> Response:
        name = request.query_params.get("template", "")
        known = pages.forms()
        form = known.get(name)
        if name and form is None:
            raise not_found(f"there is no form {TEMPLATES}/{name}")
        if form:
            return pages.show(
                request, "issue_form.html", form=form, name=name, title=form.title, answers={},
                problems={},
            )  # fmt: skip
        return pages.show(request, "new_issue.html", forms=known)

    @router.get(f"{root}/compare")
    def new_pull(request: Request) -> Response:
        return pages.show(request, "new_pull.html", sent=pages.new_pull(), problem="")

    @router.get(f"{root}/issues/{{number}}")
    @router.get(f"{root}/pull/{{number}}")
    def thread(number: int, request: Request) -> Response:
        issue = sandbox.issue(number)
        if request.url.path != pages.address(issue):
            return RedirectResponse(pages.address(issue))
        return pages.show(request, "thread.html", **pages.thread(issue))

    @router.get(f"{root}/issues/{{number}}/live")
    def live(number: int, request: Request) -> Response:
        """The parts of a thread that change; the page's script requests them every 2 seconds."""
        html = pages.part(request, "live.html", **pages.thread(sandbox.issue(number)))
        etag = f'"{hashlib.sha256(html.encode()).hexdigest()}"'
        headers = {**SAFETY, "ETag": etag, "X-Now": stamp(sandbox.world.clock.now())}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(html, headers=headers, media_type="text/html; charset=utf-8")

    @router.get(f"{root}/issues/{{number}}/edit")
    def edit_issue(number: int, request: Request) -> Response:
        issue = sandbox.issue(number)
        return pages.show(request, "edit.html", issue=issue, comment=None)

    @router.get(f"{root}/comments/{{comment_id}}/edit")
    def edit_comment(comment_id: int, request: Request) -> Response:
        comment = sandbox.issue_comment(comment_id)
        issue = sandbox.issue(comment.number)
        return pages.show(request, "edit.html", issue=issue, comment=comment)

    @router.get(f"{root}/runs/{{run_id}}")
    def check_run(run_id: int, request: Request) -> Response:
        return pages.show(request, "check_run.html", run=sandbox.check_run(run_id))

    return router
