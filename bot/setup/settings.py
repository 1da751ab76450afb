"""What an operator says of a deployment: options, environment, and files that hold secrets.

`regatta serve`, `handle` and `doctor` take the same names. A secret is never an option, which
other users of the machine could read: it is in the environment (`NAME`) or in a file that `NAME`
followed by `_FILE` names, which is how systemd and containers hand secrets over.
"""

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from bot.github import AppAuth, Bearer, Forbidden, Line, Refused
from bot.github.connection import API, Moved, Unauthorized
from bot.model.thread import Isolated
from runner.isolation import bubblewrap

SECRET = "REGATTA_WEBHOOK_SECRET"
OLD_SECRET = "REGATTA_WEBHOOK_SECRET_OLD"  # accepted too, while a new one is being rolled out
TOKEN = "REGATTA_GITHUB_TOKEN"
APP_KEY = "REGATTA_APP_KEY"
RAY_TOKEN = "REGATTA_RAY_TOKEN"

TheRepository = Annotated[str, typer.Option(envvar="REGATTA_REPOSITORY", help="owner/name")]
TheRay = Annotated[str, typer.Option(envvar="REGATTA_RAY_ADDRESS", help="Ray's dashboard.")]
TheRayToken = Annotated[
    Path | None,
    typer.Option(
        envvar="REGATTA_RAY_TOKEN_FILE",
        help="The file with Ray's token; without one, REGATTA_RAY_TOKEN holds it.",
    ),
]
TheApi = Annotated[str, typer.Option(envvar="REGATTA_GITHUB_API", help="Where GitHub answers.")]
TheApp = Annotated[
    str,
    typer.Option(
        envvar="REGATTA_APP_ID",
        help="The GitHub App's id; its private key is in REGATTA_APP_KEY or, better, in the file "
        "that REGATTA_APP_KEY_FILE names. Without it, REGATTA_GITHUB_TOKEN is used.",
    ),
]
TheBot = Annotated[
    str,
    typer.Option(
        envvar="REGATTA_BOT",
        help="The login that the bot speaks with, where GitHub is not to be asked for it.",
    ),
]
TheTrust = Annotated[
    bool,
    typer.Option(
        "--trust-approved-code",
        envvar="REGATTA_TRUST_APPROVED_CODE",
        help="Run approved code of experiments as it is, isolated by nothing: the same as "
        "--isolation trusted.",
    ),
]
TheIsolation = Annotated[
    Literal["bubblewrap", "trusted", "none"] | None,
    typer.Option(
        envvar="REGATTA_ISOLATION",
        help="What runs experiments' own code on Ray's machines: bubblewrap, which each of them "
        "looks for before it runs anything; nothing (trusted); or such code is refused (none). "
        "Not said, it is bubblewrap if that works here, where the bot runs.",
    ),
]
TheCluster = Annotated[
    Path | None,
    typer.Option(
        envvar="REGATTA_CLUSTER",
        help="The lab's devices and rules, as examples/cluster.yaml describes some. "
        "Without it, everything starts when it is approved and Ray queues it.",
    ),
]
TheRecordsBranch = Annotated[
    bool,
    typer.Option(
        "--records-branch/--no-records-branch",
        envvar="REGATTA_RECORDS_BRANCH",
        help="Copy the records of what has ended to the branch regatta-records.",
    ),
]
GITHUB = API

log = logging.getLogger("regatta.deployment")


class Unset(Exception):
    """Something that a deployment needs is not said; the message says how to say it."""


def secret(name: str) -> str:
    """The secret of this name. Raises Unset where it is missing, empty, or cannot be read."""
    value = os.environ.get(name, "").strip()
    if value:
        return value
    file = secret_file(name)
    if file is None:
        raise Unset(f"{name} is not set. Set it, or let {name}_FILE name a file that holds it.")
    try:
        value = file.read_text().strip()
    except (OSError, ValueError) as error:
        raise Unset(f"{name}_FILE names {file}, which cannot be read: {error}.") from error
    if not value:
        raise Unset(f"{name}_FILE names {file}, which is empty. Write the secret into it.")
    return value


def secret_file(name: str) -> Path | None:
    """The file that holds the secret of this name, if one is said to."""
    said = os.environ.get(f"{name}_FILE", "").strip()
    return Path(said) if said else None


def optional(name: str) -> str:
    """The secret of this name, or nothing."""
    try:
        return secret(name)
    except Unset:
        return ""


def all_secrets() -> tuple[str, ...]:
    """Every secret that this process holds: none of them is to stand in a log or a comment."""
    names = (SECRET, OLD_SECRET, TOKEN, APP_KEY, RAY_TOKEN)
    return tuple(filter(None, map(optional, names)))


def credentials(app: str, repository: str, api: str) -> Callable[[], str]:
    """Hands out the token for the next requests: of the App's installation on `repository`, or
    without an `app` the one that is set. Raises Unset."""
    if app:
        return AppAuth(app, secret(APP_KEY), repository, api=api)
    secret(TOKEN)
    return lambda: secret(TOKEN)


def isolation(said: str | None, trust: bool) -> Isolated:
    """What code of an experiment's own runs in, as the operator says; where they do not, it is
    what works on this machine. Raises Unset where they say two things."""
    if trust and said not in (None, "trusted"):
        raise Unset(f"--trust-approved-code and --isolation {said} contradict each other.")
    if trust or said == "trusted":
        return "trusted"
    if said == "bubblewrap":
        return "bubblewrap"
    if said == "none":
        return ""
    if words := bubblewrap.probe():
        log.warning(
            "%s Own code of experiments is refused. If it works on Ray's machines, say "
            "--isolation bubblewrap.",
            words,
        )
        return ""
    return "bubblewrap"


def login(said: str, credentials: Callable[[], str], api: str) -> str:
    """The login that these credentials speak with: the bot knows its own words by it. Raises Unset
    where GitHub does not tell, or tells of another one than is `said`; Later."""
    if isinstance(credentials, AppAuth):
        mine = credentials.login()
        if said not in ("", mine):
            raise Unset(f"REGATTA_BOT says {said}, and the App speaks as {mine}. Leave it out.")
        return mine
    if said:
        return said
    try:
        return str(Line(api, Bearer(credentials)).get("/user")["login"])
    except (Refused, Moved, Unauthorized, Forbidden, KeyError, TypeError) as error:
        raise Unset(
            f"GitHub does not tell whose {TOKEN} is ({error}). Let REGATTA_BOT say the login that "
            "it speaks with."
        ) from error


def ray_token_file(named: Path | None) -> Path:
    """The file with Ray's token: the one that is named, or one of ours with what the environment
    holds, gone with this process. Raises Unset."""
    if named is not None and str(named) != ".":
        return named
    try:
        token = secret(RAY_TOKEN)
    except Unset as error:
        raise Unset(
            "Ray's token is not said: let REGATTA_RAY_TOKEN_FILE name the file that Ray was "
            "started with (its RAY_AUTH_TOKEN_PATH), or set REGATTA_RAY_TOKEN."
        ) from error
    folder = Path(tempfile.mkdtemp(prefix="regatta-"))  # which only we may enter
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "ray-token"
    with open(file, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
        out.write(token)
    return file
