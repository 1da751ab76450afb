"""`regatta demo`: the lab's whole story with real parts, told in the terminal as it happens.

The supervisor owns the children (sandbox, Ray, bot) and plays the people through the sandbox's
REST API. What the bot does is seen where people would see it: in threads, labels and checks.
"""

import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.text import Text

from runner import drive, guard, record, terminal
from runner.launch import RayError
from runner.leases import LeaseWatch
from runner.lifecycle import Job
from runner.local_ray import LocalRay, free_ports, local_ray
from runner.progress import progress
from runner.store import Store

NAME = "regatta-lab/lab"
EXPERIMENT = "experiments/warm-learning-rate/experiment.yaml"
PATIENCE = 180.0  # seconds for the bot to answer; a busy machine takes its time
TRAINING_MAY_TAKE = 600.0
HYPOTHESIS = (
    "A model of 0.9 million parameters that sees only 16 steps is far from any noise floor, so a "
    "ten times warmer learning rate should simply get further."
)
PREDICTIONS = """\
- metric: eval/bpb
  arm: fast
  versus: slow
  expect: "< -0.05"
  confidence: 80 %
- metric: eval/bpb
  arm: fast
  expect: "< 2.0"
  confidence: 30 %"""


class Missed(Exception):
    """A beat did not come; the message says what was waited for."""


@dataclass
class Beat:
    """One thing that happens in the story, and where it can be seen."""

    name: str
    link: str
    seconds: float  # since the beat before


@dataclass
class Story:
    """What has happened so far."""

    console: Console
    began: float = field(default_factory=time.monotonic)
    beats: list[Beat] = field(default_factory=list)
    last: float = field(default_factory=time.monotonic)

    def beat(self, name: str, link: str) -> None:
        """Tick a beat off."""
        now = time.monotonic()
        self.beats.append(Beat(name, link, round(now - self.last, 1)))
        line = Text("✓ ", style="bold green")
        line.append(name, style="bold")
        line.append(f"  {now - self.last:.0f} s", style="dim")
        self.console.print(line)
        self.console.print(Text(f"  {link}", style="blue"), soft_wrap=True)
        self.last = now

    def wait(self, for_what: str, look: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """What `look` returns once it returns something. Raises Missed."""
        until = time.monotonic() + patience
        with self.console.status(f"[dim]{for_what} …"):
            while time.monotonic() < until:
                found = look()
                if found:
                    return found
                time.sleep(0.3)
        raise Missed(f"{for_what}: it did not happen within {patience:.0f} s")

    def report(self, missed: str) -> dict[str, Any]:
        """For `REPORT=`."""
        return {
            "beats": [asdict(beat) for beat in self.beats],
            "seconds": round(time.monotonic() - self.began, 1),
            "missed": missed or None,
        }


def play(root: Path, *, once: bool, report: Path | None, port: int) -> int:
    """Play the story; the process's exit code: 0, or 1 if a beat was missed."""
    console = Console(highlight=False)
    story = Story(console)
    missed = ""
    with ExitStack() as stack:
        scratch = tempfile.TemporaryDirectory(prefix="regatta-demo-", ignore_cleanup_errors=True)
        home = Path(stack.enter_context(scratch))
        try:
            lab = _up(stack, home, port, story)
            _tell(lab, root, story)
        except (Missed, RayError, httpx.HTTPError, OSError) as error:
            missed = str(error) or type(error).__name__
            console.print(Text(f"✗ {missed}", style="bold red"))
            _show_logs(console, home)
        except KeyboardInterrupt:
            missed = "interrupted"
        if report:
            report.write_text(json.dumps(story.report(missed), indent=2) + "\n")
        if not missed and not once:
            _stay(console, lab)
    return 1 if missed and missed != "interrupted" else 130 if missed else 0


# ── The cast ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Lab:
    """Where everything is."""

    home: Path
    sandbox: str
    bot: str
    ray: LocalRay
    api: httpx.Client

    def url(self, path: str = "") -> str:
        """A page of the repository."""
        return f"{self.sandbox}/{NAME}{path}"

    def ask(self, who: str, method: str, path: str, body: Any = None, **query: str) -> Any:
        """What a person asks of the REST API."""
        answer = self.api.request(
            method,
            f"{self.sandbox}/api/v3/repos/{NAME}{path}",
            json=body,
            params=query,
            headers={"Authorization": f"token {who}-token"},
        )
        answer.raise_for_status()
        return answer.json()

    def said(self, number: int, words: str) -> str:
        """Where the bot said something with `words` on a thread; "" if it has not."""
        for comment in self.ask("ada", "GET", f"/issues/{number}/comments", per_page="100"):
            if comment["user"]["type"] == "Bot" and words in comment["body"]:
                return str(comment["html_url"])
        return ""

    def label(self, number: int) -> str:
        """The lab's label on an issue."""
        labels = self.ask("ada", "GET", f"/issues/{number}/labels")
        ours = [label["name"] for label in labels if label["name"].startswith("experiment: ")]
        return ours[0] if len(ours) == 1 else ""

    def check(self, commit: str, prefix: str) -> Any:
        """The check run on a commit whose name begins with `prefix`; None if there is none."""
        found = self.ask("ada", "GET", f"/commits/{commit}/check-runs", filter="all")["check_runs"]
        return next((check for check in found if check["name"].startswith(prefix)), None)


def _up(stack: ExitStack, home: Path, port: int, story: Story) -> Lab:
    """Start sandbox, Ray and bot; all of them end with this process."""
    bot_port = free_ports(1)[0]
    bot = f"http://127.0.0.1:{bot_port}"
    names = ("PATH", "HOME", "LANG")
    environment = {name: os.environ[name] for name in names if name in os.environ} | {
        "REGATTA_WEBHOOK_SECRET": secrets.token_hex(16),
        "REGATTA_GITHUB_TOKEN": secrets.token_hex(16),
    }
    sandbox_port = port or free_ports(1)[0]
    sandbox = f"http://127.0.0.1:{sandbox_port}"
    stack.enter_context(
        _child(
            home,
            "sandbox",
            [
                *("--root", str(home / "sandbox")),
                *("--port", str(sandbox_port)),
                *("--webhook-url", f"{bot}/webhook"),
                *("--leaderboard-url", f"{bot}/index.html"),
            ],
            environment,
        )
    )
    with story.console.status("[dim]sandbox and Ray start …"):
        ray = stack.enter_context(local_ray(home))
    stack.enter_context(
        _child(
            home,
            "serve",
            [
                *("--repository", NAME),
                *("--store", str(home / "store")),
                *("--github-api", f"{sandbox}/api/v3"),
                *("--ray-address", ray.url),
                *("--ray-token-file", str(ray.token_file)),
                *("--seconds-between-writes", "0.2"),
                *("--port", str(bot_port)),
            ],
            environment,
        )
    )
    api = stack.enter_context(httpx.Client(timeout=30, trust_env=False))
    lab = Lab(home, sandbox, bot, ray, api)
    story.wait("the bot comes up", lambda: _answers(api, f"{bot}/index.html"))
    return lab


def _child(
    home: Path, command: str, options: list[str], environment: dict[str, str]
) -> AbstractContextManager[object]:
    """One of our own commands as a child that ends with us, its output in `<command>.log`."""
    told = [sys.executable, "-m", "bot", command, *options]
    return guard.kept(told, home / f"{command}.scratch", home / f"{command}.log", environment)


# ── The story ────────────────────────────────────────────────────────────────────────────────


def _tell(lab: Lab, root: Path, story: Story) -> None:
    story.console.print(
        "\n[bold]Regatta[/bold]: an open lab in a box. Everything below happens on this machine.\n"
    )
    story.beat("The sandbox, the bot and a local Ray are up", lab.url())

    issue = lab.ask(
        "ada", "POST", "/issues", {"title": "Experiment: a warmer start", "body": _form()}
    )["number"]
    story.wait(
        "Ada preregisters; the bot seals it",
        lambda: lab.said(issue, "### Sealed") and lab.label(issue) == "experiment: wishlist",
    )
    story.beat("Ada's predictions are sealed", lab.said(issue, "### Sealed"))

    pull, head = _propose(lab, root, issue)
    story.wait(
        "Ada declares the experiment; the bot plans it, and runs nothing",
        lambda: (
            lab.said(pull, "### Plan 1")
            and lab.check(head, "regatta / plan")
            and lab.label(issue) == "experiment: planned"
        ),
    )
    story.beat("The plan is posted, with its cost", lab.said(pull, "### Plan 1"))

    lab.ask("sam", "POST", f"/issues/{pull}/comments", {"body": "/run"})
    refusal = story.wait("Sam, a stranger, says /run", lambda: lab.said(pull, "**Not done:**"))
    story.beat("Sam's /run is refused, and nothing starts", refusal)

    lab.ask("grace", "POST", f"/issues/{pull}/comments", {"body": "Looks good.\n\n/run"})
    story.wait(
        "Grace, a maintainer, says /run",
        lambda: lab.said(pull, "`/cancel` stops it") and lab.label(issue) == "experiment: running",
    )
    status = lab.said(pull, "`/cancel` stops it")
    story.beat("Grace's /run is approved; an attempt is on its way to Ray", status)

    _watch(lab, story)
    result = story.wait("the bot posts the result", lambda: lab.said(pull, "<summary>Receipt"))
    story.beat("Trained, evaluated, judged: the result is in the thread", result)

    verdict = story.wait("the issue hears of it", lambda: lab.said(issue, "Figures, curves and"))
    story.wait("the label becomes done", lambda: lab.label(issue) == "experiment: done")
    check = story.wait(
        "the check completes",
        lambda: (found := lab.check(head, "regatta / x")) and found["conclusion"] and found,
    )
    if check["conclusion"] != "success":
        raise Missed(f"the check concluded {check['conclusion']}")
    _expect_both(lab)
    story.beat("The issue has its verdict: one prediction confirmed, one refuted", verdict)

    board = f"{lab.bot}/index.html"
    story.wait("the leaderboard is drawn", lambda: "fast" in lab.api.get(board).text)
    story.beat("The leaderboard has its rows", board)


def _form() -> str:
    """The issue's body, as the experiment form renders it."""
    return (
        f"### Hypothesis\n\n{HYPOTHESIS}\n\n### Predictions\n\n```yaml\n{PREDICTIONS}\n```\n\n"
        "### Notes\n\n_No response_"
    )


def _propose(lab: Lab, root: Path, issue: int) -> tuple[int, str]:
    """Ada pushes a branch with the declaration and opens a pull request; its number and head."""
    title, _, rest = (root / EXPERIMENT).read_text().partition("\n")
    declaration = f"{title}\npreregistration: {issue}\n{rest}"
    base = lab.ask("ada", "GET", "/git/ref/heads/main")["object"]["sha"]
    entry = {"path": EXPERIMENT, "mode": "100644", "type": "blob", "content": declaration}
    tree = lab.ask("ada", "POST", "/git/trees", {"base_tree": base, "tree": [entry]})["sha"]
    commit = {"message": "Declare a warmer start", "tree": tree, "parents": [base]}
    head = str(lab.ask("ada", "POST", "/git/commits", commit)["sha"])
    lab.ask("ada", "POST", "/git/refs", {"ref": "refs/heads/warmer-start", "sha": head})
    opened = {
        "title": "A warmer start",
        "body": f"Tests the predictions of #{issue}.",
        "head": "warmer-start",
        "base": "main",
    }
    return int(lab.ask("ada", "POST", "/pulls", opened)["number"]), head


def _watch(lab: Lab, story: Story) -> None:
    """A progress bar from the records and the job's metrics, until the execution ended."""
    store = Store(lab.home / "store")
    leases = LeaseWatch(store)
    until = time.monotonic() + TRAINING_MAY_TAKE
    with terminal.Watching(story.console) as watching:
        while time.monotonic() < until:
            for name in record.names(store, "executions"):
                facts = drive.observe(store, _no_word, leases, name)
                if facts.result:
                    return
                watching.show(facts, progress(store, facts))
            time.sleep(0.5)
    raise Missed(f"training did not end within {TRAINING_MAY_TAKE:.0f} s")


def _no_word(_: str) -> Job:
    """For who only looks on at records and leases: what has become of a job."""
    return "unreachable"


def _expect_both(lab: Lab) -> None:
    store = Store(lab.home / "store")
    results = [
        record.require(store, f"executions/{name}/result", record.Result)
        for name in record.names(store, "executions")
    ]
    outcomes = [verdict.outcome for result in results for verdict in result.verdicts]
    if outcomes != ["confirmed", "refuted"]:
        raise Missed(f"the predictions came out {outcomes}, not confirmed and refuted")


def _stay(console: Console, lab: Lab) -> None:
    console.print(
        f"\nThe lab stays up. Go on playing at [blue]{lab.url()}[/blue]: open issues, comment as "
        "Ada, Sam or Grace, try [bold]/status[/bold], [bold]/cancel[/bold], [bold]/help[/bold]."
        f"\nThe leaderboard is at [blue]{lab.bot}/index.html[/blue]. Ctrl-C ends everything.\n"
    )
    try:
        while lab.ray.alive:
            time.sleep(0.5)
        console.print("Ray has ended; so does the demo.", style="red")
    except KeyboardInterrupt:
        console.print("\nEnding …", style="dim")


# ── Odds and ends ────────────────────────────────────────────────────────────────────────────


def _answers(api: httpx.Client, url: str) -> bool:
    try:
        return api.get(url).is_success
    except httpx.HTTPError:
        return False


def _show_logs(console: Console, home: Path) -> None:
    for log in sorted(home.glob("*.log")):
        tail = log.read_text(errors="replace").strip()[-1500:]
        if tail:
            console.print(Text(f"\n{log.name} ends with:\n{tail}", style="dim"))
