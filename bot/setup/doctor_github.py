"""The doctor's questions to GitHub: the App with its key, permissions and events, the webhook with
what became of its deliveries, the clock, and the files of the default branch."""

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import quote

import httpx

from bot.github import AppAuth, Bearer, Gone, Later, Line, Refused, app_manifest
from bot.model import policy_file
from bot.model.policy_file import FORM_PATH
from bot.setup import init, settings
from bot.setup.doctor import Check, Deployment, Finding

MOST_SKEW = 30.0  # seconds; nothing is decided by the local clock, but logs and tokens go by it
DELIVERIES = 30  # the newest, that are looked at
SETTINGS = "the App's settings on GitHub"


class Asker:
    """Asks GitHub, as the App or with the token that the bot would use. What asks raises Refused,
    Later, Unset."""

    def __init__(self, of: Deployment) -> None:
        self.of = of
        self._path = f"/repos/{of.repository}"

    def date(self) -> datetime:
        """GitHub's time."""
        line = Line(self.of.api)
        try:
            line.get("/")
        except (Refused, Later) as error:
            if not line.answered:
                raise Later(f"{self.of.api} cannot be reached ({error})") from error
        if not line.answered:
            raise Later(f"{self.of.api} says no time, and is not GitHub")
        return line.now()

    def as_app(self, path: str, **query: str) -> Any:
        """Ask with the App's own signature."""
        assert isinstance(self._credentials, AppAuth)
        return self._credentials.line.get(path, **query)

    def installation(self) -> Any:
        """The App's, on the repository."""
        return self.as_app(f"{self._path}/installation")

    def as_bot(self, path: str) -> Any:
        """Ask of the repository with the bot's token."""
        return self._line.get(f"{self._path}{path}")

    def labels(self) -> set[str]:
        """The names of the repository's labels."""
        return {each.name for each in self._line.repository(self.of.repository).get_labels()}

    @cached_property
    def _credentials(self) -> Callable[[], str]:
        return settings.credentials(self.of.app, self.of.repository, self.of.api)

    @cached_property
    def _line(self) -> Line:
        return Line(self.of.api, Bearer(self._credentials))


def checks(of: Deployment) -> Iterator[Check]:
    """The checks that ask GitHub."""
    asker = Asker(of)
    yield Check("clock", lambda: clock(asker))
    if of.app:
        yield Check("App's key", lambda: key(asker))
        yield Check("permissions", lambda: permissions(asker))
        yield Check("events", lambda: events(asker))
        yield Check("webhook", lambda: webhook(asker))
        yield Check("deliveries", lambda: deliveries(asker))
    else:
        yield Check("token", lambda: token(asker))
    if of.url:
        yield Check("reachable", lambda: reachable(of))
    yield Check("policy", lambda: policy(asker))
    yield Check("form", lambda: form(asker))
    yield Check("labels", lambda: labels(asker))


def clock(asker: Asker) -> Finding:
    """Whether this machine's time is GitHub's."""
    try:
        skew = (datetime.now(UTC) - asker.date()).total_seconds()
    except (Refused, Later) as error:
        mend = "Open the way to GitHub (a firewall, a proxy), or mend REGATTA_GITHUB_API."
        return Finding(False, f"{error}.", mend)
    if abs(skew) > MOST_SKEW:
        words = f"this machine is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} GitHub."
        return Finding(False, words, "`timedatectl set-ntp true`")
    return Finding(True, "agrees with GitHub's.")


def key(asker: Asker) -> Finding:
    """Whether GitHub knows the App by its key."""
    mend = (
        f"Generate a private key in {SETTINGS}, keep the file with mode 600, let "
        f"{settings.APP_KEY}_FILE name it, and REGATTA_APP_ID be the id that stands above it."
    )
    try:
        found = asker.as_app("/app")
    except (Refused, Later, settings.Unset) as error:
        return Finding(False, f"the App cannot sign in: {error}.", mend)
    mine = f"{found['slug']}[bot]"
    if asker.of.bot not in ("", mine):
        words = f"the App speaks as {mine}, and REGATTA_BOT says {asker.of.bot}."
        return Finding(False, words, "Leave REGATTA_BOT out: the bot asks GitHub for its login.")
    return Finding(True, f"signs in as {found['slug']}.")


def permissions(asker: Asker) -> Finding:
    """Whether the installation may do all that the lab does, and no more."""
    installed = asker.installation()
    where = f"Under {SETTINGS}, Permissions, Repository permissions, set"
    if installed.get("suspended_at"):
        mend = "Unsuspend it under the repository's settings, GitHub Apps."
        return Finding(False, "the installation is suspended.", mend)
    if lacking := app_manifest.lacking(installed["permissions"]):
        named = ", ".join(f"{_name(one)}: {_level(level)}" for one, level in lacking.items())
        mend = f"{where} {named}; then accept the new permissions where the App is installed."
        return Finding(False, f"lacking are {named}.", mend)
    if more := app_manifest.needless(installed["permissions"]):
        named = ", ".join(f"{_name(one)}: No access" for one in more)
        words = f"the App may do more than the lab needs: {', '.join(map(_name, more))}."
        return Finding(False, words, f"{where} {named}.")
    return Finding(True, "are those that the lab needs, and no others.")


def events(asker: Asker) -> Finding:
    """Whether GitHub tells all that the lab wants to hear."""
    heard = set(asker.as_app("/app")["events"])
    if missing := sorted(set(app_manifest.EVENTS) - heard):
        named = ", ".join(map(_name, missing))
        mend = f"Under {SETTINGS}, Permissions, Subscribe to events, tick {named}."
        return Finding(False, f"the App does not hear {named}.", mend)
    return Finding(True, "are heard, all that the lab acts on.")


def webhook(asker: Asker) -> Finding:
    """Whether deliveries go where the bot answers, signed and encrypted."""
    found = asker.as_app("/app/hook/config")
    wanted = f"{asker.of.url.rstrip('/')}/webhook" if asker.of.url else ""
    where = f"Under {SETTINGS}, Webhook,"
    url = str(found.get("url") or "")
    if not url or (wanted and url != wanted):
        to = wanted or "https://…/webhook"
        mend = f"{where} set the URL to {to}."
        return Finding(False, f"deliveries go to {url or 'nowhere'}.", mend)
    if not found.get("secret"):
        mend = f"{where} set the secret to what {settings.SECRET} says."
        return Finding(False, "deliveries are not signed.", mend)
    if str(found.get("insecure_ssl", "0")) != "0":
        mend = f"{where} enable SSL verification."
        return Finding(False, "GitHub does not look at the server's certificate.", mend)
    if found.get("content_type") != "json":
        return Finding(False, "deliveries are forms.", f"{where} set the content type to json.")
    return Finding(True, f"deliveries go to {url}.")


def deliveries(asker: Asker) -> Finding:
    """What became of the newest deliveries."""
    found = asker.as_app("/app/hook/deliveries", per_page=str(DELIVERIES))
    failed = [one for one in found if not 200 <= int(one["status_code"]) < 300]
    if not found:
        return Finding(True, "there were none yet.")
    newest = found[0]
    if newest not in failed:
        note = f"; {len(failed)} of {len(found)} before it did not, and are found by the sweep"
        return Finding(True, f"the newest one arrived{note if failed else ''}.")
    status = int(newest["status_code"])
    if status == 401:
        return Finding(
            False,
            "the newest one was refused: its signature does not fit the secret.",
            f"Under {SETTINGS}, Webhook, set the secret to what {settings.SECRET} says.",
        )
    words = f"the newest one did not arrive: {newest.get('status') or status}."
    mend = "Start `regatta serve`, and let what stands before it pass POST /webhook on to it."
    return Finding(False, words, mend)


def reachable(of: Deployment) -> Finding:
    """Whether the bot answers at the address that GitHub is told."""
    url = f"{of.url.rstrip('/')}/healthz"
    try:
        answer = of.http.get(url, timeout=10)
    except httpx.HTTPError as error:
        mend = "Start `regatta serve`, or mend the name, the certificate or the proxy before it."
        return Finding(False, f"{url} does not answer ({type(error).__name__}).", mend)
    if not answer.is_success:
        words = f"{url} answers {answer.status_code}: {answer.text[:100].strip()}"
        return Finding(False, words, "`systemctl restart regatta`, and read its log.")
    return Finding(True, f"the bot answers at {of.url}.")


def token(asker: Asker) -> Finding:
    """Whether the token opens the repository."""
    try:
        asker.as_bot("")
    except (Refused, Later, settings.Unset) as error:
        mend = (
            f"Set {settings.TOKEN} to a token that reads {asker.of.repository} and writes its "
            "issues, pull requests and contents; or name an App by REGATTA_APP_ID."
        )
        return Finding(False, f"{asker.of.repository} is closed to it: {error}.", mend)
    if asker.of.actions:
        return Finding(True, f"opens {asker.of.repository}.")
    words = "but makes no check runs, and so no buttons: GitHub leaves these to Apps."
    return Finding(True, f"opens {asker.of.repository}, {words}")


def policy(asker: Asker) -> Finding:
    """Whether anybody may run anything."""
    read = policy_file.parse(_file(asker, policy_file.PATH), "")
    if read.problems:
        mend = (
            f"Mend {policy_file.PATH} on the default branch; `regatta init` writes one that works."
        )
        return Finding(False, f"nobody may run anything: {'; '.join(read.problems)}.", mend)
    allowed = read.permitted("run")
    who = ", ".join([*(f"role {role}" for role in allowed.roles), *allowed.people])
    return Finding(True, f"may /run: {who or 'nobody'}.")


def form(asker: Asker) -> Finding:
    """Whether people can preregister by a form."""
    if _file(asker, FORM_PATH) is None:
        mend = "`regatta init` in a checkout; commit what it writes, and push it."
        return Finding(False, f"there is no {FORM_PATH} on the default branch.", mend)
    return Finding(True, "is on the default branch.")


def labels(asker: Asker) -> Finding:
    """Whether the lab's labels are there, with their colors."""
    there = asker.labels()
    if missing := [name for name in init.labels() if name not in there]:
        mend = f"`regatta init --repository {asker.of.repository}`"
        return Finding(False, f"missing are {', '.join(missing)}.", mend)
    return Finding(True, "are there.")


def _file(asker: Asker, path: str) -> bytes | None:
    try:
        found = asker.as_bot(f"/contents/{quote(path)}")
    except Gone:
        return None
    return base64.b64decode(found["content"])


def _name(permission: str) -> str:
    """As GitHub's settings have it: Pull requests."""
    return permission.replace("_", " ").capitalize()


def _level(level: str) -> str:
    return {"read": "Read-only", "write": "Read and write"}[level]
