"""`regatta doctor`'s checks: each looks at one thing that a deployment needs, from where it runs.

A check changes nothing that lasts, and tells no secret. What fails comes with how to mend it: a
command to type (between backticks) or the place to click. Those that ask GitHub are in
`bot.setup.doctor_github`.
"""

import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from bot.controller import records_branch as controller_records_branch
from bot.github import Later, Refused
from bot.setup import settings
from runner.execution.ray_jobs import LOOK
from runner.isolation import bubblewrap as isolation_bubblewrap
from runner.scheduler.cluster import BadCluster, load
from runner.store.store import NoStore, Store, StoreError

SHORTEST_SECRET = 24  # characters
LEAST_FREE = 2 << 30  # bytes of a store's disk
LATE = timedelta(hours=1)  # after the end, for records that are not on their branch


@dataclass(frozen=True)
class Finding:
    """What a check found: fine or not, in a sentence; and what to do if not."""

    ok: bool
    words: str
    mend: str = ""


@dataclass(frozen=True)
class Check:
    """One named look at the deployment."""

    name: str
    look: Callable[[], Finding]

    def run(self) -> Finding:
        """The finding; a check that stumbles has found something, too."""
        try:
            return self.look()
        except Exception as error:
            known = isinstance(error, Refused | Later | settings.Unset)
            words = f"could not be looked at: {error if known else type(error).__name__}."
            return Finding(False, words, "Mend what the other lines name; then look again.")


@dataclass(frozen=True)
class Deployment:
    """What is looked at, as an operator says it."""

    repository: str
    store: str
    ray_address: str
    ray_token_file: Path | None = None
    jobs: str | None = None
    app: str = ""  # the GitHub App's id; without one a token speaks
    api: str = settings.GITHUB
    url: str = ""  # where the bot answers, as GitHub reaches it
    cluster: Path | None = None
    actions: bool = False
    bot: str = ""  # the login that the bot is said to have
    isolation: str = ""  # what is said to run own code on Ray's machines
    records_branch: bool = True
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=LOOK, trust_env=False))
    probe: Callable[[], str] = isolation_bubblewrap.probe  # why own code cannot be isolated here


def checks(of: Deployment) -> list[Check]:
    """All checks of a deployment, in the order in which they are best mended."""
    from bot.setup import doctor_github

    here = [
        *([] if of.actions else [Check("webhook secret", webhook_secret)]),
        Check("secret files", lambda: secret_files(of)),
        Check("store", lambda: store(of)),
        Check("jobs' store", lambda: jobs_store(of)) if of.jobs else None,
        Check("records' branch", lambda: records_branch(of)),
        Check("cluster file", lambda: cluster(of)) if of.cluster else None,
        Check("Ray", lambda: ray(of)),
        Check("Ray's token", lambda: ray_asks_for_a_token(of)),
        Check("bubblewrap", lambda: bubblewrap(of)),
    ]
    return [*filter(None, here), *doctor_github.checks(of)]


# ── Secrets ──────────────────────────────────────────────────────────────────────────────────


def webhook_secret() -> Finding:
    """Whether GitHub's deliveries can be told from anybody's."""
    file = settings.secret_file(settings.SECRET)
    place = str(file) if file else "/etc/regatta/webhook-secret"
    new = (
        f"Make one: `umask 077; openssl rand -hex 32 > {place}`; let {settings.SECRET}_FILE name "
        "it, and set the same under the App's settings, Webhook, Secret."
    )
    try:
        value = settings.secret(settings.SECRET)
    except settings.Unset as error:
        return Finding(False, str(error), new)
    if len(value) < SHORTEST_SECRET or len(set(value)) < 8:
        return Finding(False, f"it has {len(value)} characters, and can be guessed.", new)
    if settings.optional(settings.OLD_SECRET):
        return Finding(True, "is set; the one before it is accepted, too, while it is set.")
    return Finding(True, "is set.")


def secret_files(of: Deployment) -> Finding:
    """Whether others on this machine can read what must stay secret."""
    named = (settings.SECRET, settings.OLD_SECRET, settings.TOKEN, settings.APP_KEY)
    files = [file for name in named if (file := settings.secret_file(name))]
    if of.ray_token_file:
        files.append(of.ray_token_file)
    missing = [file for file in files if not file.is_file()]
    if missing:
        there = _listed(missing)
        return Finding(False, f"{there} is not there.", f"Create it, or name another: {there}.")
    if shown := [file for file in files if isolation_bubblewrap.shows(file)]:
        there = _listed(shown)
        return Finding(
            False,
            f"code of experiments can read {there}: it lies among programs and libraries.",
            f"Move {there} to /etc/regatta, and let the settings name it there.",
        )
    wide = [file for file in files if file.stat().st_mode & 0o077]
    if wide:
        modes = ", ".join(f"{file} has mode {_mode(file)}" for file in wide)
        command = f"chmod 600 {' '.join(map(str, wide))}"
        return Finding(False, f"others on this machine can read them: {modes}.", f"`{command}`")
    return Finding(True, f"{len(files)} can be read by their owner only.")


# ── Store and Ray ────────────────────────────────────────────────────────────────────────────


def store(of: Deployment) -> Finding:
    """Whether records can be created once, and stay private."""
    return _usable(of.store, "REGATTA_STORE")


def jobs_store(of: Deployment) -> Finding:
    """The same of the place where jobs read and write."""
    return _usable(str(of.jobs), "REGATTA_JOBS")


def _usable(place: str, variable: str) -> Finding:
    another = (
        f"Let {variable} name a folder that the bot may write to and others may not enter "
        "(mode 0700), or gs://bucket/prefix"
    )
    name = f"doctor/{secrets.token_hex(8)}"
    try:
        opened = Store(place, make=Path(place).is_dir())  # else a name with a slip would be made
        if not opened.create(name, b"{}\n") or opened.create(name, b"{}\n"):
            return Finding(False, f"{place} does not keep files once created.", f"{another}.")
        opened.remove(name)
        opened.prune("doctor")
    except NoStore:
        mend = f"If the name is right, start the bot, which makes it. {another}."
        return Finding(False, f"there is no store at {place}.", mend)
    except (StoreError, OSError) as error:
        return Finding(False, f"{place} cannot be written: {error}", f"{another}.")
    if place.startswith("gs://"):
        return Finding(True, f"{place} keeps what is created in it.")
    folder = Path(place)
    if isolation_bubblewrap.shows(folder):
        words = f"code of experiments can read {place}: it lies among programs and libraries."
        return Finding(False, words, f"{another}; not below /usr or Python's own folder.")
    if folder.stat().st_mode & 0o007:
        words = f"everybody on this machine can read {place} (mode {_mode(folder)})."
        return Finding(False, words, f"`chmod o-rwx {place}`")
    disk = os.statvfs(folder)
    if (free := disk.f_bavail * disk.f_frsize) < LEAST_FREE:
        words = f"its disk has {free / 2**30:.1f} GiB left."
        return Finding(False, words, f"`regatta store gc --store {place}` shows what can go.")
    return Finding(True, f"{place} keeps what is created in it.")


def records_branch(of: Deployment) -> Finding:
    """Whether what has ended is on the branch that witnesses its time."""
    if not of.records_branch:
        return Finding(True, "is switched off: nothing is copied to it.")
    try:
        ends = controller_records_branch.waiting(Store(of.store, make=False))
    except StoreError:
        return Finding(True, "can be looked at where there is a store.")
    late = [end for end in ends.values() if datetime.now(UTC) - end > LATE]
    if late:
        return Finding(
            False,
            f"{controller_records_branch.BRANCH} lacks {len(late)} of what ended, the first from "
            f"{min(late):%Y-%m-%d %H:%M} UTC.",
            "The bot's log says why GitHub refuses it: let no rule of the repository (Settings, "
            f"Rules, Rulesets) keep the bot from the branch {controller_records_branch.BRANCH}, "
            f"and give it "
            "Contents: Read and write; or switch it off: `REGATTA_RECORDS_BRANCH=off`",
        )
    return Finding(True, f"{controller_records_branch.BRANCH} holds what has ended.")


def cluster(of: Deployment) -> Finding:
    """Whether the lab's devices are described."""
    try:
        load(Path(str(of.cluster)))
    except BadCluster as error:
        return Finding(False, str(error), f"Mend {of.cluster}; examples/cluster.yaml shows one.")
    return Finding(True, f"{of.cluster} can be read.")


def ray(of: Deployment) -> Finding:
    """Whether Ray takes jobs from us."""
    try:
        file = settings.ray_token_file(of.ray_token_file)
        token = file.read_text().strip()
    except (settings.Unset, OSError) as error:
        return Finding(False, f"{error}", "Let REGATTA_RAY_TOKEN_FILE name Ray's token file.")
    try:
        answer = of.http.get(
            f"{of.ray_address}/api/jobs/", headers={"Authorization": f"Bearer {token}"}
        )
    except httpx.HTTPError as error:
        return Finding(
            False,
            f"nothing answers at {of.ray_address} ({type(error).__name__}).",
            "Start Ray there with its dashboard (`ray start --head`), or let REGATTA_RAY_ADDRESS "
            "name where it is, as http://127.0.0.1:8265.",
        )
    if answer.status_code in (401, 403):
        return Finding(
            False,
            f"Ray at {of.ray_address} does not accept the token in {file}.",
            "Let REGATTA_RAY_TOKEN_FILE name the file that Ray was started with (its "
            "RAY_AUTH_TOKEN_PATH).",
        )
    if not answer.is_success:
        words = f"Ray at {of.ray_address} answers {answer.status_code}."
        return Finding(False, words, "Look into Ray's logs; restart it.")
    return Finding(True, f"answers at {of.ray_address}, and accepts our token.")


def ray_asks_for_a_token(of: Deployment) -> Finding:
    """Whether whoever reaches Ray can run what they like there."""
    try:
        answer = of.http.get(f"{of.ray_address}/api/jobs/")
    except httpx.HTTPError:
        return Finding(False, "Ray does not answer.", "See the line before.")
    if answer.is_success:
        return Finding(
            False,
            f"Ray at {of.ray_address} takes jobs from whoever reaches it.",
            "Start Ray with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH.",
        )
    if answer.status_code not in (401, 403):
        words = f"without a token, {of.ray_address} answers {answer.status_code}."
        mend = "Let REGATTA_RAY_ADDRESS name Ray's dashboard itself; look into Ray's logs."
        return Finding(False, words, mend)
    return Finding(True, "nobody gets in without it.")


def bubblewrap(of: Deployment) -> Finding:
    """Whether experiments' own code can be isolated: on this machine, if nobody says where."""
    if of.isolation == "bubblewrap":
        words = "is said to be on each of Ray's machines, which look for it before they run any."
        return Finding(True, words)
    if of.isolation:
        how = "isolated by nothing" if of.isolation == "trusted" else "refused"
        return Finding(True, f"is not asked for: own code is {how}, as is said.")
    if why := of.probe():
        return Finding(
            False,
            f"own code of experiments cannot be isolated: {why}",
            "`apt-get install --yes bubblewrap` on each machine of Ray's, and if this is none, let "
            "REGATTA_ISOLATION say bubblewrap; or have only experiments without own code.",
        )
    return Finding(True, "isolates own code on this machine; Ray's other machines need it, too.")


# ── Words ────────────────────────────────────────────────────────────────────────────────────


def told(found: Mapping[str, Finding]) -> Iterator[str]:
    """The findings as lines; what is to be mended stands below its line."""
    width = max(map(len, found), default=0)
    for name, finding in found.items():
        yield f"{'✓' if finding.ok else '✗'} {name:<{width}}  {finding.words}"
        if not finding.ok and finding.mend:
            yield f"  {'':<{width}}  → {finding.mend}"


def as_json(found: Mapping[str, Finding]) -> str:
    """The findings for a program."""
    rows = [
        {"check": name, "ok": one.ok, "words": one.words, "mend": one.mend}
        for name, one in found.items()
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False)


def _mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"


def _listed(files: list[Path]) -> str:
    return ", ".join(map(str, files))
