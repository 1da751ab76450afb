"""Reviews of pull requests: submit, edit and dismiss.

Each method implements both a REST operation and a page's form.
"""

from __future__ import annotations

from bot.fake_github.world import shapes_thread
from bot.fake_github.world.actions import known
from bot.fake_github.world.checks import Checks
from bot.fake_github.world.errors import invalid, unprocessable
from bot.fake_github.world.state import Issue, Review, User

STATES = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}


class Reviews(Checks):
    def submit_review(
        self, login: str, number: int, event: str = "", body: str = "",
        commit_id: str | None = None,
    ) -> Review:  # fmt: skip
        """Review a pull request at its head, or at an earlier commit."""
        with self.changing() as now:
            user, issue = self.user(login), self.pull(number)
            if event not in STATES:
                raise invalid("PullRequestReview", "event", "invalid")
            if user is issue.user and event != "COMMENT":
                verb = "approve" if event == "APPROVE" else "request changes on"
                raise unprocessable(f"Can not {verb} your own pull request")
            if event != "APPROVE" and not body.strip():
                raise unprocessable("Body can't be blank")
            self.check_body("PullRequestReview", body)
            commit = commit_id or issue.as_pull.head_sha
            if self.world.git.kind(commit) != "commit":
                raise invalid("PullRequestReview", "commit_id", "invalid")
            made = Review(self.world.new_id(), number, user, body, now, STATES[event], commit)
            issue.as_pull.reviews.append(made)
            issue.updated_at = now
            self._tell_review("submitted", user, issue, made)
            return made

    def edit_review(self, login: str, number: int, review_id: int, body: str = "") -> Review:
        """Change the text; only for its author."""
        with self.changing() as now:
            user, issue = self.user(login), self.pull(number)
            review = self.review(number, review_id)
            if user is not review.user:
                raise unprocessable("Could not edit the review")
            self.check_body("PullRequestReview", body)
            before, review.body, review.edited_at = review.body, body, now
            self._tell_review("edited", user, issue, review, changes={"body": {"from": before}})
            return review

    def dismiss_review(self, login: str, number: int, review_id: int, message: str = "") -> Review:
        """Dismiss a review; for users who may write."""
        with self.changing():
            user, issue = self.user(login), self.pull(number)
            self.need(user, "write")
            review = self.review(number, review_id)
            if not message.strip():
                raise invalid("PullRequestReview", "message", "missing_field")
            if review.state not in ("APPROVED", "CHANGES_REQUESTED"):
                raise unprocessable("Can not dismiss a commented pull request review")
            review.state = "DISMISSED"
            told = {"state": "approved", "review_id": review.id, "dismissal_message": message}
            self._note(issue, "review_dismissed", user, message, dismissed_review=told)
            self._tell_review("dismissed", user, issue, review)
            return review

    def review(self, number: int, review_id: int) -> Review:
        return known({each.id: each for each in self.pull(number).as_pull.reviews}, review_id)

    def _tell_review(
        self, action: str, user: User, issue: Issue, review: Review, **more: object
    ) -> None:
        seen = shapes_thread.review(self.world, review)
        seen["state"] = seen["state"].lower()  # as in webhooks
        pull = shapes_thread.pull_simple(self.world, issue)
        told = {"action": action, "review": seen, "pull_request": pull}
        self.emit("pull_request_review", user, **told, **more)
