"""`regatta doctor`: planted faults are found, and its advice, followed by the letter, mends them.

GitHub, Ray and the bot's address are played here; secrets, keys, file modes, the store and the
checkout are real. `follow` reads nothing but the advice.
"""

import base64
import functools
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import jwt
import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from typer.testing import CliRunner

from bot.cli.main import app
from bot.controller.write_budget import Cause, Rank
from bot.controller.write_log import WriteLog
from bot.github import app_manifest
from bot.setup import doctor
from bot.setup import init as setup_init
from bot.setup.findings import Finding, lines
from bot.setup.settings import Settings
from runner.isolation import bubblewrap
from runner.lib import accelerators, redact
from runner.schema import record
from runner.store.store import Store
from tests.machines import a_gpu, a_tpu

RAY, API, URL = "http://ray.test", "https://api.github.test", "https://lab.example.org"
TOKEN = "r" * 32


@functools.cache
def a_key(_number: int) -> rsa.RSAPrivateKey:
    """One key for each number: to make one takes as long as to use it in ten tests."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


read_key = functools.cache(serialization.load_pem_private_key)  # which checks it each time


class World:
    """A deployment where all is well, and what a fault or advice can change about it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._set = root, monkeypatch.setenv
        monkeypatch.setattr(redact, "hold", lambda *_, **__: None)  # a second for each key
        monkeypatch.setattr(jwt.algorithms, "load_pem_private_key", read_key)
        monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", self._answer_of_github)
        self.checkout = root / "checkout"
        self.checkout.mkdir()
        self.init()
        self.labels = set(setup_init.labels())
        self.permissions = {k: level for k, (level, _) in app_manifest.PERMISSIONS.items()}
        self.suspended: str | None = None
        self.events = set(app_manifest.EVENTS)
        self.hook: dict[str, Any] = {
            "url": f"{URL}/webhook",
            "content_type": "json",
            "insecure_ssl": "0",
            "secret": "********",
        }
        self.deliveries = [{"status_code": 202, "status": "OK"}]
        self.skew = timedelta(0)
        self.serves = self.ray_runs = self.ray_has_auth = True
        self.bubblewrap = ""
        self.ray_answers = 0  # to whoever has no token
        self.say("REGATTA_WEBHOOK_SECRET_FILE", self.private("secret", "0123456789abcdef" * 4))
        self.ray_token = self.private("ray-token", TOKEN)
        self.keys = 0
        self.new_key()
        (root / "store").mkdir(mode=0o700)
        self.actions = False
        self.said: dict[str, Any] = {
            "repository": "lab/lab",
            "store": str(root / "store"),
            "ray_address": RAY,
            "ray_token_file": self.ray_token,
            "app_id": "Iv1.lab",
            "github_api": API,
            "url": URL,
        }
        asks = httpx.MockTransport(self._answer)
        monkeypatch.setattr(doctor, "client", lambda: httpx.Client(transport=asks))
        monkeypatch.setattr(bubblewrap, "probe", lambda: self.bubblewrap)
        self.installed: set[str] = set()
        monkeypatch.setattr(accelerators, "ROOT", root / "machine")
        monkeypatch.setattr(accelerators, "_is_installed", lambda name: name in self.installed)

    def say(self, name: str, value: object) -> None:
        self._set(name, str(value))

    def change(self, **what: Any) -> None:
        self.said |= what

    def private(self, name: str, text: str) -> Path:
        path = self.root / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def private_folder(self) -> str:
        (self.root / "new").mkdir(mode=0o700)
        return str(self.root / "new")

    def new_key(self) -> None:
        made = a_key(self.keys)
        self.keys += 1
        pem = made.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        self.public = made.public_key()
        self.say("REGATTA_APP_KEY_FILE", self.private("key.pem", pem.decode()))

    def init(self) -> None:
        """`regatta init` in the checkout, then a commit and a push."""
        told = CliRunner().invoke(app, ["init", str(self.checkout), "--yes", "--replace"])
        assert told.exit_code == 0, told.output

    def settings(self) -> Settings:
        return Settings(**self.said)

    def found(self) -> dict[str, Finding]:
        return doctor.looked_at(self.settings(), self.actions)

    def failing(self) -> dict[str, Finding]:
        return {name: finding for name, finding in self.found().items() if not finding.ok}

    # ── Those who are asked ──

    def _answer(self, request: httpx.Request) -> httpx.Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if request.url.host == "ray.test":
            if not self.ray_runs:
                raise httpx.ConnectError("nobody listens")
            if self.ray_answers and token != TOKEN:
                return httpx.Response(self.ray_answers)
            return httpx.Response(200 if token == TOKEN or not self.ray_has_auth else 401, json=[])
        if request.url.host == "lab.example.org":
            if not self.serves:
                raise httpx.ConnectError("nobody listens")
            return httpx.Response(200, text="ok\n")
        raise AssertionError(f"nobody asks {request.url}")

    def _answer_of_github(
        self, request: requests.PreparedRequest, **_: object
    ) -> requests.Response:
        """In the place of the network."""
        assert request.url is not None
        asked = urlsplit(request.url)
        if asked.hostname != "api.github.test":
            raise requests.ConnectionError("nobody listens")
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        page = int(dict(parse_qsl(asked.query)).get("page", "1"))
        status, body = self._github(request.method or "", asked.path, token, page)
        answer = requests.Response()
        answer.status_code, answer._content = status, json.dumps(body).encode()
        answer.headers["date"] = format_datetime(datetime.now(UTC) - self.skew, usegmt=True)
        if isinstance(body, list) and len(body) == 100:
            answer.headers["link"] = f'<{API}{asked.path}?page={page + 1}>; rel="next"'
        return answer

    def _github(self, verb: str, path: str, token: str, page: int) -> tuple[int, Any]:
        if path == "/":
            return 200, {}
        if path.startswith("/app") or path.endswith("/installation"):
            try:
                jwt.decode(token, self.public, algorithms=["RS256"], issuer="Iv1.lab", leeway=1)
            except jwt.PyJWTError:
                return 401, {"message": "A JSON web token could not be decoded"}
            return 200 if verb == "GET" else 201, self._app(path)
        if token != "ghs_of-the-installation":
            return 401, {"message": "Bad credentials"}
        rest = path.removeprefix("/repos/lab/lab")
        if rest == "/labels":
            first = 100 * (page - 1)
            return 200, [{"name": name} for name in sorted(self.labels)[first : first + 100]]
        file = self.checkout / rest.removeprefix("/contents/")
        if rest.startswith("/contents/") and file.is_file():
            return 200, {"content": base64.b64encode(file.read_bytes()).decode()}
        if rest.startswith("/contents/") and file.is_dir():
            paths = [one.relative_to(self.checkout).as_posix() for one in file.iterdir()]
            return 200, [{"path": path, "type": "file"} for path in paths]
        return (200, {"full_name": "lab/lab"}) if not rest else (404, {"message": "Not Found"})

    def _app(self, path: str) -> Any:
        found: dict[str, Any] = {
            "/app": {"slug": "lab", "events": sorted(self.events)},
            "/app/hook/config": self.hook,
            "/app/hook/deliveries": self.deliveries,
            "/repos/lab/lab/installation": {
                "id": 7,
                "permissions": self.permissions,
                "suspended_at": self.suspended,
            },
            "/app/installations/7/access_tokens": {
                "token": "ghs_of-the-installation",
                "expires_at": "2100-01-01T00:00:00Z",
            },
        }
        return found[path]

    # ── Somebody who does what the advice says, and nothing else ──

    def follow(self, advice: str) -> None:
        for pattern, do in self._known():
            if found := re.search(pattern, advice):
                do(found)
                return
        raise AssertionError(f"nobody would know what to do: {advice}")

    def _known(self) -> Iterator[tuple[str, Callable[[re.Match[str]], object]]]:
        yield (
            r"`((?:chmod|umask 077;) [^`]+)`",
            lambda m: subprocess.run(m[1], shell=True, check=True),
        )
        yield r"Repository permissions, set ([^.;]+)", lambda m: self._set_permissions(m[1])
        yield (
            r"Subscribe to events, tick ([^.]+)\.",
            lambda m: self.events.update(
                name.lower().replace(" ", "_") for name in m[1].split(", ")
            ),
        )
        yield r"Webhook, set the URL to (\S+)\.", lambda m: self.hook.update(url=m[1])
        yield (
            r"Webhook, set the secret to",
            lambda _: (
                self.hook.update(secret="********"),
                self.deliveries.insert(0, {"status_code": 202, "status": "OK"}),
            ),
        )
        yield r"SSL verification", lambda _: self.hook.update(insecure_ssl="0")
        yield (
            r"RAY_TOKEN_FILE name the file that Ray was started with",
            lambda _: self.change(ray_token_file=self.ray_token),
        )
        yield r"Start Ray there", lambda _: setattr(self, "ray_runs", True)
        yield r"RAY_AUTH_MODE=token", lambda _: setattr(self, "ray_has_auth", True)
        yield r"name Ray's dashboard itself", lambda _: setattr(self, "ray_answers", 0)
        yield r"Leave REGATTA_BOT out", lambda _: self.change(bot="")
        yield r"`timedatectl set-ntp true`", lambda _: setattr(self, "skew", timedelta(0))
        yield r"`apt-get install --yes bubblewrap`", lambda _: setattr(self, "bubblewrap", "")
        yield (
            r"`pip install 'regatta\[(?:cuda|tpu)\]'`",
            lambda _: self.installed.update(("jax-cuda13-plugin", "libtpu")),
        )
        yield r"Generate a private key", lambda _: self.new_key()
        yield (
            r"`regatta init --repository lab/lab`",
            lambda _: self.labels.update(setup_init.labels()),
        )
        yield r"rename or delete what nothing reads", lambda _: self.put_right()
        yield r"`regatta init`", lambda _: self.init()
        yield r"REGATTA_STORE name a folder", lambda _: self.change(store=self.private_folder())
        yield r"Start `regatta serve`", lambda _: setattr(self, "serves", True)
        yield r"`REGATTA_RECORDS_BRANCH=off`", lambda _: self.change(records_branch=False)
        yield (
            r"set Interaction limits",  # then an hour passes
            lambda _: shutil.rmtree(self.root / "store" / "writes"),
        )
        yield r"Unsuspend it", lambda _: setattr(self, "suspended", None)

    def flood(self) -> None:
        log = WriteLog(Store(self.root / "store"), 7)
        for n in range(175):
            log.add(datetime.now(UTC), Cause(Rank.STRANGER, n, 1))

    def put_right(self) -> None:
        (self.checkout / ".github/regatta/track.yaml").unlink(missing_ok=True)
        self.init()

    def _set_permissions(self, words: str) -> None:
        levels = {"Read-only": "read", "Read and write": "write"}
        for one in words.split(", "):
            name, _, level = one.partition(": ")
            key = name.lower().replace(" ", "_")
            self.permissions.pop(key, None)
            if level != "No access":
                self.permissions[key] = levels[level]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("REGATTA_WEBHOOK_SECRET", "REGATTA_GITHUB_TOKEN", "REGATTA_APP_KEY"):
        monkeypatch.delenv(name, raising=False)
    return World(tmp_path, monkeypatch)


def a_file(world: World) -> str:
    (world.root / "a-file").write_text("")
    return str(world.root / "a-file")


# What is planted, and the check that must find it.
FAULTS: dict[str, tuple[Callable[[World], object], str]] = {
    "a secret of eight letters": (
        lambda w: w.private("secret", "password"),
        "webhook secret",
    ),
    "no secret": (lambda w: (w.root / "secret").write_text(""), "webhook secret"),
    "a key that everybody reads": (lambda w: (w.root / "key.pem").chmod(0o644), "secret files"),
    "a Ray token that the group reads": (lambda w: w.ray_token.chmod(0o640), "secret files"),
    "another App's key": (
        lambda w: w.private("key.pem", (w.root / "key.pem").read_text()[:-300]),
        "App's key",
    ),
    "a permission that lacks": (lambda w: w.permissions.update(checks="read"), "permissions"),
    "a permission too many": (
        lambda w: w.permissions.update(administration="write"),
        "permissions",
    ),
    "a suspended installation": (
        lambda w: setattr(w, "suspended", "2026-11-01T00:00:00Z"),
        "permissions",
    ),
    "an event that is not heard": (lambda w: w.events.remove("pull_request_review"), "events"),
    "a webhook that goes elsewhere": (
        lambda w: w.hook.update(url="https://old.example.org/webhook"),
        "webhook",
    ),
    "unsigned deliveries": (lambda w: w.hook.pop("secret"), "webhook"),
    "a secret that GitHub does not share": (
        lambda w: w.deliveries.insert(0, {"status_code": 401, "status": "Unauthorized"}),
        "deliveries",
    ),
    "a bot that does not run": (lambda w: setattr(w, "serves", False), "reachable"),
    "a Ray that does not run": (lambda w: setattr(w, "ray_runs", False), "Ray"),
    "another Ray's token": (
        lambda w: w.change(ray_token_file=w.private("other-token", "o" * 32)),
        "Ray",
    ),
    "a Ray that takes jobs from anybody": (
        lambda w: setattr(w, "ray_has_auth", False),
        "Ray's token",
    ),
    "a store that is no folder": (lambda w: w.change(store=a_file(w)), "store"),
    "a store that everybody reads": (lambda w: (w.root / "store").chmod(0o755), "store"),
    "a clock ten minutes ahead": (lambda w: setattr(w, "skew", timedelta(minutes=10)), "clock"),
    "no bubblewrap": (lambda w: setattr(w, "bubblewrap", "it is not there"), "bubblewrap"),
    "no policy": (lambda w: (w.checkout / ".github/regatta/policy.yml").unlink(), "policy"),
    "a policy with a slip": (
        lambda w: (w.checkout / ".github/regatta/policy.yml").write_text("comands: {}\n"),
        "policy",
    ),
    "a track with a slip": (
        lambda w: (w.checkout / ".github/regatta/tracks.yml").write_text("tracks: {x: {}}\n"),
        "policy",
    ),
    "a file that the lab does not read": (
        lambda w: (w.checkout / ".github/regatta/track.yaml").write_text("tracks: {}\n"),
        "policy",
    ),
    "no form": (
        lambda w: (w.checkout / ".github/ISSUE_TEMPLATE/experiment.yml").unlink(),
        "form",
    ),
    "a store whose name has a slip": (
        lambda w: w.change(store=str(w.root / "stroe" / "lab")),
        "store",
    ),
    "something before Ray that answers": (
        lambda w: setattr(w, "ray_answers", 302),
        "Ray's token",
    ),
    "a result that is not on the branch of records": (
        lambda w: record.write(
            Store(w.root / "store"),
            "executions/x1/result",
            record.Result(at=datetime.now(UTC) - timedelta(hours=2), state="done"),
        ),
        "records' branch",
    ),
    "a flood of strangers": (lambda w: w.flood(), "writes"),
    "a GPU that JAX cannot see": (lambda w: a_gpu(w.root / "machine"), "GPU"),
    "a TPU that JAX cannot see": (lambda w: a_tpu(w.root / "machine"), "TPU"),
    "another login": (lambda w: w.change(bot="regatta-lab[bot]"), "App's key"),
    "a label that lacks": (lambda w: w.labels.remove("experiment: done"), "labels"),
}


def test_a_deployment_where_all_is_well_passes(world: World) -> None:
    assert world.failing() == {}


def test_the_doctor_finds_secrets_that_own_code_can_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "_code", lambda: [world.root])
    assert set(world.failing()) == {"secret files", "store"}
    assert bubblewrap.shows(Path("/usr/src/app/store"))
    assert not bubblewrap.shows(Path("/srv/store"))


def test_no_finding_holds_a_secret(world: World) -> None:
    held = [*world.settings().all_secrets(), "ghs_of-the-installation"]
    assert TOKEN in held
    assert len(held) == 4
    for plant, _ in FAULTS.values():
        plant(world)
    found = world.found()
    told = repr(found) + "\n".join(lines(found))
    assert not [secret for secret in held if secret in told]


def test_the_doctor_leaves_nothing_in_the_store(world: World) -> None:
    world.failing()
    assert [p.name for p in (world.root / "store").iterdir()] == ["store.json"]


@pytest.mark.parametrize("place", ["stroe/lab", "stroe"])
def test_the_doctor_makes_no_store_of_a_name_with_a_slip(world: World, place: str) -> None:
    world.change(store=str(world.root / place))
    assert "There is no store at" in world.failing()["store"].words
    assert not (world.root / "stroe").exists()


@pytest.mark.parametrize("status", [404, 500, 302])
def test_an_answer_without_a_token_that_is_no_refusal_is_not_taken_for_one(
    world: World, status: int
) -> None:
    world.ray_answers = status
    assert str(status) in world.failing()["Ray's token"].words


def test_labels_on_a_later_page_are_seen(world: World) -> None:
    world.labels |= {f"a-label-of-their-own-{n}" for n in range(230)}
    assert world.failing() == {}


@pytest.mark.parametrize("said", ["bubblewrap", "trusted", "none"])
def test_the_operator_chooses_the_isolation_of_own_code(world: World, said: str) -> None:
    world.bubblewrap = "it is not there"
    assert "bubblewrap" in world.failing()
    world.change(isolation=said)
    assert world.failing() == {}


def test_the_doctor_says_that_a_token_makes_no_check_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGATTA_GITHUB_TOKEN", "ghs_of-the-installation")
    world.change(app_id="")
    assert "no check runs" in world.found()["token"].words


def test_the_doctor_checks_the_rest_without_github(world: World) -> None:
    world.change(github_api="https://ray.test")
    world.ray_runs = False
    failing = world.failing()
    assert "cannot be reached" in failing["clock"].words
    assert "store" not in failing


def test_actions_mode_needs_no_app_and_no_webhook(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGATTA_GITHUB_TOKEN", "ghs_of-the-installation")
    world.actions = True
    names = set(world.found())
    assert "token" in names
    assert not {"webhook secret", "App's key", "webhook", "reachable"} & names
    assert world.failing() == {}


@pytest.mark.parametrize(("said", "on"), [(None, True), ("", True), ("on", True), ("off", False)])
def test_the_branch_of_records_is_there_unless_it_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, said: str | None, on: bool
) -> None:
    seen: list[Settings] = []
    monkeypatch.setattr(doctor, "looked_at", lambda of, *_: seen.append(of) or {})
    command = ["doctor", "--repository", "lab/lab", "--ray-address", RAY]
    told = CliRunner().invoke(app, command, env={"REGATTA_RECORDS_BRANCH": said})
    assert told.exit_code == 0, told.output
    assert [of.records_branch for of in seen] == [on]
