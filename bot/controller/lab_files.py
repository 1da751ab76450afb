"""What the lab itself decides, as the default branch of its repository has it: never a fork's or a
pull request's version."""

from bot.github import GitHub
from bot.model import policy_file
from bot.model.policy_file import Policy


class LabFiles:
    """Reads the lab's folder. A commit's files never change, so those of the newest are kept."""

    def __init__(self, github: GitHub) -> None:
        self._github = github
        self._kept: tuple[str, Policy] | None = None

    def policy(self) -> Policy:
        """Who may do what at this moment. Raises `bot.github.Later` and `Refused`."""
        commit = self._github.default_head()
        if self._kept is None or self._kept[0] != commit:
            self._kept = commit, policy_file.parse(self._github.lab_files(commit), commit)
        return self._kept[1]
