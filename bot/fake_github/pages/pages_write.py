"""Handles the pages' forms: each does for the chosen persona what the REST API would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from bot.fake_github.pages.views import Pages
from bot.fake_github.world import forms
from bot.fake_github.world.errors import Refused, not_found
from bot.fake_github.world.state import Issue


class Sent:
    """A form's fields; texts keep the browser's line ends, as on GitHub."""

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self.values = values

    def __getitem__(self, name: str) -> str:
        return next(iter(self.values.get(name, ())), "")

    def unix(self, name: str) -> str:
        """A text with plain line ends, for files."""
        return self[name].replace("\r\n", "\n")


async def sent_form(request: Request) -> Sent:
    return Sent(parse_qs((await request.body()).decode(), keep_blank_values=True))


Form = Annotated[Sent, Depends(sent_form)]


def routes(pages: Pages) -> APIRouter:
    sandbox, root = pages.sandbox, pages.root
    router = APIRouter()

    def go_to(sent: Sent, issue: Issue, anchor: str = "") -> Response:
        answer = RedirectResponse(pages.address(issue) + anchor, status_code=303)
        answer.set_cookie("persona", sent["persona"], samesite="strict", httponly=True)
        return answer

    def persona(sent: Sent) -> str:
        """The persona that acts; never the bot."""
        if sandbox.user(sent["persona"]).type != "User":
            raise not_found()
        return sent["persona"]

    @router.post(f"{root}/issues/new")
    def open_issue(sent: Form, request: Request) -> Response:
        name = sent["template"]
        form = pages.forms().get(name) if name else None
        if form is None:
            made = sandbox.open_issue(persona(sent), sent["title"], sent["body"])
            return go_to(sent, made)
        missing = forms.problems(form, sent.values)
        if not sent["title"].strip():
            missing["title"] = "An issue needs a title."
        if missing:
            return pages.show(
                request, "issue_form.html", 422, form=form, name=name, title=sent["title"],
                answers=sent.values, problems=missing,
            )  # fmt: skip
        text = forms.body(form, sent.values)
        made = sandbox.open_issue(persona(sent), sent["title"], text, form.labels, by_form=True)
        return go_to(sent, made)

    @router.post(f"{root}/compare")
    def open_pull(sent: Form, request: Request) -> Response:
        login, branch = persona(sent), sent["branch"].strip()
        files = {sent["path"].strip(): sent.unix("content").encode()}
        message = f"Add {sent['path'].strip()}"
        user = sandbox.user(login)
        draft = bool(sent["draft"])
        try:
            if not sent["title"].strip():
                raise Refused(422, "a pull request needs a title")
            # As on GitHub for users who may not push; others choose.
            forked = bool(sent["fork"]) or not sandbox.may(user, "write")
            home = sandbox.fork(login) if forked else sandbox
            if home.world.git.ref(f"refs/heads/{branch}"):
                raise Refused(422, f"the branch {branch} exists already; choose another name")
            home.commit(login, branch, files, message)
            head = f"{home.world.owner.login}:{branch}"
            made = sandbox.open_pull(login, sent["title"], sent["body"], head, draft=draft)
            return go_to(sent, made)
        except Refused as refused:
            problem = str(refused)
            return pages.show(request, "new_pull.html", refused.status, sent=sent, problem=problem)

    @router.post(f"{root}/runs/{{run_id}}/press")
    def press(run_id: int, sent: Form) -> Response:
        sandbox.press(persona(sent), run_id, sent["identifier"])
        run = sandbox.check_run(run_id)
        for issue in sandbox.world.issues.values():
            if issue.pull and issue.pull.head_sha == run.head_sha:
                return go_to(sent, issue)
        return RedirectResponse(f"{root}/runs/{run_id}", status_code=303)

    @router.post(f"{root}/pull/{{number}}/{{form}}")
    def change_pull(number: int, form: str, sent: Form) -> Response:
        """Push, review, dismiss; change the base branch or draft state, merge, lock or unlock."""
        login, issue = persona(sent), sandbox.pull(number)
        match form, sent["what"]:
            case "push", _:
                path = sent["path"].strip()
                message = sent["message"].strip() or f"Change {path}"
                files = {path: sent.unix("content").encode()}
                sandbox.home(issue).commit(login, issue.as_pull.head, files, message)
            case "review", _:
                sandbox.submit_review(login, number, sent["event"], sent["body"])
            case "dismiss", _:
                review_id = int(sent["review"]) if sent["review"].isdigit() else 0
                sandbox.dismiss_review(login, number, review_id, sent["message"])
            case "change", "retarget":
                sandbox.retarget(login, number, sent["base"].strip())
            case "change", "draft" | "ready":
                sandbox.set_draft(login, number, sent["what"] == "draft")
            case "change", "merge":
                sandbox.merge(login, number)
            case "change", "lock":
                sandbox.lock(login, number)
            case "change", "unlock":
                sandbox.unlock(login, number)
            case _:
                raise not_found()
        return go_to(sent, issue)

    @router.post(f"{root}/issues/{{number}}/comment")
    def comment(number: int, sent: Form) -> Response:
        """Comment, and with the other button also close or reopen."""
        login, issue, anchor = persona(sent), sandbox.issue(number), ""
        state = sent["state"]
        if sent["body"].strip() or not state:
            made = sandbox.comment(login, number, sent["body"])
            anchor = f"#issuecomment-{made.id}"
        if state:
            sandbox.edit_issue(login, number, state=state)
        return go_to(sent, issue, anchor)

    @router.post(f"{root}/issues/{{number}}/edit")
    def edit_issue(number: int, sent: Form) -> Response:
        changed = {"title": sent["title"], "body": sent["body"]}
        return go_to(sent, sandbox.edit_issue(persona(sent), number, **changed))

    @router.post(f"{root}/comments/{{comment_id}}/edit")
    def edit_comment(comment_id: int, sent: Form) -> Response:
        issue = sandbox.issue(sandbox.issue_comment(comment_id).number)
        if sent["delete"]:
            sandbox.delete_comment(persona(sent), comment_id)
            return go_to(sent, issue)
        sandbox.edit_comment(persona(sent), comment_id, sent["body"])
        return go_to(sent, issue, f"#issuecomment-{comment_id}")

    return router
