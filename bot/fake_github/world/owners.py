"""What owners do to a repository and an installation: rename, hide, suspend, transfer.

Only the sandbox's own switches and tests do these; pages and REST show the effects.
"""

from __future__ import annotations

from bot.fake_github.world import shapes, shapes_thread
from bot.fake_github.world.errors import invalid
from bot.fake_github.world.forks import Forks
from bot.fake_github.world.state import User


class Owners(Forks):
    def rename(self, name: str) -> None:
        """Rename; the old name redirects until somebody takes it."""
        with self.changing():
            world = self.world
            if not name or "/" in name:
                raise invalid("Repository", "name", "invalid")
            before = world.name
            world.old_names.add(world.full_name.lower())
            world.name = name
            world.old_names.discard(world.full_name.lower())
            changes = {"repository": {"name": {"from": before}}}
            self.emit("repository", world.owner, action="renamed", changes=changes)

    def transfer(self, owner: str) -> None:
        """Give the repository to another organization, where the App is installed, too: as another
        installation, so tokens of the first one may not write here any more."""
        with self.changing():
            world, before = self.world, self.world.owner
            world.old_names.add(world.full_name.lower())
            world.owner = User(world.new_id(), owner, owner, role="admin", type="Organization")
            world.installation_id += 1
            world.retired |= {token for token, who in world.tokens.items() if who is world.bot}
            changes = {"owner": {"from": {"organization": shapes.user(world, before)}}}
            self.emit("repository", world.owner, action="transferred", changes=changes)

    def vanish(self, login: str) -> None:
        """A person deletes the account: GitHub's answers have `null` in its place."""
        with self.changing():
            self.world.users.pop(login.lower()).vanished = True

    def set_private(self, private: bool) -> None:
        """If private, strangers get 404; the installed App does not."""
        with self.changing():
            self.world.private = private
            action = "privatized" if private else "publicized"
            self.emit("repository", self.world.owner, action=action)

    def suspend(self, suspended: bool) -> None:
        """Suspend the App's installation, or resume it; a suspended one gets no answer."""
        with self.changing() as now:
            self.world.suspended_at = now if suspended else None
            payload = {
                "action": "suspend" if suspended else "unsuspend",
                "installation": shapes.installation(self.world),
                "sender": shapes.user(self.world, self.world.owner),
            }
            self.webhooks.emit("installation", payload)

    def transfer_issue(self, number: int) -> None:
        """Move an issue to another repository of the owner; its old address redirects there."""
        with self.changing():
            self._remove(number, "transferred", "/repositories/700999/issues/1")

    def delete_issue(self, number: int) -> None:
        """Delete an issue with all its comments."""
        with self.changing():
            self._remove(number, "deleted", None)

    def _remove(self, number: int, action: str, address: str | None) -> None:
        seen = shapes_thread.issue(self.world, self.issue(number))
        self.emit("issues", self.world.owner, action=action, issue=seen)
        self.world.elsewhere[number] = address
        for comment in self.world.issues.pop(number).comments:
            del self.world.comments[comment.id]
