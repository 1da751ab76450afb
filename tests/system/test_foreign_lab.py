"""A lab that is not this repository: the wheel in an environment of its own, an empty git
repository that `regatta init` makes a lab, and an experiment, policy, track and price of its own,
from `/run` to the row on the site, with a server and with GitHub Actions."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.fake_github.server import running
from bot.fake_github.world.sandbox import Sandbox, make_sandbox
from tests.documented import copied
from tests.scenarios.lab import SECRET, TEXT, TOKENS

PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
RAY = """
import sys
from pathlib import Path
from runner.execution.local_ray import local_ray

with local_ray(Path(sys.argv[1])) as ray:
    print(ray.url, ray.token_file, flush=True)
    sys.stdin.read()
"""
SMALLER = (  # what `regatta new` writes, made to take seconds
    ("source: stdlib", "source: text.txt"),
    ("hidden_dim: 128", "hidden_dim: 16"),
    ("intermediate_dim: 352", "intermediate_dim: 32"),
    ("num_layers: 4", "num_layers: 1"),
    ("num_heads: 4", "num_heads: 2"),
    ("seq_len: 256", "seq_len: 32"),
    ("train_batch_size: 16", "train_batch_size: 4"),
    ("num_train_steps: 60", "num_train_steps: 4"),
    ("seeds: [0, 1, 2]", "eval: {tokens: 64}\nseeds: [0]"),
)
TRACK = """\
data: {{ours: {{source: text.txt, validation_sha256: {sha256}, eval_tokens: 64}}}}
tracks:
  ours: {{title: Anything at all, kind: target, data: ours, target: 100, spread: 0.1}}
"""


@dataclass
class Installed:
    """The wheel, in an environment that has nothing else of this project."""

    place: Path
    ray: dict[str, str] = field(default_factory=dict)  # how to reach it, as the bot is told

    @property
    def bin(self) -> Path:
        return self.place / "env" / "bin"

    def environment(self, **more: str) -> dict[str, str]:
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.place), "LANG": "C.UTF-8", **more}

    def regatta(self, folder: Path, *words: str | Path, **more: str) -> str:
        """What a command says."""
        ended = subprocess.run(
            [self.bin / "regatta", *words],
            cwd=folder,
            env=self.environment(**more),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ended.returncode == 0, f"{words}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
        return ended.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Dependencies are those of this environment, which take minutes to install anew."""
    place = tmp_path_factory.mktemp("foreign")
    sources = copied(place / "sources")
    build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", place, sources)
    subprocess.run([*PIP, *build], check=True)
    (wheel,) = place.glob("*.whl")
    found = Installed(place)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "env"], check=True)
    python = found.bin / "python"
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", wheel], check=True)
    (packages,) = place.glob("env/lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    told = subprocess.run(
        [python, "-c", "import bot, engine, runner; print(bot.__file__)"],
        cwd=place,
        env=found.environment(),
        capture_output=True,
        text=True,
    )
    assert told.stdout.startswith(str(packages)), told
    (place / "ray").mkdir()
    ray = subprocess.Popen(
        [python, "-c", RAY, place / "ray"],
        cwd=place,
        env=found.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ray.stdin
    assert ray.stdout
    try:
        url, token = ray.stdout.readline().split()
        found.ray = {"REGATTA_RAY_ADDRESS": url, "REGATTA_RAY_TOKEN_FILE": token}
        yield found
    finally:
        ray.stdin.close()
        ray.wait(60)


def a_repository(installed: Installed, folder: Path, mode: str) -> dict[str, bytes]:
    """Make an empty git repository a lab, and return the files that its owner commits."""
    folder.mkdir()
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    installed.regatta(folder, "init", "--yes", "--mode", mode)
    installed.regatta(folder, "new", "ours")
    declared = folder / "experiments/ours/experiment.yaml"
    text = declared.read_text()
    for was, now in SMALLER:
        assert was in text, was
        text = text.replace(was, now)
    declared.write_text(text)
    (declared.parent / "text.txt").write_text(TEXT)
    plan = json.loads(installed.regatta(folder, "plan", "ours", "--json"))
    declared.write_text(f"{text}\nspeedrun: {{track: ours, author: {{name: Ada}}}}\n")
    lab = folder / ".github/regatta"
    (lab / "tracks.yml").write_text(TRACK.format(sha256=plan["data"]["validation_sha256"]))
    (lab / "devices.yml").write_text("cpu: {price: 36}\n")
    policy = (lab / "policy.yml").read_text()
    only_sam = policy.replace(
        "run:    {roles: [maintain, admin], people: []}", "run: {roles: [], people: [sam]}"
    )
    assert only_sam != policy
    (lab / "policy.yml").write_text(only_sam)
    planned = installed.regatta(folder, "plan", "ours")
    assert "This enters the track `ours`" in " ".join(planned.split())
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] not in (".git", "store")
    }


def line(sandbox: Sandbox, pull: int) -> str:
    """The line that approves the plan, as its comment shows it."""
    found = re.search(r"^(/run [a-z2-7-]{24})$", said(sandbox, pull, "### Plan 1")[0], re.MULTILINE)
    assert found
    return found[1]


def said(sandbox: Sandbox, number: int, words: str) -> list[str]:
    """The bot's comments with these words."""
    comments = sandbox.issue(number).comments
    return [one.body for one in comments if sandbox.is_app(one.user) and words in one.body]


def tell(
    sandbox: Sandbox, files: dict[str, bytes], settle: Callable[[str, Callable[[], Any]], None]
) -> int:
    """The story, up to the answer; `settle` has the bot work until something is there."""
    ours = {path: content for path, content in files.items() if path.startswith("experiments/")}
    sandbox.commit("ada", "ours", ours, "Declare an experiment")
    pull = sandbox.open_pull("ada", "Ours", "Does it pay off?", "ours").number
    settle("the plan", lambda: said(sandbox, pull, "### Plan 1"))
    time.sleep(1.1)  # a tie in time refuses
    sandbox.comment("grace", pull, line(sandbox, pull))
    settle("the refusal", lambda: said(sandbox, pull, "Only sam may use `/run` here"))
    sandbox.comment("sam", pull, line(sandbox, pull))
    settle("the answer", lambda: said(sandbox, pull, "<summary>Receipt"))
    return pull


def wait_for(what: str, look: Callable[[], Any], patience: float = 120) -> None:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if look():
            return
        time.sleep(0.2)
    raise AssertionError(f"{what} did not happen within {patience} s")


def has_its_row(page: bytes) -> bool:
    """Whether the experiment has its rows on its lab's own track, in a site's speedrun.json."""
    rows = json.loads(page).get("ours", {}).get("rows", [])
    return [row["rank"] for row in rows] == [1, 2]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_lab_of_ones_own_answers_with_a_server(installed: Installed, tmp_path: Path) -> None:
    files = a_repository(installed, tmp_path / "lab", "server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sandbox = make_sandbox(
        tmp_path / "sandbox",
        files={path: x for path, x in files.items() if path.startswith(".github/")},
        bot_token="installation-token",
        persona_tokens=TOKENS,
        webhook_secret=SECRET,
        webhook_url=f"http://127.0.0.1:{port}/webhook",
    )
    with running(sandbox) as url, serving(installed, tmp_path, url, port):
        tell(sandbox, files, wait_for)
        address = f"http://127.0.0.1:{port}/api/speedrun.json"
        wait_for("the row", lambda: has_its_row(httpx.get(address).content))
    check(tmp_path / "store")


@contextlib.contextmanager
def serving(installed: Installed, folder: Path, api: str, port: int) -> Iterator[None]:
    """`regatta serve`, as its operator starts it."""
    words = ("serve", "--port", str(port), "--seconds-between-writes", "0")
    with (folder / "log.txt").open("w") as log:
        bot = subprocess.Popen(
            [installed.bin / "regatta", *words],
            cwd=folder,
            env=deployed(installed, folder, api, REGATTA_WEBHOOK_SECRET=SECRET),
            stdout=log,
            stderr=log,
        )
        try:
            wait_for("the bot answers", lambda: answers(f"http://127.0.0.1:{port}/healthz"))
            yield
        except AssertionError as error:
            raise AssertionError((folder / "log.txt").read_text()[-5000:]) from error
        finally:
            bot.terminate()
            bot.wait(30)


def answers(address: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(address).is_success
    return False


def deployed(installed: Installed, folder: Path, api: str, **more: str) -> dict[str, str]:
    return installed.environment(
        REGATTA_REPOSITORY="regatta-lab/lab",
        REGATTA_GITHUB_TOKEN="installation-token",
        REGATTA_GITHUB_API=f"{api}/api/v3",
        REGATTA_BOT="regatta-lab[bot]",
        REGATTA_STORE=str(folder / "store"),
        **installed.ray,
        **more,
    )


def check(store: Path) -> None:
    """The price is the lab's own."""
    (result,) = (json.loads(x.read_text()) for x in store.glob("records/executions/*/result.json"))
    (used,) = result["used"]
    assert result["state"] == "done"
    assert used["price"] == pytest.approx(36 * used["device_seconds"] / 3600, rel=1e-3)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_lab_of_ones_own_answers_in_actions(installed: Installed, tmp_path: Path) -> None:
    repository = tmp_path / "lab"
    files = a_repository(installed, repository, "actions")
    sandbox = make_sandbox(
        tmp_path / "sandbox",
        files={path: x for path, x in files.items() if path.startswith(".github/")},
        bot_token="installation-token",
        persona_tokens=TOKENS,
        webhook_secret=SECRET,
    )
    event = tmp_path / "event.json"
    event.write_text("{}")  # the clock's
    with running(sandbox) as url:
        environment = deployed(
            installed,
            tmp_path,
            url,
            GITHUB_EVENT_NAME="schedule",
            GITHUB_EVENT_PATH=str(event),
            GITHUB_RUN_ID="1",
        )

        def handle(what: str, look: Callable[[], Any]) -> None:
            for _ in range(3):
                installed.regatta(repository, "handle", "--minutes", "2", **environment)
                if look():
                    return
            raise AssertionError(f"{what} did not happen")

        tell(sandbox, files, handle)
    store = tmp_path / "store"
    installed.regatta(repository, "site", "build", "--out", tmp_path / "site", "--store", store)
    assert has_its_row((tmp_path / "site/api/speedrun.json").read_bytes())
    check(store)
