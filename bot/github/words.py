"""GitHub's operations for the lab: one repository, as the bot reads and changes it.

Answers are our own dataclasses. A write marks fault points; after `Later` it is unknown whether it
took effect.
"""

import base64
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from github.GithubException import GithubException, UnknownObjectException

from bot.github.answers import Gone, Refused, RefusedForNow, Unanswered
from bot.github.connection import PAGE
from bot.github.lists import person
from bot.github.trees import Trees
from bot.model.actions import Button
from bot.model.contributions import merged
from bot.model.policy_file import OLD_PATH, PATH
from bot.model.thread import Commit, Contributions, Issue, Pull, Push, Review
from runner.schema import lab_config

PLAIN_FILES = "100644", "100755"  # modes in a tree: no links, no submodules
EDITED = "query($id: ID!) { node(id: $id) { ... on PullRequestReview { lastEditedAt } } }"


@dataclass(frozen=True)
class Made:
    """A comment or check run of ours on GitHub."""

    id: int
    at: datetime


class GitHub(Trees):
    """One repository, as the lab's bot uses it."""

    # ── Looking ──────────────────────────────────────────────────────────────────────────────

    def issue(self, number: int) -> Issue | None:
        """An issue, or None if it does not exist."""
        try:
            found = self._there.get_issue(number).complete()
        except Gone:
            return None
        return Issue(
            title=found.title,
            body=found.body or "",
            author=person(found.user),
            open=found.state == "open",
            updated=found.updated_at,
        )

    def pull(self, number: int) -> Pull | None:
        """A pull request, or None if it does not exist."""
        try:
            found = self._there.get_pull(number).complete()
        except Gone:
            return None
        lab = self._line.know(found.base.repo)
        return Pull(
            head=found.head.sha,
            base=found.base.sha,
            open=found.state == "open",
            draft=bool(found.draft),
            base_ref=found.base.ref,
            head_repository=found.head.repo.id if found.head.repo else None,
            merged=bool(found.merged),
            to_default=found.base.ref == lab.default_branch,
            author=person(found.user),
            updated=found.updated_at,
        )

    def reviews(self, number: int) -> list[Review]:
        """The reviews of a pull request, oldest first; a dismissed one has that state."""
        return [
            Review(
                id=review.id,
                author=person(review.user),
                state=review.state.upper(),
                commit=review.commit_id,
                at=review.submitted_at,
                body=review.body or "",
                node=review.node_id,
            )
            for review in self._there.get_pull(number).get_reviews()
            if review.submitted_at  # only its author sees a pending one
        ]

    def review(self, number: int, id: int) -> Review | None:
        """A review as it is now, or None if it does not exist."""
        try:
            return next((review for review in self.reviews(number) if review.id == id), None)
        except Gone:
            return None

    def unedited(self, review: Review) -> bool:
        """Whether the review's text was never edited, by GitHub's GraphQL API (REST does not
        say)."""
        try:
            _, answer = self._line.graphql_query(EDITED, {"id": review.node})
        except (Refused, RefusedForNow, UnknownObjectException):
            return False
        except GithubException as error:  # a 200 with `errors`, such as a timeout of GitHub's
            raise Unanswered(f"GraphQL: {error.data}"[:300]) from None
        node = (answer.get("data") or {}).get("node") or {}
        return "lastEditedAt" in node and node["lastEditedAt"] is None

    def contributions(self, number: int) -> Contributions:
        """Who opened a pull request, and its commits with their accounts.

        GitHub identifies users by the e-mail address in a commit, so this is a claim of the
        commits; `bot.model.contributions` judges it.
        """
        pull = self._there.get_pull(number).complete()
        # By the base's name: what it got since the pull request was opened is nobody's part.
        compared = f"/repos/{self.name}/compare/{quote(pull.base.ref)}...{pull.head.sha}"
        commits: list[Commit] = []
        page = 1
        while True:  # unlike the pull request's own list, which ends at 250; this one is complete
            answer = self._line.get(compared, per_page=str(PAGE), page=str(page))
            commits += map(self._commit, answer["commits"])
            if len(commits) >= answer["total_commits"] or not answer["commits"]:
                return Contributions(pull.user.id if pull.user else 0, tuple(commits))
            page += 1

    def _commit(self, commit: Any) -> Commit:
        ids = [(commit[role] or {}).get("id") for role in ("author", "committer")]
        parents = tuple(parent["sha"] for parent in commit["parents"])
        return Commit(
            sha=commit["sha"],
            parents=parents,
            people=frozenset(id for id in ids if id),
            has_no_account=None in ids,
            is_plain_merge=len(parents) == 2 and self._is_plain_merge(commit["sha"], *parents),
        )

    def _is_plain_merge(self, merge: str, ours: str, theirs: str) -> bool:
        """Whether a merge has the tree that merging its parents gives, file by file. GitHub's
        *Update branch* makes such merges."""
        compared = self._line.get(f"/repos/{self.name}/compare/{ours}...{theirs}", per_page="1")
        base = compared["merge_base_commit"]["sha"]
        try:
            trees = [self._files(sha) for sha in (base, ours, theirs, merge)]
        except Refused:  # too large to be listed
            return False
        return merged(*trees[:3]) == trees[3]

    def _files(self, commit: str) -> dict[str, object]:
        return {entry.path: (entry.mode, entry.sha) for entry in self.tree(commit)}

    def pushes(self, number: int) -> list[Push]:
        """The forced pushes to a pull request's branch, oldest first, at GitHub's times.

        GitHub lists other pushes by commit, with dates that the commits claim. These are left out:
        a head can return to an earlier commit only by a forced push.
        """
        return [
            Push(event.created_at, event.commit_id or "", by=event.actor.id if event.actor else 0)
            for event in self._there.get_issue(number).get_timeline()
            if event.event in ("head_ref_force_pushed", "head_ref_restored")
        ]

    def default_head(self) -> str:
        """The newest commit of the default branch."""
        return str(self._there.get_branch(self._line.look().default_branch).commit.sha)

    def lab_files(self, commit: str) -> dict[str, bytes]:
        """The YAML files of the lab's folder at a commit, by path; if there is no policy, also
        the file at its old path. Raises Gone if GitHub does not show the commit."""
        listed = self.inside(commit, lab_config.FOLDER)
        if all(one.path != PATH for one in listed):
            listed += [x for x in self.inside(commit, ".github") if x.path == OLD_PATH]
        return {
            one.path: self.blob(one.sha)
            for one in listed
            if one.mode in PLAIN_FILES and lab_config.is_read(one.path)
        }

    def role(self, login: str) -> str:
        """`role_name` of a person in the repository now; "" if GitHub knows nobody of that name."""
        try:
            return self._there.get_collaborator_role_name(login)
        except Gone:
            return ""

    def blob(self, sha: str) -> bytes:
        """The bytes of a blob."""
        return base64.b64decode(self._there.get_git_blob(sha).content)

    def file(self, path: str) -> bytes | None:
        """A file of the default branch, or None."""
        found = self._content(path)
        return base64.b64decode(found.content) if found else None

    def my_comments(self, number: int, ending: str, login: str | None = None) -> list[Made]:
        """The comments of the bot, or of that `login`, on a thread that end with the marker
        `ending`, oldest first."""
        return [
            Made(comment.id, comment.created_at)
            for comment in self._there.get_issue(number).get_comments()
            if person(comment.user).login in (self.bot, login)
            and (comment.body or "").endswith(ending)
        ]

    def my_checks(self, commit: str, name: str, external_id: str) -> list[Made]:
        """The check runs on a commit with this `external_id`, oldest first."""
        found = self._there.get_commit(commit).get_check_runs(check_name=name, filter="all")
        made = [Made(run.id, run.started_at) for run in found if run.external_id == external_id]
        return sorted(made, key=lambda each: each.id)

    # ── Writing ──────────────────────────────────────────────────────────────────────────────

    def create_comment(self, number: int, body: str) -> Made:
        """Post a comment."""
        made = self._write("create_comment", "POST", f"/issues/{number}/comments", {"body": body})
        return Made(made["id"], datetime.fromisoformat(made["created_at"]))

    def edit_comment(self, comment: int, body: str) -> None:
        """Change the text of one of the bot's comments."""
        self._write("edit_comment", "PATCH", f"/issues/comments/{comment}", {"body": body})

    def delete_comment(self, comment: int) -> None:
        """Delete one of the bot's comments."""
        self._write("delete_comment", "DELETE", f"/issues/comments/{comment}")

    def react(self, comment: int, content: str) -> None:
        """Add a reaction; GitHub keeps one of each kind."""
        path = f"/issues/comments/{comment}/reactions"
        self._write("react", "POST", path, {"content": content})

    def add_label(self, number: int, name: str) -> list[str]:
        """Add a label; the others stay. Returns the names of all that the issue has now."""
        path = f"/issues/{number}/labels"
        return [one["name"] for one in self._write("add_label", "POST", path, {"labels": [name]})]

    def remove_label(self, number: int, name: str) -> None:
        """Take a label away, unless somebody else has done so."""
        with suppress(Gone):
            self._write("remove_label", "DELETE", f"/issues/{number}/labels/{quote(name)}")

    def create_check(
        self,
        name: str,
        commit: str,
        external_id: str,
        conclusion: str | None,
        output: dict[str, Any],
        buttons: Sequence[Button] = (),
        url: str | None = None,
    ) -> Made:
        """Create a check run on a commit; `url` is of the page with all details."""
        about = {"name": name, "head_sha": commit, "external_id": external_id}
        about |= {"details_url": url} if url else {}
        about |= _looks(conclusion, output, buttons or None)
        made = self._write("create_check", "POST", "/check-runs", about)
        return Made(made["id"], self.now())

    def update_check(
        self,
        check: int,
        conclusion: str | None,
        output: dict[str, Any],
        buttons: Sequence[Button] = (),
        url: str | None = None,
    ) -> None:
        """Update a check run; these buttons replace the others. Without `url` the address stays."""
        about = {"details_url": url} if url else {}
        about |= _looks(conclusion, output, buttons)
        self._write("update_check", "PATCH", f"/check-runs/{check}", about)

    def conclude_check(self, check: int) -> None:
        """End a duplicate check run as neutral, because check runs cannot be deleted."""
        words = {"title": "Posted twice", "summary": "The other check run of this name counts."}
        self.update_check(check, "neutral", words)

    def keep_picture(self, execution: str, png: bytes, at: datetime) -> str:
        """Keep a PNG in a commit of its own, outside every branch. Returns the commit's SHA.

        The commit has no parent and a fixed date, so the same picture is the same commit, and
        repeating the call does nothing.
        """
        content = {"content": base64.b64encode(png).decode(), "encoding": "base64"}
        blob = self._object("create_blob", "/git/blobs", content)
        name, date = f"{execution}.png", at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        files = [{"path": name, "mode": "100644", "type": "blob", "sha": blob}]
        tree = self._object("create_tree", "/git/trees", {"tree": files})
        who = {"name": "Regatta", "email": "regatta@users.noreply.github.com", "date": date}
        asked = {"message": name, "tree": tree, "parents": [], "author": who, "committer": who}
        commit = self._object("create_commit", "/git/commits", asked)
        try:
            self._create_ref(f"refs/regatta/{execution}", commit)
        except Refused as error:
            if error.status != 422:  # 422: the reference exists
                raise
        return commit


def _looks(
    conclusion: str | None, output: dict[str, Any], buttons: Sequence[Button] | None
) -> dict[str, Any]:
    """The fields of a check run; with `buttons` None, GitHub's stay."""
    state = {"conclusion": conclusion} if conclusion else {"status": "in_progress"}
    actions = {} if buttons is None else {"actions": [asdict(button) for button in buttons]}
    return {"output": output} | actions | state
