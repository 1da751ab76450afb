"""Changes of code: commits, branches, pull requests.

Each method implements both a REST operation and a page's form.
"""

from __future__ import annotations

from collections.abc import Mapping

from pygit2 import Signature

from bot.fake_github.world import shapes_code
from bot.fake_github.world.errors import Refused, forbidden, invalid, not_found, unprocessable
from bot.fake_github.world.git import ZERO, signature
from bot.fake_github.world.state import Issue, Pull, User, World
from bot.fake_github.world.threads import Threads


class Code(Threads):
    # Commits and branches

    def signature(self, user: User) -> Signature:
        return signature(user.name, user.email, self.world.clock.now())

    def commit(
        self, login: str, branch: str, files: Mapping[str, bytes | None], message: str,
        base: str | None = None,
    ) -> str:  # fmt: skip
        """Commit files (None deletes one) on a branch, which is created from `base` if it is new.
        Returns the SHA."""
        with self.changing():
            user = self.user(login)
            self.need_push(user)
            ref = f"refs/heads/{branch}"
            if not self.world.git.valid_ref(ref):
                raise unprocessable(f"{branch!r} is not a valid branch name")
            before = self.world.git.ref(ref)
            parent = before or self.world.git.resolve(base or self.world.default_branch)
            if parent is None:
                raise unprocessable(f"there is no commit {base} to start from")
            by = self.signature(user)
            after = self.world.git.add_commit(branch, files, message, by, parent)
            self._pushed(user, ref, before, after)
            return after

    def need_push(self, user: User) -> None:
        if not self.may(user, "write"):
            raise forbidden(f"Permission to {self.world.full_name}.git denied to {user.login}.")

    def create_ref(self, login: str, ref: str, sha: str) -> str:
        with self.changing():
            user = self.user(login)
            self.need_push(user)
            if not self.world.git.valid_ref(ref) or ref.count("/") < 2:
                raise unprocessable("Reference name is not valid; it must start with 'refs/'.")
            self._need_object(ref, sha)
            if self.world.git.ref(ref):
                raise unprocessable("Reference already exists")
            self.world.git.set_ref(ref, sha)
            self._pushed(user, ref, None, sha)
            return sha

    def update_ref(self, login: str, ref: str, sha: str, *, force: bool = False) -> str:
        with self.changing():
            user = self.user(login)
            self.need_push(user)
            before = self.world.git.ref(ref)
            if before is None:
                raise unprocessable("Reference does not exist")
            self._need_object(ref, sha)
            if not force and self.world.git.merge_base(before, sha) != before:
                raise unprocessable("Update is not a fast forward")
            self.world.git.set_ref(ref, sha)
            if before != sha:
                self._pushed(user, ref, before, sha)
            return sha

    def _need_object(self, ref: str, sha: str) -> None:
        kind = self.world.git.kind(sha)
        if kind is None or (ref.startswith("refs/heads/") and kind != "commit"):
            raise unprocessable("Object does not exist")

    def _pushed(self, user: User, ref: str, before: str | None, after: str) -> None:
        """Send the webhook of a push, and move the open pull requests of that branch."""
        if self.world.history:
            self.world.history.note_push(ref, before)
        self.emit("push", user, **shapes_code.push(self.world, user, ref, before or ZERO, after))
        self.move_heads(user, self.world.repository_id, ref.removeprefix("refs/heads/"), after)

    def move_heads(self, user: User, repository: int, branch: str, after: str) -> None:
        """Give the open pull requests from this branch of this repository a new head."""
        for issue, pull in self.world.open_pulls():
            here = (pull.head_repository, pull.head) == (repository, branch)
            if not here or pull.head_sha == after:
                continue
            before, pull.head_sha = pull.head_sha, after
            issue.updated_at = self.world.clock.now()
            forced = self.world.git.merge_base(before, after) != before
            self._note(issue, "head_ref_force_pushed" if forced else "pushed", user, after)
            self._tell_issue("synchronize", user, issue, before=before, after=after)

    # Pull requests

    def open_pull(
        self, login: str, title: str = "", body: str | None = None, head: str = "",
        base: str | None = None, *, draft: bool = False,
    ) -> Issue:  # fmt: skip
        """Open a pull request from a branch here or, as `owner:branch`, from a fork's."""
        with self.changing():
            user = self.user(login)
            owner, _, branch = head.rpartition(":")
            home = self._head_repository(owner or self.world.owner.login)
            base = base or self.world.default_branch
            head_sha, base_sha = _tip(home, "head", branch), _tip(self.world, "base", base)
            self._need_no_other(home, branch, base)
            if not self.world.git.log(base_sha, head_sha):
                message = f"No commits between {base} and {branch}"
                raise invalid("PullRequest", "head", "custom", message)
            made = self._new_thread(user, title, body)
            made.pull = Pull(
                self.world.new_id(), branch, base, head_sha, base_sha, home.owner,
                home.repository_id, draft,
            )  # fmt: skip
            self._note(made, "pushed", user, head_sha)
            self._tell_issue("opened", user, made)
            return made

    def _head_repository(self, owner: str) -> World:
        for world in (self.world, *self.world.forks.values()):
            if world.owner.login.lower() == owner.lower():
                return world
        raise invalid("PullRequest", "head", "invalid")

    def _need_no_other(self, home: World, head: str, base: str) -> None:
        wanted = (home.repository_id, head, base)
        for _, pull in self.world.open_pulls():
            if (pull.head_repository, pull.head, pull.base) == wanted:
                message = f"A pull request already exists for {home.owner.login}:{head}."
                raise invalid("PullRequest", "head", "custom", message)

    def retarget(self, login: str, number: int, base: str) -> Issue:
        """Change the base branch; for the author and users who may write."""
        with self.changing() as now:
            user, issue = self.user(login), self.pull(number)
            pull = issue.as_pull
            self.need(user, "write", author=issue.user)
            sha = _tip(self.world, "base", base)
            if issue.state != "open":
                raise invalid("PullRequest", "base", "invalid")
            if base != pull.base:
                changes = {"base": {"ref": {"from": pull.base}, "sha": {"from": pull.base_sha}}}
                self._note(issue, "base_ref_changed", user, f"{pull.base} → {base}")
                pull.base, pull.base_sha, issue.updated_at = base, sha, now
                self._tell_issue("edited", user, issue, changes=changes)
            return issue

    def set_draft(self, login: str, number: int, draft: bool) -> Issue:
        """Make it a draft, or ready for review; for the author and users who may write."""
        with self.changing() as now:
            user, issue = self.user(login), self.pull(number)
            self.need(user, "write", author=issue.user)
            if draft != issue.as_pull.draft:
                issue.as_pull.draft, issue.updated_at = draft, now
                self._note(issue, "convert_to_draft" if draft else "ready_for_review", user)
                action = "converted_to_draft" if draft else "ready_for_review"
                self._tell_issue(action, user, issue)
            return issue

    def merge(
        self, login: str, number: int, *, commit_message: str = "", sha: str | None = None
    ) -> str:
        """Merge a pull request into its base branch. Returns the merge commit."""
        with self.changing() as now:
            user, issue = self.user(login), self.pull(number)
            pull, git = issue.as_pull, self.world.git
            self.need_push(user)
            if sha not in (None, pull.head_sha):
                raise Refused(409, "Head branch was modified. Review and try the merge again.")
            if issue.state != "open" or pull.draft:
                raise Refused(405, "Pull Request is not mergeable")
            ref = f"refs/heads/{pull.base}"
            before = git.ref(ref) or pull.base_sha
            tree = git.merged_tree(before, pull.head_sha)
            if tree is None:
                raise Refused(405, "Pull Request is not mergeable")
            by = self.signature(user)
            words = commit_message or f"Merge pull request #{number} from {pull.head}"
            made = git.write_commit(tree, [before, pull.head_sha], words, by, by)
            git.set_ref(ref, made)
            pull.merged_at, pull.merged_by, pull.merge_commit_sha = now, user, made
            self._note(issue, "merged", user, made)
            self._set_state(user, issue, "closed", None)
            self._pushed(user, ref, before, made)
            return made

    def pull(self, number: int) -> Issue:
        issue = self.issue(number)
        if issue.pull is None:
            raise not_found()
        return issue


def _tip(world: World, field: str, branch: str) -> str:
    sha = world.git.ref(f"refs/heads/{branch}")
    if sha is None:
        raise invalid("PullRequest", field, "invalid")
    return sha
