"""Who may do what on a repository: `.github/regatta.yml` of its default branch. Pure.

A file that is not there or cannot be read permits nothing, and says so to whoever asks.
"""

from typing import Literal

from pydantic import Field

from runner.record import Record

PATH = ".github/regatta.yml"
Command = Literal["run", "cancel", "retry", "reproduce", "plan"]


class Permitted(Record):
    """Who may give a command: GitHub's roles, and people by login."""

    roles: tuple[str, ...] = ("maintain", "admin")
    people: tuple[str, ...] = ()


class Policy(Record):
    """What the file says."""

    sha: str = ""  # of the default branch's commit that it was read at
    problems: tuple[str, ...] = ()  # why nobody may do anything; sentences
    commands: dict[Command, Permitted] = Field(
        default_factory=dict
    )  # of what is not named, `Permitted()`
    settle_seconds: int = Field(default=30, ge=1)  # between a plan and a bare `/run`
    own: bool = True  # whether one may approve one's own pull request
    two_approvers_from: float | None = None  # device-hours from which two people must approve
    # By kind of hardware, "*" for all together.
    device_hours_per_person_and_month: dict[str, float] = Field(default_factory=dict)
    kinds: tuple[str, ...] | None = None  # hardware that may be used; None: all of the lab's
    apps: tuple[str, ...] = ()  # bots and apps that may command, by slug

    def permits(self, command: Command, login: str, role: str) -> bool:
        """Whether somebody with this role may give the command."""
        permitted = self.commands.get(command, Permitted())
        return not self.problems and (role in permitted.roles or login in permitted.people)
