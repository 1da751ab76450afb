"""The demo's stage: sandbox, Ray and bot as children of this process, the people's and the bot's
actions through the REST API, and the story in the terminal."""

import contextlib
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.text import Text

from runner.execution.local_ray import LocalRay, free_ports, local_ray
from runner.lib import addresses, process_tree

NAME = "regatta-lab/lab"
PATIENCE = 180.0  # seconds for the bot to answer, also on a busy machine


class Missed(Exception):
    """A beat did not happen; the message says what was expected."""


@dataclass
class Story:
    """What has happened so far."""

    console: Console
    began: float = field(default_factory=time.monotonic)
    beats: list[dict[str, Any]] = field(default_factory=list)
    last: float = field(default_factory=time.monotonic)
    children: dict[Path, subprocess.Popen[bytes]] = field(default_factory=dict)  # by their logs

    def beat(self, name: str, link: str | None) -> None:
        """Mark a beat as done."""
        now = time.monotonic()
        seconds = round(now - self.last, 1)  # since the previous beat
        self.beats.append({"name": name, "link": link, "seconds": seconds})
        line = Text("✓ ", style="bold green")
        line.append(name, style="bold")
        line.append(f"  {now - self.last:.0f} s", style="dim")
        self.console.print(line)
        self.console.print(Text(f"  {link}", style="blue"), soft_wrap=True)
        self.last = now

    def wait(self, for_what: str, look: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """Poll `look` until it returns something. Raises Missed."""
        until = time.monotonic() + patience
        with self.console.status(f"[dim]{for_what} …"):
            while time.monotonic() < until:
                for output, process in self.children.items():
                    if process.poll() is not None:
                        last = output.read_text(errors="replace").strip().rpartition("\n")[2]
                        raise Missed(f"{for_what}: `{output.stem}` has ended: {last}")
                with contextlib.suppress(httpx.TransportError):  # a page that is being redrawn
                    if found := look():
                        return found
                time.sleep(0.3)
        raise Missed(f"{for_what}: this did not happen within {patience:.0f} s")

    def report(self, missed: str | None) -> dict[str, Any]:
        """The content of the file for `REPORT=`."""
        return {
            "beats": self.beats,
            "seconds": round(time.monotonic() - self.began, 1),
            "missed": missed,
        }


@dataclass(frozen=True)
class Lab:
    """The addresses of everything."""

    home: Path
    sandbox: str
    bot: str
    ray: LocalRay
    api: httpx.Client

    def url(self, path: str = "") -> str:
        """A page of the repository."""
        return f"{self.sandbox}/{NAME}{path}"

    def ask(
        self,
        who: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        repository: str = NAME,
        **query: str,
    ) -> Any:
        """Send a person's request to the REST API, for the lab's repository or a fork."""
        answer = self.api.request(
            method,
            f"{self.sandbox}/api/v3/repos/{repository}{path}",
            json=body,
            params=query,
            headers={"Authorization": f"token {who}-token"},
        )
        answer.raise_for_status()
        return answer.json()

    def comment(self, who: str, number: int, body: str) -> str:
        """Post a person's comment on a thread. Returns its URL."""
        return str(self.ask(who, "POST", f"/issues/{number}/comments", {"body": body})["html_url"])

    def said(self, number: int, words: str) -> str | None:
        """The URL of the bot's comment with `words` on a thread; None if there is none."""
        found = (one["html_url"] for one in self._comments(number) if words in one["body"])
        return next(found, None)

    def line(self, number: int) -> str | None:
        """The line that approves the newest plan of a pull request, from the plan's comment."""
        plans = [x["body"] for x in self._comments(number) if x["body"].startswith("### Plan ")]
        found = re.findall(r"^/run \S+$", plans[-1], re.MULTILINE) if plans else []
        return found[-1] if found else None

    def _comments(self, number: int) -> list[Any]:
        """The bot's comments, oldest first."""
        found = self.ask("ada", "GET", f"/issues/{number}/comments", per_page="100")
        return [comment for comment in found if comment["user"]["type"] == "Bot"]

    def label(self, number: int) -> str | None:
        """The lab's label on an issue; None if there is none."""
        labels = self.ask("ada", "GET", f"/issues/{number}/labels")
        ours = [label["name"] for label in labels if label["name"].startswith("experiment: ")]
        return ours[0] if len(ours) == 1 else None

    def check(self, commit: str, prefix: str) -> Any:
        """The check run on a commit whose name begins with `prefix`; None if there is none."""
        found = self.ask("ada", "GET", f"/commits/{commit}/check-runs", filter="all")["check_runs"]
        return next((check for check in found if check["name"].startswith(prefix)), None)


def up(stack: ExitStack, home: Path, port: int, story: Story) -> Lab:
    """Start sandbox, Ray and bot; all of them end with this process."""
    bot_port = free_ports(1)[0]
    bot = f"http://127.0.0.1:{bot_port}"
    sandbox_port = port or free_ports(1)[0]
    addresses.listen("127.0.0.1", sandbox_port).close()  # the sandbox listens there next
    sandbox = f"http://127.0.0.1:{sandbox_port}"
    environment = surroundings() | {
        "REGATTA_WEBHOOK_SECRET": secrets.token_hex(16),
        "REGATTA_GITHUB_TOKEN": secrets.token_hex(16),
        "REGATTA_BOT": "regatta-lab[bot]",  # the sandbox's name for the token's user
        "REGATTA_SITE": bot,  # comments link to it
    }

    def begin(command: str, options: list[str]) -> None:
        process = stack.enter_context(child(home, command, options, environment))
        story.children[home / f"{command}.log"] = process

    options = [
        *("--root", str(home / "sandbox")),
        *("--port", str(sandbox_port)),
        *("--webhook-url", f"{bot}/webhook"),
        *("--leaderboard-url", f"{bot}/index.html"),
    ]
    begin("sandbox", options)
    with story.console.status("[dim]starting the sandbox and Ray …"):
        ray = stack.enter_context(local_ray(home))
    story.children[home / "ray.log"] = ray.guard
    options = [
        *("--repository", NAME),
        *("--store", str(home / "store")),
        *("--github-api", f"{sandbox}/api/v3"),
        *("--ray-address", ray.url),
        *("--ray-token-file", str(ray.token_file)),
        *("--seconds-between-writes", "0.2"),
        *("--cluster", str(Path(__file__).parent / "cluster.yaml")),
        *("--port", str(bot_port)),
    ]
    begin("serve", options)
    api = stack.enter_context(httpx.Client(timeout=30, trust_env=False))
    lab = Lab(home, sandbox, bot, ray, api)
    story.wait("the bot starts", lambda: _answers(api, f"{bot}/index.html"))
    return lab


def surroundings() -> dict[str, str]:
    """The parts of this process's environment that the children need, without secrets."""
    names = ("PATH", "HOME", "LANG")
    return {name: os.environ[name] for name in names if name in os.environ}


def child(
    home: Path, command: str, options: list[str], environment: dict[str, str]
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """One of our own commands as a child that ends with us, with its output in `<command>.log`."""
    told = [sys.executable, "-m", "bot", command, *options]
    return process_tree.kept(
        told, home / f"{command}.scratch", home / f"{command}.log", environment
    )


def _answers(api: httpx.Client, url: str) -> bool:
    try:
        return api.get(url).is_success
    except httpx.HTTPError:
        return False
