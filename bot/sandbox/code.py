"""What people and the bot do to code: commits, branches, pull requests, check runs.

Each method is the one implementation behind a REST operation and a page's form alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.sandbox import shapes_code
from bot.sandbox.errors import forbidden, invalid, not_found, unprocessable
from bot.sandbox.git import ZERO, GitRefusal, Signature
from bot.sandbox.state import CheckRun, Issue, Pull, User, moment
from bot.sandbox.threads import Threads

STATUSES = ("queued", "in_progress", "completed")
CONCLUSIONS = (
    "action_required", "cancelled", "failure", "neutral", "success", "skipped", "stale",
    "timed_out",
)  # fmt: skip
LONGEST_OUTPUT = 65_535


class Code(Threads):
    # Commits and branches

    def signature(self, user: User) -> Signature:
        return Signature(user.name, user.email, self.world.clock.now())

    def commit(
        self, login: str, branch: str, files: Mapping[str, bytes | None], message: str,
        base: str | None = None,
    ) -> str:  # fmt: skip
        """Commit files (None deletes one) on a branch, made from `base` if new; returns the SHA."""
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
            try:
                after = self.world.git.add_commit(
                    branch, files, message, self.signature(user), parent
                )
            except GitRefusal as refusal:
                raise unprocessable(str(refusal)) from None
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
        """Tell of a push, and move the open pull requests of that branch."""
        self.emit("push", user, **shapes_code.push(self.world, user, ref, before or ZERO, after))
        branch = ref.removeprefix("refs/heads/")
        for issue in list(self.world.issues.values()):
            pull = issue.pull
            if pull and issue.state == "open" and pull.head == branch and pull.head_sha != after:
                now = self.world.clock.now()
                moved = {"before": pull.head_sha, "after": after}
                pull.head_sha, issue.updated_at = after, now
                self._note(issue, "pushed", user, after)
                self._tell_issue("synchronize", user, issue, **moved)

    # Pull requests

    def open_pull(
        self, login: str, title: str, body: str | None, branch: str, base: str | None = None
    ) -> Issue:
        with self.changing():
            user = self.user(login)
            head = branch.removeprefix(f"{self.world.owner.login}:")
            base = base or self.world.default_branch
            shas = []
            for field, name in (("head", head), ("base", base)):
                sha = self.world.git.ref(f"refs/heads/{name}")
                if sha is None:
                    raise invalid("PullRequest", field, "invalid")
                shas.append(sha)
            for issue in self.world.issues.values():
                pull = issue.pull
                if pull and issue.state == "open" and (pull.head, pull.base) == (head, base):
                    message = f"A pull request already exists for {self.world.owner.login}:{head}."
                    raise invalid("PullRequest", "head", "custom", message)
            if not self.world.git.log(shas[1], shas[0]):
                message = f"No commits between {base} and {head}"
                raise invalid("PullRequest", "head", "custom", message)
            made = self._new_thread(user, title, body)
            made.pull = Pull(self.world.new_id(), head, base, shas[0], shas[1])
            self._note(made, "pushed", user, shas[0])
            self._tell_issue("opened", user, made)
            return made

    def pull(self, number: int) -> Issue:
        issue = self.issue(number)
        if issue.pull is None:
            raise not_found()
        return issue

    # Check runs

    def create_check_run(self, login: str, **given: Any) -> CheckRun:
        with self.changing() as now:
            self._need_checks(login)
            name, head_sha = given.get("name") or "", given.get("head_sha") or ""
            if not name:
                raise invalid("CheckRun", "name", "missing_field")
            if self.world.git.kind(head_sha) != "commit":
                raise unprocessable(f"No commit found for SHA: {head_sha}")
            run = CheckRun(self.world.new_id(), name, head_sha, now, started_at=now)
            self._fill(run, given)
            self.world.checks[run.id] = run
            return run

    def update_check_run(self, login: str, run_id: int, **given: Any) -> CheckRun:
        with self.changing():
            self._need_checks(login)
            run = self.check_run(run_id)
            self._fill(run, given)
            return run

    def check_run(self, run_id: int) -> CheckRun:
        try:
            return self.world.checks[run_id]
        except KeyError:
            raise not_found() from None

    def check_runs(self, sha: str, *, every: bool = False) -> list[CheckRun]:
        """The check runs of a commit, newest first; of each name the newest, or every one."""
        with self.world.lock:
            runs = [run for run in self.world.checks.values() if run.head_sha == sha]
        runs.sort(key=lambda run: run.id, reverse=True)
        if every:
            return runs
        newest = {run.name: run for run in reversed(runs)}
        return [run for run in runs if newest[run.name] is run]

    def _need_checks(self, login: str) -> None:
        if not self.is_app(self.user(login)):
            raise forbidden("Resource not accessible by personal access token")

    def _fill(self, run: CheckRun, given: Mapping[str, Any]) -> None:
        """Check everything, then change the run: a refused request changes nothing."""
        status, conclusion = given.get("status"), given.get("conclusion")
        if status is not None and status not in STATUSES:
            raise invalid("CheckRun", "status", "invalid")
        if conclusion is not None and conclusion not in CONCLUSIONS:
            raise invalid("CheckRun", "conclusion", "invalid")
        if status == "completed" and not (conclusion or run.conclusion):
            raise invalid("CheckRun", "conclusion", "missing_field")
        output = given.get("output") or {}
        for key in ("title", "summary") if output else ():
            if not output.get(key):
                raise invalid("CheckRun", f"output.{key}", "missing_field")
        for key in ("summary", "text"):
            if len(output.get(key) or "") > LONGEST_OUTPUT:
                raise invalid("CheckRun", f"output.{key}", "too_long")
        try:
            times = {k: moment(given[k]) for k in ("started_at", "completed_at") if given.get(k)}
        except ValueError:
            raise invalid("CheckRun", "started_at", "invalid") from None

        run.name = given.get("name") or run.name
        run.external_id = given.get("external_id", run.external_id)
        run.details_url = given.get("details_url", run.details_url)
        run.started_at = times.get("started_at", run.started_at)
        if output:
            run.title, run.summary = output["title"], output["summary"]
            run.text = output.get("text", run.text)
            run.images = output.get("images", run.images)
            run.annotations = run.annotations + output.get("annotations", [])
        if conclusion:
            run.status, run.conclusion = "completed", conclusion
            run.completed_at = times.get("completed_at") or self.world.clock.now()
        elif status:
            run.status = status
            if status != "completed":
                run.conclusion = run.completed_at = None
