"""The settings of a deployment: options, environment, and files with secrets.

Each field of `Settings` with a description is an option of commands (`bot.cli.options`); others
come from the environment only. A secret is never an option, because other users of the machine
could read it: it is in the environment (`NAME`) or in the file that `NAME_FILE` names, as systemd
and containers do it.
"""

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from bot.github import AppAuth, Bearer, Line, Refused, RefusedForNow, Unauthorized
from bot.github.answers import Moved
from bot.github.connection import API
from runner.isolation import bubblewrap
from runner.schema.record import Isolated

PREFIX = "REGATTA_"
SECRET = "REGATTA_WEBHOOK_SECRET"
OLD_SECRET = "REGATTA_WEBHOOK_SECRET_OLD"  # also accepted, while a new one is rolled out
TOKEN = "REGATTA_GITHUB_TOKEN"
APP_KEY = "REGATTA_APP_KEY"
RAY_TOKEN = "REGATTA_RAY_TOKEN"
SECRETS = (SECRET, OLD_SECRET, TOKEN, APP_KEY, RAY_TOKEN)

# Actions passes an unset variable as an empty name.
File = Annotated[Path | None, AfterValidator(lambda file: file if file and file.name else None)]
Address = Annotated[str, AfterValidator(lambda url: url.rstrip("/"))]

log = logging.getLogger("regatta.deployment")


class Unset(Exception):
    """A required setting is missing; the message says how to set it."""


class Settings(BaseSettings):
    """All settings. Read once and passed on."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, str_strip_whitespace=True, frozen=True
    )

    repository: str = Field(description="owner/name")
    ray_address: Address = Field(description="Ray's dashboard.")
    ray_token_file: File = Field(
        default=None,
        description="The file with Ray's token; without one, REGATTA_RAY_TOKEN holds it.",
    )
    store: str = Field(default="store", description="Where records and outputs are.")
    jobs: str | None = Field(
        default=None, description="Another place for everything that jobs read and write."
    )
    github_api: str = Field(default=API, description="The address of GitHub's API.")
    app_id: str = Field(
        default="",
        description="The GitHub App's id; its private key is in REGATTA_APP_KEY or, better, in the "
        "file that REGATTA_APP_KEY_FILE names. Without it, REGATTA_GITHUB_TOKEN is used.",
    )
    url: Address = Field(default="", description="The address of the bot, https://…")
    bot: str = Field(
        default="",
        description="The login of the bot; by default, the bot asks GitHub.",
    )
    seconds_between_writes: float = Field(
        default=1.0, description="Minimum seconds between two writes to GitHub."
    )
    cluster: Path | None = Field(
        default=None,
        description="A file with the lab's devices and rules, such as examples/cluster.yaml. "
        "Without it, everything starts when it is approved, and Ray queues it.",
    )
    isolation: Literal["bubblewrap", "trusted", "none"] | None = Field(
        default=None,
        description="How Ray's machines isolate own code: bubblewrap, which each tests first; "
        "trusted, not at all; none, own code is refused. The default is bubblewrap if it works "
        "where the bot runs.",
    )
    trust_approved_code: bool = Field(
        default=False,
        description="Run approved own code without isolation; the same as --isolation trusted.",
    )
    records_branch: bool = Field(
        default=True,
        description="Copy the records of finished executions to the branch regatta-records.",
    )
    key: Path | None = Field(
        default=None,
        description="A file from `regatta key new`. With it, the lab signs seals, plans and "
        "receipts.",
    )
    metrics_port: int | None = Field(
        default=None, description="The port for Prometheus; keep it private."
    )
    metrics_host: str = Field(
        default="127.0.0.1", description="The host of the port for Prometheus."
    )
    logs: Literal["json", "text"] | None = Field(
        default=None,
        description="The form of the log; in a terminal the default is text, otherwise json.",
    )

    site: Address = ""  # the public URL of the lab's pages, for links in comments
    webhook_secret: SecretStr = SecretStr("")
    webhook_secret_file: File = None
    webhook_secret_old: SecretStr = SecretStr("")
    webhook_secret_old_file: File = None
    github_token: SecretStr = SecretStr("")
    github_token_file: File = None
    app_key: SecretStr = SecretStr("")
    app_key_file: File = None
    ray_token: SecretStr = SecretStr("")

    def secret_file(self, name: str) -> Path | None:
        """The file with the secret of this name; None if none is set."""
        file: Path | None = getattr(self, f"{name.removeprefix(PREFIX).lower()}_file")
        return file

    def secret(self, name: str) -> str:
        """The secret of this name. Raises Unset if it is missing, empty or unreadable."""
        said: SecretStr = getattr(self, name.removeprefix(PREFIX).lower())
        if value := said.get_secret_value().strip():
            return value
        file = self.secret_file(name)
        if file is None:
            raise Unset(f"{name} is not set. Set it, or let {name}_FILE name a file that holds it.")
        try:
            value = file.read_text().strip()
        except (OSError, ValueError) as error:
            raise Unset(f"{name}_FILE names {file}, which cannot be read: {error}.") from error
        if not value:
            raise Unset(f"{name}_FILE names {file}, which is empty. Write the secret into it.")
        return value

    def optional(self, name: str) -> str | None:
        """The secret of this name; None if it is not available."""
        try:
            return self.secret(name)
        except Unset:
            return None

    def all_secrets(self) -> tuple[str, ...]:
        """All secrets of this process, which must not appear in logs or comments."""
        return tuple(filter(None, map(self.optional, SECRETS)))

    def credentials(self) -> Callable[[], str]:
        """A function that returns the token for the next request: that of the App's installation on
        the repository or, without an App, the given one. Raises Unset."""
        if self.app_id:
            key = self.secret(APP_KEY)
            return AppAuth(self.app_id, key, self.repository, api=self.github_api)
        self.secret(TOKEN)
        return lambda: self.secret(TOKEN)

    def login(self, credentials: Callable[[], str]) -> str:
        """The login of these credentials, by which the bot recognises its own comments. Raises
        Later, and Unset if GitHub does not say, or says another one than the settings."""
        if isinstance(credentials, AppAuth):
            mine = credentials.login()
            if self.bot not in ("", mine):
                words = f"REGATTA_BOT says {self.bot}, and the App speaks as {mine}. Leave it out."
                raise Unset(words)
            return mine
        if self.bot:
            return self.bot
        try:
            return str(Line(self.github_api, Bearer(credentials)).get("/user")["login"])
        except (Refused, Moved, Unauthorized, RefusedForNow, KeyError, TypeError) as error:
            raise Unset(
                f"GitHub does not tell whose {TOKEN} is ({error}). Let REGATTA_BOT say the login "
                "that it speaks with."
            ) from error

    def isolated(self) -> Isolated:
        """The isolation of own code by the operator's settings; by default what works on this
        machine. Raises Unset if the settings contradict each other."""
        if self.trust_approved_code and self.isolation not in (None, "trusted"):
            words = f"--trust-approved-code and --isolation {self.isolation} contradict each other."
            raise Unset(words)
        said = "trusted" if self.trust_approved_code else self.isolation
        if said == "none":
            return ""
        if said is None and (why := bubblewrap.probe()):
            log.warning(
                "%s Own code of experiments is refused. If it works on Ray's machines, say "
                "--isolation bubblewrap.",
                why,
            )
            return ""
        return said or "bubblewrap"

    def file_of_ray_token(self) -> Path:
        """The file with Ray's token: the given one, or a temporary one with the environment's
        token. Raises Unset."""
        if self.ray_token_file:
            return self.ray_token_file
        if not (token := self.optional(RAY_TOKEN)):
            raise Unset(
                "Ray's token is not said: let REGATTA_RAY_TOKEN_FILE name the file that Ray was "
                "started with (its RAY_AUTH_TOKEN_PATH), or set REGATTA_RAY_TOKEN."
            )
        folder = Path(tempfile.mkdtemp(prefix="regatta-"))  # only we may enter it
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        file = folder / "ray-token"
        with open(file, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            out.write(token)
        return file
