"""A sandbox: one repository with its people, bot, webhooks and faults, and how to make one."""

from __future__ import annotations

import copy
import shutil
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bot.fake_github.world.climate import Climate
from bot.fake_github.world.faults import Faults
from bot.fake_github.world.gate import Logged, Rates
from bot.fake_github.world.git import Git
from bot.fake_github.world.owners import Owners
from bot.fake_github.world.state import Clock, Role, User, World
from bot.fake_github.world.webhooks import Deliver, Webhooks

PERSONAS = (  # the players; each sandbox has its own
    User(11, "ada", "Ada", "write"),
    User(12, "sam", "Sam"),
    User(13, "grace", "Grace", "maintain"),
)
BOT = "regatta-lab[bot]"


class Sandbox(Owners):
    """The stand-in for GitHub. Its methods are in `threads.py`, `code.py`, `checks.py`,
    `reviews.py`, `forks.py` and `owners.py`."""

    def __init__(self, world: World, webhooks: Webhooks) -> None:
        super().__init__(world, webhooks)
        self.faults = Faults()
        self.requests: deque[Logged] = deque(maxlen=10_000)
        self.rates = Rates(world.clock)
        self.climate: Climate | None = None

    @property
    def url(self) -> str:
        return self.world.url

    def listen_at(self, url: str) -> None:
        """Set the server's URL, which all links use from now on."""
        for world in (self.world, *self.world.forks.values()):
            world.url = url

    def set_climate(self, name: str, seed: int) -> Climate:
        """From now on GitHub is as `bot.fake_github.world.climate` describes it."""
        self.climate = climate = Climate(self.world, name, seed)
        self.webhooks.fate, self.rates.bite = climate.fate, True
        return climate

    def in_the_past(self, world: World) -> Sandbox:
        """The same, to read what a replica shows that lags behind."""
        past = copy.copy(self)
        past.world = world
        return past

    def set_role(self, login: str, role: Role | None) -> None:
        """Change a user's role; None makes them a stranger."""
        self.user(login).role = role


def make_sandbox(
    root: Path,
    *,
    files: Mapping[str, bytes],
    bot_token: str,
    persona_tokens: Mapping[str, str],
    webhook_secret: str,
    webhook_url: str | None = None,
    owner: str = "regatta-lab",
    repo: str = "lab",
    leaderboard_url: str | None = None,
    starter: str = "",
    clock: Clock | None = None,
    deliver: Deliver | None = None,
    app_key: str | None = None,
) -> Sandbox:
    """A sandbox whose `main` has one commit with `files`; its git repository is under `root`. Its
    page for a new pull request begins with `starter`, an experiment.yaml.

    `app_key`: the App's public key (PEM), for a bot that signs as the App; `bot_token` works,
    too."""
    clock = clock or Clock()
    path = root / "repository.git"
    for old in (path, *root.glob("fork-of-*.git")):  # the rest of the world was in memory
        shutil.rmtree(old, ignore_errors=True)
    lab = User(1, owner, owner, role="admin", type="Organization")
    bot = User(2, BOT, "Regatta Lab", type="Bot")
    world = World(lab, repo, bot, Git(path), clock, clock.now(), leaderboard_url=leaderboard_url)
    world.app_key, world.starter = app_key, starter
    for person in (lab, bot, *map(replace, PERSONAS)):
        world.users[person.login.lower()] = person
    for login, token in persona_tokens.items():
        world.tokens[token] = world.users[login]
    world.tokens[bot_token] = bot
    sandbox = Sandbox(world, Webhooks(webhook_url, webhook_secret, deliver, clock.now))
    by = sandbox.signature(lab)
    world.git.add_commit(world.default_branch, files, "A new lab", by, None)
    return sandbox
