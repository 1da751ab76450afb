"""The checks of `regatta doctor`: each tests one thing that a deployment needs, from where it runs.

A check changes nothing permanently, and shows no secret. A failure comes with what to do: a command
to type (between backticks) or the place to click.
"""

import base64
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from bot.controller.effects import claimed_before
from bot.controller.lab_files import Decided, decided
from bot.controller.records_branch import BRANCH, waiting
from bot.github import AppAuth, Bearer, Gone, Later, Line, Refused, app_manifest
from bot.model import policy_file
from bot.model.policy_file import FORM_PATH
from bot.setup import condition_check, device_trial, init
from bot.setup.findings import Finding, Wrong, answering, need, private
from bot.setup.settings import APP_KEY, OLD_SECRET, SECRET, SECRETS, TOKEN, Settings, Unset
from runner.execution.ray_jobs import LOOK
from runner.isolation import bubblewrap
from runner.lib import accelerators
from runner.lib.format import full_stop
from runner.scheduler.cluster import load
from runner.schema import lab_config
from runner.store.store import Store

SHORTEST_SECRET = 24  # characters
LEAST_FREE = 2 << 30  # bytes free on the disk of the store
LATE = timedelta(hours=1)  # age of records that should be on their branch
DUE = timedelta(minutes=10)  # until what the bot wants to post should be on GitHub
MOST_SKEW = 30.0  # seconds; no decision uses the local clock, but logs and tokens do
DELIVERIES = "30"  # the number of newest ones that are checked
SETTINGS = "the App's settings on GitHub"
HOOK = f"Under {SETTINGS}, Webhook,"
LEVELS = {"read": "Read-only", "write": "Read and write"}


def looked_at(of: Settings, actions: bool = False, train: bool = False) -> dict[str, Finding]:
    """The result of each check; with `actions`, for Actions mode, which has no webhook and no App;
    with `train`, also of ten steps on each kind of device."""
    if actions:
        of = of.model_copy(update={"app_id": "", "url": "", "bot": ""})
    doctor = Doctor(of, actions)
    found = {name: _finding(look) for name, look in doctor.checks().items()}
    try:
        return found | (doctor.trained() if train else {})
    except Wrong as wrong:
        return found | {"ten steps": Finding(False, *wrong.args)}


def _finding(look: Callable[[], str]) -> Finding:
    """Run a check; an unexpected error is a finding, too."""
    try:
        return Finding(True, look())
    except Wrong as wrong:
        return Finding(False, *wrong.args)
    except Exception as error:
        why = error if isinstance(error, Refused | Later | Unset) else type(error).__name__
        mend = "Fix what the other lines name; then check again."
        return Finding(False, full_stop(f"could not be checked: {why}"), mend)


class Doctor:
    """The checks; each returns a sentence if all is fine, or raises Wrong."""

    def __init__(self, of: Settings, actions: bool) -> None:
        self.of, self._actions = of, actions

    def checks(self) -> dict[str, Callable[[], str]]:
        """All checks of a deployment, in the order in which to fix them."""
        of, app = self.of, bool(self.of.app_id)
        found = {
            "webhook secret": not self._actions and self.webhook_secret,
            "secret files": self.secret_files,
            "store": partial(self.store, of.store, "REGATTA_STORE"),
            "jobs' store": of.jobs and partial(self.store, of.jobs, "REGATTA_JOBS"),
            "records' branch": self.records_branch,
            "posts": self.posts,
            **condition_check.checks(of, client),
            "cluster file": of.cluster and partial(self.cluster, of.cluster),
            "Ray": self.ray,
            "Ray's token": self.ray_asks_for_a_token,
            "bubblewrap": self.bubblewrap,
            **{one.upper(): partial(self.accelerator, one) for one in accelerators.present()},
            "clock": self.clock,
            "App's key": app and self.key,
            "permissions": app and self.permissions,
            "events": app and self.events,
            "webhook": app and self.webhook,
            "deliveries": app and self.deliveries,
            "token": not app and self.token,
            "reachable": of.url and self.reachable,
            "policy": self.policy,
            "form": self.form,
            "labels": self.labels,
        }
        return {name: look for name, look in found.items() if callable(look)}

    # ── Secrets ──────────────────────────────────────────────────────────────────────────────

    def webhook_secret(self) -> str:
        """Whether deliveries from GitHub can be authenticated."""
        place = self.of.secret_file(SECRET) or "/etc/regatta/webhook-secret"
        new = (
            f"Make one: `umask 077; openssl rand -hex 32 > {place}`; let {SECRET}_FILE name it, "
            "and set the same under the App's settings, Webhook, Secret."
        )
        with answering("{}", new):
            value = self.of.secret(SECRET)
        varied = len(value) >= SHORTEST_SECRET and len(set(value)) >= 8
        need(varied, f"it has {len(value)} characters, so it can be guessed.", new)
        old = "; the one before it is accepted, too, while it is set"
        return f"is set{old if self.of.optional(OLD_SECRET) else ''}."

    def secret_files(self) -> str:
        """Whether other users of this machine can read secrets."""
        files = [file for name in SECRETS if (file := self.of.secret_file(name))]
        for file in files:
            need(file.is_file(), f"{file} does not exist.", "Create it, or name another.")
            private(file, 0o077, "Move it to /etc/regatta, and name it there.")
        return f"{len(files)} can be read by their owner only."

    # ── Store and Ray ────────────────────────────────────────────────────────────────────────

    def store(self, place: str, variable: str) -> str:
        """Whether files can be created once there, and stay private."""
        another = (
            f"Let {variable} name a folder that the bot may write to and others may not enter "
            "(mode 0700), or gs://bucket/prefix; if there is none yet, start the bot, which makes "
            "it."
        )
        name, folder = f"doctor/{secrets.token_hex(8)}", Path(place)
        with answering(f"{place} cannot be used: {{}}", another):
            store = Store(place, make=folder.is_dir())  # otherwise a typo would create a store
            once = store.create(name, b"{}\n") and not store.create(name, b"{}\n")
            store.remove(name)
            store.prune("doctor")
        need(once, f"{place} lets a file be created twice.", another)
        if not place.startswith("gs://"):
            private(folder, 0o007, another)
            disk = os.statvfs(folder)
            free = disk.f_bavail * disk.f_frsize
            mend = f"`regatta store gc --store {place}` shows what can go."
            need(free >= LEAST_FREE, f"its disk has {free / 2**30:.1f} GiB left.", mend)
        return f"{place} can be written."

    def records_branch(self) -> str:
        """Whether finished executions are on the branch that proves their time."""
        if not self.of.records_branch:
            return "is switched off: nothing is copied to it."
        ends = waiting(Store(self.of.store, make=False)).values()
        late = [f"{end:%Y-%m-%d %H:%M} UTC" for end in ends if datetime.now(UTC) - end > LATE]
        words = f"{BRANCH} lacks {len(late)} of what ended, the first from {min(late, default='')}."
        mend = (
            "The bot's log says why GitHub refuses it: give the bot Contents: Read and write, and "
            f"let no ruleset keep it from {BRANCH}; or switch it off: `REGATTA_RECORDS_BRANCH=off`"
        )
        need(not late, words, mend)
        return f"{BRANCH} holds what has ended."

    def posts(self) -> str:
        """Whether GitHub has taken what the bot wants to post."""
        late = claimed_before(Store(self.of.store, make=False), datetime.now(UTC) - DUE)
        threads = ", ".join(sorted({f"#{path.split('/')[3]}" for path in late}))
        words = f"GitHub has not taken {len(late)} comments or check runs of {threads} yet."
        mend = "Nothing is lost: the bot tries again. Its log says what GitHub answers."
        need(not late, words, mend)
        return "are all on GitHub, or about to be."

    def cluster(self, file: Path) -> str:
        """Whether the lab's devices are described."""
        with answering("{}", f"Fix {file}; examples/cluster.yaml shows one."):
            load(file, (self._decided.config or lab_config.defaults()).devices)
        return f"{file} can be read."

    def ray(self) -> str:
        """Whether Ray accepts our jobs."""
        with answering("{}", "Let REGATTA_RAY_TOKEN_FILE name Ray's token file."):
            file = self.of.file_of_ray_token()
            token = file.read_text().strip()
        at, status = self._ask_ray(Authorization=f"Bearer {token}")
        mend = "Let REGATTA_RAY_TOKEN_FILE name the file that Ray was started with, or see its log."
        need(status < 300, f"Ray at {at} answers {status} to the token in {file}.", mend)
        return f"answers at {at}, and accepts our token."

    def ray_asks_for_a_token(self) -> str:
        """Whether Ray refuses requests without a token."""
        at, status = self._ask_ray()
        words = f"Ray at {at} takes jobs from everybody who reaches it."
        need(status >= 300, words, "Start Ray with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH.")
        mend = "Let REGATTA_RAY_ADDRESS name Ray's dashboard itself; look into Ray's logs."
        need(status in (401, 403), f"without a token, {at} answers {status}.", mend)
        return "without the token, Ray refuses."

    def _ask_ray(self, **headers: str) -> tuple[str, int]:
        at = self.of.ray_address
        mend = "Start Ray there with its dashboard, or let REGATTA_RAY_ADDRESS name where it is."
        with answering(f"nothing answers at {at} ({{}}).", mend), client() as http:
            return at, http.get(f"{at}/api/jobs/", headers=headers).status_code

    def trained(self) -> dict[str, Finding]:
        """What ten steps of training on each kind of device found. Raises Wrong."""
        kinds = (self._decided.config or lab_config.defaults()).devices
        with answering("{}", "Let REGATTA_RAY_TOKEN_FILE name Ray's token file."):
            token = self.of.file_of_ray_token().read_text().strip()
        with client() as http:
            return device_trial.tried(http, self.of.ray_address, token, kinds)

    def bubblewrap(self) -> str:
        """Whether own code can be isolated; on this machine, unless the settings name another
        place."""
        said = self.of.isolation or ("trusted" if self.of.trust_approved_code else "")
        if said:
            return f"is not checked here: own code runs as the operator says ({said})."
        why = bubblewrap.probe()
        mend = (
            "`apt-get install --yes bubblewrap` on each machine of Ray's. If this machine is not "
            "one, set REGATTA_ISOLATION=bubblewrap. Or run only experiments without own code."
        )
        need(not why, f"own code of experiments cannot be isolated: {why}", mend)
        return "isolates own code on this machine; Ray's other machines need it, too."

    def accelerator(self, platform: str) -> str:
        """Whether JAX can use this machine's accelerator."""
        if found := accelerators.unusable(platform):
            raise Wrong(found.words, f"{found.mend}.")
        return "is here, and JAX's code for it is installed."

    # ── GitHub ───────────────────────────────────────────────────────────────────────────────

    @cached_property
    def _credentials(self) -> Callable[[], str]:
        return self.of.credentials()

    @cached_property
    def _line(self) -> Line:
        return Line(self.of.github_api, Bearer(self._credentials))

    def _as_app(self, path: str, **query: str) -> Any:
        assert isinstance(self._credentials, AppAuth)
        return self._credentials.line.get(path, **query)

    def _file(self, path: str) -> bytes | None:
        try:
            found = self._line.get(f"/repos/{self.of.repository}/contents/{quote(path)}")
        except Gone:
            return None
        return base64.b64decode(found["content"])

    @cached_property
    def _decided(self) -> Decided:
        try:
            there = self._line.get(f"/repos/{self.of.repository}/contents/{lab_config.FOLDER}")
        except Gone:
            there = []
        named = [one["path"] for one in there if one["type"] == "file"]
        read = {
            x: self._file(x) for x in (*filter(lab_config.is_read, named), policy_file.OLD_PATH)
        }
        return decided({path: content for path, content in read.items() if content is not None}, "")

    def clock(self) -> str:
        """Whether this machine's time is GitHub's."""
        line = Line(self.of.github_api)
        with suppress(Refused, Later):
            line.get("/")
        mend = "Open the way to GitHub (a firewall, a proxy), or correct REGATTA_GITHUB_API."
        need(line.answered, f"{self.of.github_api} cannot be reached, or is not GitHub.", mend)
        ahead = (datetime.now(UTC) - line.now()).total_seconds()
        words = f"this machine is {ahead:.0f} s ahead of GitHub."
        need(abs(ahead) <= MOST_SKEW, words, "`timedatectl set-ntp true`")
        return "agrees with GitHub's."

    def key(self) -> str:
        """Whether GitHub accepts the App's key."""
        mend = f"Generate a private key in {SETTINGS}, and let {APP_KEY}_FILE name its file."
        with answering("the App cannot sign in: {}.", mend):
            slug = self._as_app("/app")["slug"]
        words = f"the App speaks as {slug}[bot], and REGATTA_BOT says {self.of.bot}."
        mend = "Leave REGATTA_BOT out: the bot asks GitHub for its login."
        need(self.of.bot in ("", f"{slug}[bot]"), words, mend)
        return f"signs in as {slug}."

    def permissions(self) -> str:
        """Whether the installation has all permissions that the lab needs, and no others."""
        installed = self._as_app(f"/repos/{self.of.repository}/installation")
        mend = "Unsuspend it under the repository's settings, GitHub Apps."
        need(not installed.get("suspended_at"), "the installation is suspended.", mend)
        granted = installed["permissions"]
        other = {one: LEVELS[level] for one, level in app_manifest.lacking(granted).items()}
        other |= dict.fromkeys(app_manifest.needless(granted), "No access")
        named = ", ".join(f"{_name(one)}: {level}" for one, level in other.items())
        where = f"Under {SETTINGS}, Permissions, Repository permissions, set"
        mend = f"{where} {named}; then accept what is new where the App is installed."
        need(not other, f"these differ from what the lab needs: {named}.", mend)
        return "are exactly those that the lab needs."

    def events(self) -> str:
        """Whether GitHub sends all events that the lab needs."""
        heard = self._as_app("/app")["events"]
        named = ", ".join(map(_name, sorted(set(app_manifest.EVENTS) - set(heard))))
        mend = f"Under {SETTINGS}, Permissions, Subscribe to events, tick {named}."
        need(not named, f"the App does not receive {named}.", mend)
        return "are all received."

    def webhook(self) -> str:
        """Whether deliveries go to the bot, signed and encrypted."""
        found = self._as_app("/app/hook/config")
        url = str(found.get("url") or "")
        to = f"{self.of.url}/webhook" if self.of.url else url or "https://…/webhook"
        secure = str(found.get("insecure_ssl", "0")) == "0"
        for fine, words, mend in (
            (url == to, f"go to {url or 'nowhere'}", f"set the URL to {to}"),
            (found.get("secret"), "are not signed", f"set the secret to what {SECRET} says"),
            (secure, "go to a server whose certificate nobody checks", "enable SSL verification"),
            (found.get("content_type") == "json", "are forms", "set the content type to json"),
        ):
            need(fine, f"deliveries {words}.", f"{HOOK} {mend}.")
        return f"deliveries go to {url}."

    def deliveries(self) -> str:
        """Whether the newest deliveries were answered."""
        found = self._as_app("/app/hook/deliveries", per_page=DELIVERIES)
        if not found:
            return "there were none yet."
        status, *before = (int(one["status_code"]) for one in found)
        mend = f"{HOOK} set the secret to what {SECRET} says."
        need(status != 401, "the newest one was refused: it is signed with another secret.", mend)
        words = f"the newest one did not arrive: {found[0].get('status') or status}."
        mend = "Start `regatta serve`, and let the proxy before it pass on POST /webhook."
        need(200 <= status < 300, words, mend)
        failed = sum(not 200 <= one < 300 for one in before)
        return f"the newest one arrived; {failed} of {len(before)} before it did not."

    def reachable(self) -> str:
        """Whether the bot answers at its public address."""
        url = f"{self.of.url}/healthz"
        mend = "Start `regatta serve`, or fix the name, the certificate or the proxy before it."
        with answering(f"{url} does not answer ({{}}).", mend), client() as http:
            answer = http.get(url, timeout=10)
        words = f"{url} answers {answer.status_code}: {answer.text[:100].strip()}"
        need(answer.is_success, words, "`systemctl restart regatta`, and read its log.")
        return f"the bot answers at {self.of.url}."

    def token(self) -> str:
        """Whether the token gives access to the repository."""
        name = self.of.repository
        mend = f"Set {TOKEN} to one that may read and write issues, pull requests and contents."
        with answering(f"it cannot read {name}: {{}}.", mend):
            self._line.get(f"/repos/{name}")
        no = "; without a GitHub App there are no check runs and no buttons"
        return f"can read {name}{'' if self._actions else no}."

    def policy(self) -> str:
        """Whether anybody may run anything."""
        read = self._decided.policy
        mend = (
            f"In {lab_config.FOLDER} on the default branch, rename or delete what nothing reads; "
            "`regatta init` writes the other files again."
        )
        need(not read.problems, f"nobody may run anything: {'; '.join(read.problems)}.", mend)
        allowed = read.permitted("run")
        who = ", ".join([*(f"role {role}" for role in allowed.roles), *allowed.people])
        return f"may /run: {who or 'nobody'}."

    def form(self) -> str:
        """Whether the repository has the preregistration form."""
        mend = "`regatta init` in a checkout; commit what it writes, and push it."
        need(self._file(FORM_PATH), f"there is no {FORM_PATH} on the default branch.", mend)
        return "is on the default branch."

    def labels(self) -> str:
        """Whether the repository has the lab's labels."""
        missing = ", ".join(init.missing_labels(self._line, self.of.repository))
        mend = f"`regatta init --repository {self.of.repository}`"
        need(not missing, f"these are missing: {missing}.", mend)
        return "exist."


def client() -> httpx.Client:
    """An HTTP client for services without a library."""
    here = dict.fromkeys(("all://localhost", "all://127.0.0.1"))  # never by a proxy
    return httpx.Client(timeout=LOOK, mounts=here)


def _name(permission: str) -> str:
    """As in GitHub's settings: Pull requests."""
    return permission.replace("_", " ").capitalize()
