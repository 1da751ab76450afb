"""Changes of threads: issues, comments, labels, reactions.

Each method implements both a REST operation and a page's form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from bot.fake_github.world import shapes_thread
from bot.fake_github.world.actions import Actions, known
from bot.fake_github.world.errors import forbidden, invalid, not_found
from bot.fake_github.world.state import REACTIONS, Comment, Event, Issue, Label, Reaction, User


class Threads(Actions):
    # Issues

    def open_issue(
        self, login: str, title: str = "", body: str | None = None, labels: Sequence[str] = (),
        *, by_form: bool = False,
    ) -> Issue:  # fmt: skip
        """Open an issue. Labels are the form's, or those of a user who may triage; a stranger's
        labels are silently dropped."""
        with self.changing():
            user = self.user(login)
            issue = self._new_thread(user, title, body)
            if by_form or self.may(user, "triage"):
                issue.labels = self._named(labels)
            self._tell_issue("opened", user, issue)
            for label in issue.labels:
                self._tell_label("labeled", user, issue, label)
            return issue

    def _new_thread(self, user: User, title: str, body: str | None) -> Issue:
        if not title.strip():
            raise invalid("Issue", "title", "missing_field")
        self.check_body("Issue", body)
        now = self.world.clock.now()
        number = len(self.world.issues) + len(self.world.elsewhere) + 1
        issue = Issue(self.world.new_id(), number, user, title.strip(), body, now, now)
        self.world.issues[number] = issue
        return issue

    def edit_issue(
        self, login: str, number: int, *, title: str | None = None, body: str | None = None,
        state: str | None = None, state_reason: str | None = None,
        labels: Sequence[str] | None = None,
    ) -> Issue:  # fmt: skip
        """Change a thread's title, body, state or labels; for its author and users who may triage.

        Labels need triage, also for the author."""
        with self.changing() as now:
            user, issue = self.user(login), self.issue(number)
            self.need(user, "triage", author=issue.user if labels is None else None)
            if title is not None and not title.strip():
                raise invalid("Issue", "title", "missing_field")
            if state not in (None, "open", "closed"):
                raise invalid("Issue", "state", "invalid")
            self.check_body("Issue", body)
            changes: dict[str, Any] = {}
            if title is not None and title.strip() != issue.title:
                changes["title"] = {"from": issue.title}
                detail = f"{issue.title} → {title.strip()}"
                rename = {"from": issue.title, "to": title.strip()}
                self._note(issue, "renamed", user, detail, rename=rename)
                issue.title = title.strip()
            if body is not None and body != (issue.body or ""):
                changes["body"] = {"from": issue.body}
                issue.body, issue.edited = body, True
            if changes:
                issue.updated_at = now
                self._tell_issue("edited", user, issue, changes=changes)
            if state is not None and state != issue.state:
                self._set_state(user, issue, state, state_reason)
            if labels is not None:
                self.set_labels(login, number, labels)
            return issue

    def _set_state(self, user: User, issue: Issue, state: str, reason: str | None) -> None:
        now = self.world.clock.now()
        closing = state == "closed"
        if not closing and issue.pull and issue.pull.merged_at:
            raise invalid("PullRequest", "state", "custom", "A merged one cannot be reopened.")
        issue.state, issue.updated_at = state, now
        if issue.pull is None:
            issue.state_reason = (reason or "completed") if closing else "reopened"
        issue.closed_at = now if closing else None
        issue.closed_by = user if closing else None
        action = "closed" if closing else "reopened"
        self._note(issue, action, user)
        self._tell_issue(action, user, issue)

    def lock(self, login: str, number: int, lock_reason: str | None = None) -> None:
        """From now on only users with write access may comment."""
        if lock_reason not in (None, "off-topic", "too heated", "resolved", "spam"):
            raise invalid("Issue", "lock_reason", "invalid")
        self._set_lock(login, number, True, lock_reason)

    def unlock(self, login: str, number: int) -> None:
        self._set_lock(login, number, False, None)

    def _set_lock(self, login: str, number: int, locked: bool, reason: str | None) -> None:
        with self.changing() as now:
            user, issue = self.user(login), self.issue(number)
            self.need(user, "triage")
            if issue.locked != locked:
                issue.locked, issue.lock_reason, issue.updated_at = locked, reason, now
                action = "locked" if locked else "unlocked"
                self._note(issue, action, user, reason or "")
                self._tell_issue(action, user, issue)

    def _note(self, issue: Issue, kind: str, user: User, detail: str = "", **told: Any) -> None:
        """Add an event to the page's timeline."""
        now = self.world.clock.now()
        issue.events.append(Event(self.world.new_id(), kind, user, now, detail, told))

    def _tell_issue(self, action: str, user: User, issue: Issue, **more: Any) -> None:
        """Send the webhook of a thread: `issues`, or `pull_request` with the pull request's
        number."""
        if issue.pull is None:
            seen = shapes_thread.issue(self.world, issue)
            self.emit("issues", user, action=action, issue=seen, **more)
        else:
            seen = shapes_thread.pull(self.world, issue)
            told = {"action": action, "number": issue.number, "pull_request": seen}
            self.emit("pull_request", user, **told, **more)

    def _tell_label(self, action: str, user: User, issue: Issue, label: Label) -> None:
        self._tell_issue(action, user, issue, label=shapes_thread.label(self.world, label))

    # Comments

    def comment(self, login: str, number: int, body: str = "") -> Comment:
        with self.changing() as now:
            user, issue = self.user(login), self.issue(number)
            self._check_comment(body)
            # A lock also stops an App, although it may write.
            if issue.locked and (self.is_app(user) or not self.may(user, "write")):
                raise forbidden("Unable to create comment because issue is locked.")
            made = Comment(self.world.new_id(), number, user, body, now, now)
            issue.comments.append(made)
            self.world.comments[made.id] = made
            issue.updated_at = now
            self._tell_comment("created", user, made)
            return made

    def edit_comment(self, login: str, comment_id: int, body: str = "") -> Comment:
        """Edit a comment: one's own, or with write access anybody's, the bot's included."""
        with self.changing() as now:
            user, comment = self.user(login), self.issue_comment(comment_id)
            self.need(user, "write", author=comment.user)
            self._check_comment(body)
            before, comment.body = comment.body, body
            comment.updated_at = now
            comment.edited = comment.edited or before != body
            self.issue(comment.number).updated_at = now
            self._tell_comment("edited", user, comment, changes={"body": {"from": before}})
            return comment

    def delete_comment(self, login: str, comment_id: int) -> None:
        with self.changing() as now:
            user, comment = self.user(login), self.issue_comment(comment_id)
            self.need(user, "write", author=comment.user)
            issue = self.issue(comment.number)
            issue.comments.remove(comment)
            del self.world.comments[comment_id]
            issue.updated_at = now
            self._tell_comment("deleted", user, comment)

    def _check_comment(self, body: str) -> None:
        if not body.strip():
            raise invalid("IssueComment", "body", "missing_field")
        self.check_body("IssueComment", body)

    def _tell_comment(self, action: str, user: User, comment: Comment, **more: Any) -> None:
        issue = shapes_thread.issue(self.world, self.issue(comment.number))
        seen = {"issue": issue, "comment": shapes_thread.comment(self.world, comment)}
        self.emit("issue_comment", user, action=action, **seen, **more)

    # Reactions; GitHub sends no webhook for them

    def react(self, login: str, on: Comment | Issue, content: str = "") -> tuple[Reaction, bool]:
        """React; a second time returns the first reaction. Returns whether it is new."""
        with self.changing() as now:
            user = self.user(login)
            if content not in REACTIONS:
                raise invalid("Reaction", "content", "invalid")
            for reaction in on.reactions:
                if reaction.user is user and reaction.content == content:
                    return reaction, False
            made = Reaction(self.world.new_id(), user, content, now)
            on.reactions.append(made)
            return made, True

    def unreact(self, login: str, on: Comment | Issue, reaction_id: int) -> None:
        with self.changing():
            user = self.user(login)
            reaction = known({each.id: each for each in on.reactions}, reaction_id)
            if reaction.user is not user:
                raise forbidden("You may only delete your own reactions.")
            on.reactions.remove(reaction)

    # Labels

    def create_label(
        self, login: str, name: str = "", color: str = "ededed", description: str | None = None
    ) -> Label:
        with self.changing():
            self.need(self.user(login), "triage")
            if not name.strip():
                raise invalid("Label", "name", "missing_field")
            if name.lower() in self.world.labels:
                raise invalid("Label", "name", "already_exists")
            if not re.fullmatch(r"[0-9a-fA-F]{6}", color):
                raise invalid("Label", "color", "invalid")
            return self._add_label(name, color.lower(), description)

    def _add_label(self, name: str, color: str, description: str | None = None) -> Label:
        made = Label(self.world.new_id(), name, color, description)
        self.world.labels[name.lower()] = made
        return made

    def _named(self, names: Iterable[str]) -> list[Label]:
        """The labels with these names, created if missing, as GitHub does."""
        wanted = {name.lower(): name for name in names}
        known = self.world.labels
        return [known.get(key) or self._add_label(wanted[key], "ededed") for key in wanted]

    def set_labels(self, login: str, number: int, names: Iterable[str]) -> list[Label]:
        with self.changing() as now:
            user, issue = self.user(login), self.issue(number)
            self.need(user, "triage")
            before, issue.labels = issue.labels, self._named(names)
            gone = [("unlabeled", label) for label in before if label not in issue.labels]
            new = [("labeled", label) for label in issue.labels if label not in before]
            for action, label in gone + new:
                issue.updated_at = now
                self._note(issue, action, user, label.name)
                self._tell_label(action, user, issue, label)
            return issue.labels

    def add_labels(self, login: str, number: int, names: Iterable[str]) -> list[Label]:
        with self.changing():
            kept = [label.name for label in self.issue(number).labels]
            return self.set_labels(login, number, [*kept, *names])

    def remove_label(self, login: str, number: int, name: str) -> list[Label]:
        with self.changing():
            kept = [label.name for label in self.issue(number).labels]
            left = [each for each in kept if each.lower() != name.lower()]
            if len(left) == len(kept):
                raise not_found("Label does not exist")
            return self.set_labels(login, number, left)
