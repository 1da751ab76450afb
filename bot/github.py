"""GitHub's operations in the lab's own words: one repository, as the bot sees and changes it.

A question's answer is a dataclass of ours. A write marks fault points; after `Later` it is unknown
whether it took effect.
"""

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from bot import labfile
from bot.branches import Branches
from bot.facts import Button, Issue, Pull, Push, Review
from bot.lists import Found as Found
from bot.lists import Seen as Seen
from bot.lists import moment, person
from bot.repository import PAGE
from bot.wire import Forbidden as Forbidden
from bot.wire import Gone as Gone
from bot.wire import Later as Later
from bot.wire import Refused as Refused

EDITED = "query($id: ID!) { node(id: $id) { ... on PullRequestReview { lastEditedAt } } }"
MOST_COMPARED = 300  # files that GitHub lists of a comparison


@dataclass(frozen=True)
class Made:
    """Something of ours that is visible on GitHub."""

    id: int
    at: datetime


@dataclass(frozen=True)
class Changed:
    """A file that a pull request changes."""

    path: str
    removed: bool


@dataclass(frozen=True)
class Entry:
    """A file in a commit's tree."""

    path: str
    mode: str
    sha: str
    size: int


class GitHub(Branches):
    """One repository, as the lab's bot sees it."""

    id: int

    # ── Looking ──────────────────────────────────────────────────────────────────────────────

    def issue(self, number: int) -> Issue | None:
        """An issue, or None if it is gone."""
        found = self._thread(f"/issues/{number}")
        if found is None:
            return None
        return Issue(
            title=found["title"],
            body=found["body"] or "",
            author=person(found["user"]),
            open=found["state"] == "open",
        )

    def pull(self, number: int) -> Pull | None:
        """A pull request, or None if it is gone."""
        found = self._thread(f"/pulls/{number}")
        if found is None:
            return None
        self._know(found["base"]["repo"])
        return Pull(
            title=found["title"],
            author=person(found["user"]),
            head=found["head"]["sha"],
            base=found["base"]["sha"],
            open=found["state"] == "open",
            draft=bool(found["draft"]),
            base_ref=found["base"]["ref"],
            head_ref=found["head"]["ref"],
            head_repository=_id(found["head"]["repo"]),
            merged=bool(found["merged"]),
            locked=bool(found["locked"]),
            to_default=found["base"]["ref"] == found["base"]["repo"]["default_branch"],
        )

    def reviews(self, number: int) -> list[Review]:
        """The reviews of a pull request, oldest first; a dismissed one says so in its state."""
        return [
            Review(
                id=review["id"],
                author=person(review["user"]),
                state=review["state"].upper(),
                commit=review["commit_id"],
                at=moment(review["submitted_at"]),
                body=review["body"] or "",
                node=review["node_id"],
            )
            for review in self._pages(f"/pulls/{number}/reviews")
            if review.get("submitted_at")  # a pending one is seen by its author only
        ]

    def review(self, number: int, id: int) -> Review | None:
        """A review as it is now, or None if it is gone."""
        try:
            return next((review for review in self.reviews(number) if review.id == id), None)
        except Gone:
            return None

    def unedited(self, review: Review) -> bool:
        """Whether GitHub says that the review's text was never changed; only GraphQL tells."""
        try:
            answer = self._graphql(EDITED, {"id": review.node})
        except (Refused, Forbidden):
            return False
        node = (answer.get("data") or {}).get("node") or {}
        return "lastEditedAt" in node and node["lastEditedAt"] is None

    def committers(self, number: int) -> frozenset[int]:
        """Ids of who opened the pull request and of who wrote or committed its commits.

        GitHub knows an account by the e-mail address that a commit names, so this is what the
        commits say of themselves.
        """
        pull = self._get(f"/pulls/{number}")
        people = {_id(pull["user"])}
        basehead = f"{pull['base']['sha']}...{pull['head']['sha']}"
        page, seen = 1, 0
        while True:  # unlike the pull request's own list, which ends at 250
            found = self._get(f"/compare/{basehead}", per_page=str(PAGE), page=str(page))
            for commit in found["commits"]:
                people |= {_id(commit["author"]), _id(commit["committer"])}
            seen += len(found["commits"])
            if seen >= found["total_commits"] or not found["commits"]:
                return frozenset(id for id in people if id is not None)
            page += 1

    def pushes(self, number: int) -> list[Push]:
        """The forced pushes to a pull request's branch, oldest first, at GitHub's times.

        GitHub lists the other pushes by commit, with the dates that the commits claim. They are
        left out: a head that left a commit comes back to it by a forced push only.
        """
        return [
            Push(at=moment(event["created_at"]), after=event["commit_id"] or "")
            for event in self._pages(f"/issues/{number}/timeline")
            if event.get("event") in ("head_ref_force_pushed", "head_ref_restored")
        ]

    def policy_file(self) -> tuple[str, bytes | None]:
        """The default branch's head commit and who may do what there; None without that file."""
        branch = self._know(self._get(""))["default_branch"]
        sha = str(self._get(f"/branches/{quote(branch)}")["commit"]["sha"])
        try:
            found = self._get(f"/contents/{labfile.PATH}", ref=sha)
        except Gone:
            return sha, None
        if not isinstance(found, dict) or found["type"] != "file":
            return sha, None
        return sha, base64.b64decode(found["content"])

    def role(self, login: str) -> str:
        """`role_name` of a person in the repository at this moment; "none" for a stranger."""
        try:
            return str(self._get(f"/collaborators/{login}/permission")["role_name"])
        except Gone:
            return "none"

    def changed(self, base: str, head: str) -> list[Changed]:
        """The files that `head` changes since it left `base`. Raises Refused where they are more
        than GitHub lists, since nobody knows what the others are."""
        found = self._get(f"/compare/{base}...{head}")
        if len(found["files"]) >= MOST_COMPARED:
            raise Refused(413, f"it changes {MOST_COMPARED} files or more")
        return [Changed(file["filename"], file["status"] == "removed") for file in found["files"]]

    def tree(self, commit: str) -> list[Entry]:
        """Every file of a commit's tree."""
        found = self._get(f"/git/trees/{commit}", recursive="1")
        if found["truncated"]:
            raise Refused(413, "the repository's tree is too large to be listed at once")
        return [
            Entry(entry["path"], entry["mode"], entry["sha"], int(entry.get("size", 0)))
            for entry in found["tree"]
            if entry["type"] != "tree"
        ]

    def blob(self, sha: str) -> bytes:
        """The bytes of a blob."""
        return base64.b64decode(self._get(f"/git/blobs/{sha}")["content"])

    def file(self, path: str) -> bytes | None:
        """A file of the default branch, or None."""
        try:
            return base64.b64decode(self._get(f"/contents/{path}")["content"])
        except Gone:
            return None

    def labels(self, number: int) -> list[str]:
        """The names of an issue's labels."""
        return [label["name"] for label in self._pages(f"/issues/{number}/labels")]

    def my_comments(self, number: int, ending: str, login: str | None = None) -> list[Made]:
        """The comments of the bot's own, or of that `login`, on a thread that end with the marker
        `ending`, oldest first."""
        return [
            Made(comment["id"], moment(comment["created_at"]))
            for comment in self._pages(f"/issues/{number}/comments")
            if person(comment["user"]).login in (self.bot, login)
            and (comment["body"] or "").endswith(ending)
        ]

    def my_checks(self, commit: str, name: str, external_id: str) -> list[Made]:
        """The check runs on a commit that carry `external_id`, oldest first."""
        found = self._pages(
            f"/commits/{commit}/check-runs", inside="check_runs", filter="all", check_name=name
        )
        return sorted(
            (
                Made(check["id"], moment(check["started_at"]))
                for check in found
                if check["external_id"] == external_id
            ),
            key=lambda made: made.id,
        )

    # ── Writing ──────────────────────────────────────────────────────────────────────────────

    def create_comment(self, number: int, body: str) -> Made:
        """A new comment."""
        made = self._do("create_comment", "POST", f"/issues/{number}/comments", {"body": body})
        return Made(made["id"], moment(made["created_at"]))

    def edit_comment(self, comment: int, body: str) -> None:
        """Another text for one of the bot's comments."""
        self._do("edit_comment", "PATCH", f"/issues/comments/{comment}", {"body": body})

    def delete_comment(self, comment: int) -> None:
        """One of the bot's own comments goes."""
        self._do("delete_comment", "DELETE", f"/issues/comments/{comment}")

    def react(self, comment: int, content: str) -> None:
        """A reaction; GitHub keeps one of each."""
        self._do("react", "POST", f"/issues/comments/{comment}/reactions", {"content": content})

    def set_labels(self, number: int, names: list[str]) -> None:
        """Exactly these labels."""
        self._do("set_labels", "PUT", f"/issues/{number}/labels", {"labels": names})

    def create_check(
        self,
        name: str,
        commit: str,
        external_id: str,
        conclusion: str | None,
        output: dict[str, str],
        buttons: Sequence[Button] = (),
    ) -> Made:
        """A new check run on a commit."""
        state = {"conclusion": conclusion} if conclusion else {"status": "in_progress"}
        asked: dict[str, Any] = {"name": name, "head_sha": commit, "external_id": external_id}
        asked |= {"output": output} | ({"actions": _actions(buttons)} if buttons else {})
        made = self._do("create_check", "POST", "/check-runs", asked | state)
        return Made(made["id"], self.now())

    def update_check(
        self,
        check: int,
        conclusion: str | None,
        output: dict[str, str],
        buttons: Sequence[Button] = (),
    ) -> None:
        """Another look for a check run; these buttons and no others."""
        state = {"conclusion": conclusion} if conclusion else {"status": "in_progress"}
        asked = {"output": output, "actions": _actions(buttons)} | state
        self._do("update_check", "PATCH", f"/check-runs/{check}", asked)

    def conclude_check(self, check: int) -> None:
        """A check run that was posted twice ends as neutral; there is no deleting one."""
        words = {"title": "Posted twice", "summary": "The other check run of this name counts."}
        self.update_check(check, "neutral", words)

    def keep_picture(self, name: str, png: bytes, at: datetime) -> str:
        """Keep a PNG in a commit of its own, outside every branch; returns the commit's SHA.

        The commit has no parent and a fixed date, so the same picture is the same commit, and
        doing it twice does nothing.
        """
        content = {"content": base64.b64encode(png).decode(), "encoding": "base64"}
        blob = self._do("create_blob", "POST", "/git/blobs", content)["sha"]
        entry = {"path": name, "mode": "100644", "type": "blob", "sha": blob}
        tree = self._do("create_tree", "POST", "/git/trees", {"tree": [entry]})["sha"]
        who = {
            "name": "Regatta",
            "email": "regatta@users.noreply.github.com",
            "date": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        asked = {"message": name, "tree": tree, "parents": [], "author": who, "committer": who}
        commit = str(self._do("create_commit", "POST", "/git/commits", asked)["sha"])
        try:
            ref = {"ref": f"refs/regatta/{name.partition('.')[0]}", "sha": commit}
            self._do("create_ref", "POST", "/git/refs", ref)
        except Refused as error:
            if error.status != 422:  # 422: the reference exists
                raise
        return commit


def _actions(buttons: Sequence[Button]) -> list[dict[str, str]]:
    return [asdict(button) for button in buttons]


def _id(found: Any) -> int | None:
    """The id of a person or repository; None for one that is gone or unknown."""
    return found["id"] if found and "id" in found else None
