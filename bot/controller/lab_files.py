"""What the lab itself decides, as the default branch of its repository has it: never a fork's or a
pull request's version."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from bot.github import GitHub
from bot.model import policy_file
from bot.model.policy_file import Policy
from runner.lib.problems import BadExperiment, Problem
from runner.schema import lab_config
from runner.schema.lab_config import LabConfig
from runner.schema.tracks import Track

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decided:
    """What the lab's files say at one commit."""

    policy: Policy
    config: LabConfig | None  # None: it cannot be read, and `problems` says why
    problems: tuple[Problem, ...] = ()


class LabFiles:
    """Reads the lab's folder. A commit's files never change, so those of the newest are kept."""

    def __init__(self, github: GitHub) -> None:
        self._github = github
        self._kept: tuple[str, Decided] | None = None
        self._readable = lab_config.defaults()

    def now(self) -> Decided:
        """What holds at this moment. Raises `bot.github.Later` and `Refused`."""
        commit = self._github.default_head()
        if self._kept is None or self._kept[0] != commit:
            self._kept = commit, decided(self._github.lab_files(commit), commit)
        return self._kept[1]

    def tracks(self) -> Mapping[str, Track]:
        """The tracks to show: of this moment or, while the lab's files have mistakes, those that
        were read last (at first, the defaults). Raises `Later` and `Refused`."""
        found = self.now()
        if found.config is None:
            log.warning("the site has earlier tracks: %s", "; ".join(map(str, found.problems)))
        self._readable = found.config or self._readable
        return self._readable.tracks


def decided(files: dict[str, bytes], commit: str) -> Decided:
    """What these files say, by path. A mistake in any of them permits nothing. Pure."""
    try:
        config = lab_config.parse(files)
    except BadExperiment as error:
        policy = policy_file.parse(files, commit, None)
        every = (*map(str, error.problems), *policy.problems)
        return Decided(Policy(sha=commit, problems=every), None, error.problems)
    return Decided(policy_file.parse(files, commit, config.devices), config)
